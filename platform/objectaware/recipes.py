"""Recipes: YAML files of plain values, and the options of the command line that override their fields.

tyro parses a command's own options, but not the overrides. It would have to import the models of configuration for
every --help, and would take the value of an option that it does not know for the recipe's path.

`yaml.safe_load` alone is not enough, even for the user's own file. It takes 4 ms for twelve lines of nested aliases
("billion laughs"), and the first message that shows their value needs 1.7 TB. Such a file is refused by its size with
all aliases written out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path

import yaml

from objectaware.data.user_files import look_at
from objectaware.errors import InputError, system_reason

_MAX_BYTES = 2**20
_MAX_EXPANDED = 2**22
_SHIPPED = Path(__file__).parent / "shipped"
"""Folder with the repository's `jobs/recipes` and `sweeps`: copies in an installed package, links in a clone."""
SHIPPED_RECIPES = _SHIPPED / "jobs" / "recipes"


def find_recipe(path: Path) -> Path:
    """Find a recipe or sweep: a file of the user or, failing that, one that comes with the package.

    Args:
        path: Path of the file. A file that comes with the package can also be given by its path in the repository
            (`jobs/recipes/linear_in9.yaml`) or by its name (`linear_in9`).

    Returns:
        The path of the file; the given path if there is no such file.
    """
    if path.name and not path.is_file() and not path.is_absolute() and ".." not in path.parts:
        names = [path, *(folder / path.with_suffix(".yaml") for folder in (Path("jobs/recipes"), Path("sweeps")))]
        return next((_SHIPPED / name for name in names if (_SHIPPED / name).is_file()), path)
    return path


Options = Mapping[str, str]
"""Fields of a recipe that are options, each with the name of its default variant.

`objectaware.config.variants.default_names` returns them for a model. In a recipe `method: moco` stands for
`method: {name: moco}`. Fields that override an option belong to the variant that is named with them.
"""

NO_OPTIONS: Options = {}


def read_recipe(path: Path, options: Options = NO_OPTIONS) -> dict[str, object]:
    """Read a YAML recipe, and merge it with the recipe that it names as its `base`.

    A base is a path relative to the recipe's folder. The recipe's own values replace the values of the base. Mappings,
    such as `execution`, are merged field by field.

    Args:
        path: Path or name of the recipe, as for `find_recipe`.
        options: Fields that are options.

    Returns:
        The fields, without `base`; options as mappings.

    Raises:
        InputError: There is no such file, it is not a YAML mapping, or its base has a base.
    """
    path = find_recipe(path)
    recipe = _read_mapping(path)
    base = recipe.pop("base", None)
    if base is None:
        return spelt_out(recipe, options)
    if not isinstance(base, str):
        raise InputError("base", base, "is not a path", "Name one recipe, relative to the folder of this one.")
    below = _read_mapping(path.parent / base)
    if "base" in below:
        # With only one level, a reader finds all fields of a recipe in two files.
        raise InputError("base", base, "names a base itself", "Name a recipe that stands alone.")
    return merged(below, recipe, options)


def spelt_out(recipe: Mapping[str, object], options: Options = NO_OPTIONS) -> dict[str, object]:
    """Return the recipe with each option that is only a name written as a mapping, such as `{name: moco}`."""
    names = [field for field, value in recipe.items() if field in options and isinstance(value, str)]
    return {**recipe, **{field: {"name": recipe[field]} for field in names}}


def merged(
    below: Mapping[str, object], above: Mapping[str, object], options: Options = NO_OPTIONS
) -> dict[str, object]:
    """Override fields with others. Mappings are merged field by field, unless they are two variants of an option.

    Args:
        below: Fields of a recipe.
        above: Fields that override them.
        options: Fields that are options.
    """
    result = spelt_out(below, options)
    for field, value in spelt_out(above, options).items():
        under = result.get(field)
        if isinstance(under, dict) and isinstance(value, dict):
            # Fields of an option that name no variant belong to the variant below.
            variant = under.get("name", options.get(field))
            if field not in options or value.get("name", variant) == variant:
                value = merged(under, value)
        result[field] = value
    return result


def _read_mapping(path: Path) -> dict[str, object]:
    if look_at(path, field="recipe") is None:
        remedy = "Give a YAML file, or the name of one that comes with the package, such as moco_resnet18_folder."
        raise InputError("recipe", str(path), "does not exist", remedy)
    content = read_yaml(path, field="recipe")
    if not isinstance(content, dict):
        raise InputError("recipe", str(path), "is not a mapping of fields", "Write `field: value` lines.")
    return content


def read_yaml(path: Path, *, field: str) -> object:
    """Read a YAML file of plain values.

    Args:
        path: The file.
        field: Name of the file in messages.

    Raises:
        InputError: The file is longer than a megabyte, cannot be read or is not text, or `parse_yaml` refuses it.
    """
    try:
        size = path.stat().st_size
        if size > _MAX_BYTES:
            problem = f"has {size} bytes, more than the {_MAX_BYTES} that a YAML file may have"
            raise InputError(field, path, problem, "Give another file.")
        text = path.read_bytes().decode()
    except OSError as error:
        raise InputError(field, path, f"cannot be read ({system_reason(error)})", "Give a YAML file.") from error
    except UnicodeDecodeError as error:
        raise InputError(field, path, f"is not text ({error})", "Give a YAML file.") from error
    return parse_yaml(text, field=field, source=path)


