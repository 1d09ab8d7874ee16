"""Recipes: YAML files, and what the command line lays over them."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from objectaware.data.places import look_at
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


def read_recipe(path: Path) -> dict[str, object]:
    """Reads a YAML recipe, laid over the one that it names as its `base`.

    A base is a path relative to the recipe's folder. The recipe's own values replace the base's; mappings, such as
    `execution`, are merged field by field.

    Args:
        path: As `find_recipe` takes it.

    Returns:
        The fields, without `base`.

    Raises:
        InputError: There is no such file, it is not a mapping in YAML, or its base has a base.
    """
    path = find_recipe(path)
    recipe = _read_mapping(path)
    base = recipe.pop("base", None)
    if base is None:
        return recipe
    if not isinstance(base, str):
        raise InputError("base", base, "is not a path", "Name one recipe, relative to the folder of this one.")
    below = _read_mapping(path.parent / base)
    if "base" in below:
        # One level keeps all that a recipe says within two files.
        raise InputError("base", base, "names a base itself", "Name a recipe that stands alone.")
    return merged(below, recipe)


def merged(below: dict[str, object], above: dict[str, object]) -> dict[str, object]:
    """Lays fields over others; mappings are merged field by field."""
    result = dict(below)
    for field, value in above.items():
        under = result.get(field)
        result[field] = merged(under, value) if isinstance(under, dict) and isinstance(value, dict) else value
    return result


def _read_mapping(path: Path) -> dict[str, object]:
    if look_at(path, field="recipe") is None:
        remedy = "Give a YAML file, or the name of one that comes with the package, such as moco_resnet18_folder."
        raise InputError("recipe", str(path), "does not exist", remedy)
    content = read_yaml(path, field="recipe")
    if not isinstance(content, dict):
        raise InputError("recipe", str(path), "is not a mapping of fields", "Write `field: value` lines.")
    return content


def override(recipe: dict[str, object], arguments: list[str]) -> dict[str, object]:
    """Lays `--field value` pairs over a recipe; dots reach into nested fields, values are YAML.

    Raises:
        InputError: The arguments are no such pairs, or a value is not YAML.
    """
    if len(arguments) % 2 or any(not name.startswith("--") for name in arguments[::2]):
        raise InputError("arguments", " ".join(arguments), "are not pairs", "Write --field value, such as --seed 1.")
    for name, text in zip(arguments[::2], arguments[1::2], strict=True):
        *parents, field = name.removeprefix("--").replace("-", "_").split(".")
        place: dict[str, object] = recipe
        for parent in parents:
            inner = place.setdefault(parent, {})
            if not isinstance(inner, dict):
                raise InputError("arguments", name, f"reaches into {parent}, which is a single value", "Drop the dot.")
            place = inner
        place[field] = parse_yaml(text, field=name, source=text)
    return recipe


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
        is_own = word in flags or word in options or not word.startswith("--")
        target = known if is_own else overrides
        target.append(word)
        if waiting and (word in options or not is_own):
            target.append(waiting.pop(0))
    return known, overrides
