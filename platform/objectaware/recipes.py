"""Recipes: YAML files, and what the command line lays over them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from objectaware.data.user_files import look_at
from objectaware.errors import InputError
from objectaware.plain_yaml import parse_yaml, read_yaml

_SHIPPED = Path(__file__).parent / "shipped"
"""Copies of the repository's `jobs/recipes` and `sweeps` in an installed package, links to them in a clone."""


def find_recipe(path: Path) -> Path:
    """Finds a recipe or sweep: a file of the user's, or else one that comes with the package.

    Args:
        path: Where the file is. A file that comes with the package also goes by its path in the repository
            (`jobs/recipes/linear_in9.yaml`) and by its name (`linear_in9`).

    Returns:
        The path of the file; the given one where there is no such file.
    """
    if path.name and not path.is_file() and not path.is_absolute() and ".." not in path.parts:
        names = [path, *(folder / path.with_suffix(".yaml") for folder in (Path("jobs/recipes"), Path("sweeps")))]
        return next((_SHIPPED / name for name in names if (_SHIPPED / name).is_file()), path)
    return path


Options = Mapping[str, str]
"""Fields of a recipe that are options, with the name of the variant that is the default.

What `objectaware.config.variants.default_names` gives of a model. In a recipe `method: moco` stands for
`method: {name: moco}`, and fields that are laid over an option belong to the variant that is named with them.
"""


def read_recipe(path: Path, options: Options | None = None) -> dict[str, object]:
    """Reads a YAML recipe, laid over the one that it names as its `base`.

    A base is a path relative to the recipe's folder. The recipe's own values replace the base's; mappings, such as
    `execution`, are merged field by field.

    Args:
        path: As `find_recipe` takes it.
        options: Fields that are options.

    Returns:
        The fields, without `base`; options as mappings.

    Raises:
        InputError: There is no such file, it is not a mapping in YAML, or its base has a base.
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
        # One level keeps all that a recipe says within two files.
        raise InputError("base", base, "names a base itself", "Name a recipe that stands alone.")
    return merged(below, recipe, options)


def spelt_out(recipe: Mapping[str, object], options: Options | None = None) -> dict[str, object]:
    """Returns the recipe with `{name: moco}` for each option that is a name alone."""
    names = options or {}
    return {
        field: {"name": value} if field in names and isinstance(value, str) else value
        for field, value in recipe.items()
    }


def merged(
    below: Mapping[str, object], above: Mapping[str, object], options: Options | None = None
) -> dict[str, object]:
    """Lays fields over others; mappings are merged field by field, unless they are of two variants of an option.

    Args:
        below: Fields of a recipe.
        above: Fields that are laid over them.
        options: Fields that are options.
    """
    result = spelt_out(below, options)
    for field, value in spelt_out(above, options).items():
        under = result.get(field)
        if not (isinstance(under, dict) and isinstance(value, dict)):
            result[field] = value
        elif options is None or field not in options or _same_variant(under, value, options[field]):
            result[field] = merged(under, value)
        else:
            result[field] = value
    return result


def _same_variant(under: Mapping[str, object], over: Mapping[str, object], default: str) -> bool:
    """Whether fields of an option are of the variant of the fields below: they name it too, or none."""
    return "name" not in over or over["name"] == under.get("name", default)


def _read_mapping(path: Path) -> dict[str, object]:
    if look_at(path, field="recipe") is None:
        remedy = "Give a YAML file, or the name of one that comes with the package, such as moco_resnet18_folder."
        raise InputError("recipe", str(path), "does not exist", remedy)
    content = read_yaml(path, field="recipe")
    if not isinstance(content, dict):
        raise InputError("recipe", str(path), "is not a mapping of fields", "Write `field: value` lines.")
    return content


def override(recipe: dict[str, object], arguments: list[str], options: Options | None = None) -> dict[str, object]:
    """Lays `--field value` pairs over a recipe; dots reach into nested fields, values are YAML.

    Args:
        recipe: Its fields, changed in place.
        arguments: The pairs. Those of an option's name are laid first, wherever they stand.
        options: Fields that are options.

    Raises:
        InputError: The arguments are no such pairs, or a value is not YAML.
    """
    if len(arguments) % 2 or any(not name.startswith("--") for name in arguments[::2]):
        raise InputError("arguments", " ".join(arguments), "are not pairs", "Write --field value, such as --seed 1.")
    recipe.update(spelt_out(recipe, options))
    # A field of a variant would be dropped again where the variant's name followed it.
    for name, text in sorted(zip(arguments[::2], arguments[1::2], strict=True), key=lambda pair: _is_below(pair[0])):
        path = name.removeprefix("--").replace("-", "_").split(".")
        lay(recipe, path, parse_yaml(text, field=name, source=text), options, shown=("arguments", name))
    return recipe


def _is_below(name: str) -> bool:
    return "." in name and not name.endswith(".name")


def lay(
    fields: dict[str, object],
    path: Sequence[str],
    value: object,
    options: Options | None = None,
    *,
    shown: tuple[str, str],
) -> None:
    """Sets one field of a recipe, in place. Another variant of an option drops the fields of the one before.

    Args:
        fields: Of the recipe, options as mappings.
        path: Names that lead to the field.
        value: Its value. The name of the variant that an option has already leaves the variant's fields as they are.
        options: Fields that are options.
        shown: What is set and where, for messages.

    Raises:
        InputError: The path leads through a single value.
    """
    names = options or {}
    if path[0] in names and (path[1:] == ["name"] or (len(path) == 1 and isinstance(value, str))):
        fields.update(merged(fields, {path[0]: {"name": value}}, names))
        return
    *parents, field = path
    place: dict[str, object] = fields
    for parent in parents:
        inner = place.setdefault(parent, {})
        if not isinstance(inner, dict):
            raise InputError(*shown, f"reaches into {parent}, which is a single value", "Drop the dot.")
        place = inner
    place[field] = value


def split_overrides(
    arguments: list[str], *, flags: Collection[str], options: Collection[str]
) -> tuple[list[str], list[str]]:
    """Parts a command's own arguments from the overrides of its recipe.

    Args:
        arguments: All of them.
        flags: The command's own names that stand alone.
        options: The command's own names that a value follows.

    Returns:
        The command's own, and the overrides.
    """
    known: list[str] = []
    overrides: list[str] = []
    waiting = list(arguments)
    while waiting:
        word = waiting.pop(0)
        is_own = word in flags or word.partition("=")[0] in options or not word.startswith("--")
        target = known if is_own else overrides
        target.append(word)
        if waiting and (word in options or not is_own):
            target.append(waiting.pop(0))
    return known, overrides