def parse_yaml(text: str, *, field: str, source: object) -> object:
    """Parse a YAML document of plain values, without running anything in it.

    Args:
        text: The document.
        field: Name of the document in messages.
        source: Origin of the document, for messages.

    Returns:
        The value; None if the document is empty.

    Raises:
        InputError: The document is not YAML, contains other than plain values, or is nested deeper than Python can
            follow; or its aliases contain themselves or stand for several megabytes.
    """
    try:
        node = yaml.compose(text, yaml.SafeLoader)
        if node is None:
            return None
        # Before the construction, since merging mappings copies them.
        if _expanded_size(node, {}) > _MAX_EXPANDED:
            problem = f"has aliases that stand for more than {_MAX_EXPANDED} characters"
            raise InputError(field, source, problem, "Write the values out.")
        return yaml.SafeLoader("").construct_document(node)
    except yaml.YAMLError as error:
        raise InputError(field, source, f"is not YAML ({error})", "Correct it.") from error
    except RecursionError as error:
        raise InputError(field, source, "is nested too deeply", "Write fewer levels.") from error


def _expanded_size(node: yaml.Node, known: dict[yaml.Node, float]) -> float:
    """Count the characters of a node with all aliases written out, plus one per value; infinite if it holds itself."""
    if node not in known:
        known[node] = math.inf  # until the size is known: a node that is met inside itself is endless
        if isinstance(node, yaml.ScalarNode):
            size = float(len(node.value))
        else:
            parts = chain.from_iterable(node.value) if isinstance(node, yaml.MappingNode) else node.value
            size = sum(_expanded_size(part, known) for part in parts)
        known[node] = 1 + size
    return known[node]


def override(recipe: dict[str, object], arguments: list[str], options: Options = NO_OPTIONS) -> dict[str, object]:
    """Override fields of a recipe by `--field value` pairs. Dots reach into nested fields; values are YAML.

    Args:
        recipe: Fields of the recipe, changed in place.
        arguments: The pairs. Pairs that name the variant of an option are applied first, wherever they stand.
        options: Fields that are options.

    Raises:
        InputError: The arguments are not such pairs, or a value is not YAML.
    """
    if len(arguments) % 2 or any(not name.startswith("--") for name in arguments[::2]):
        raise InputError("arguments", " ".join(arguments), "are not pairs", "Write --field value, such as --seed 1.")
    recipe.update(spelt_out(recipe, options))
    pairs = zip(arguments[::2], arguments[1::2], strict=True)
    # A variant's name that came after a field of the variant would drop that field again.
    for name, text in sorted(pairs, key=lambda pair: "." in pair[0] and not pair[0].endswith(".name")):
        path = name.removeprefix("--").replace("-", "_").split(".")
        lay(recipe, path, parse_yaml(text, field=name, source=text), options, shown=("arguments", name))
    return recipe


def lay(
    fields: dict[str, object],
    path: Sequence[str],
    value: object,
    options: Options = NO_OPTIONS,
    *,
    shown: tuple[str, str],
) -> None:
    """Set one field of a recipe, in place. Choosing another variant of an option drops the previous variant's fields.

    Args:
        fields: Fields of the recipe, options as mappings.
        path: Names that lead to the field.
        value: Value of the field. Naming the variant that an option has already leaves the variant's fields unchanged.
        options: Fields that are options.
        shown: Field and value of the error message, should there be one.

    Raises:
        InputError: The path leads through a single value.
    """
    if path[0] in options and (path[1:] == ["name"] or (len(path) == 1 and isinstance(value, str))):
        fields.update(merged(fields, {path[0]: {"name": value}}, options))
        return
    *parents, field = path
    place: dict[str, object] = fields
    for parent in parents:
        inner = place.setdefault(parent, {})
        if not isinstance(inner, dict):
            raise InputError(*shown, f"reaches into {parent}, which is a single value", "Drop the dot.")
        place = inner
    place[field] = value


def split_overrides(arguments: list[str], own: Mapping[str, object]) -> tuple[list[str], list[str]]:
    """Separate a command's own arguments from the overrides of its recipe.

    Args:
        arguments: All arguments.
        own: Default values of the command's own options, by name. An option that is true or false stands alone. One
            whose default is a tuple is followed by all words up to the next option, any other by one word.

    Returns:
        The command's own arguments, and the overrides.

    Raises:
        InputError: No word follows an option that takes several.
    """
    known: list[str] = []
    overrides: list[str] = []
    place = 0
    while place < len(arguments):
        word, following = arguments[place], arguments[place + 1 :]
        name, equals, _ = word.removeprefix("--").replace("-", "_").partition("=")
        is_own = not word.startswith("--") or name in own
        num_values = 1
        if not word.startswith("--") or isinstance(own.get(name), bool) or (is_own and equals):
            num_values = 0
        elif isinstance(own.get(name), tuple):
            num_values = next((n for n, one in enumerate(following) if one.startswith("--")), len(following))
            if not num_values:
                raise InputError("arguments", word, "is followed by nothing", f"Write {word} and its value.")
        (known if is_own else overrides).extend([word, *following[:num_values]])
        place += 1 + num_values
    return known, overrides
