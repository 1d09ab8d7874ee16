"""The command line: parses, calls one function, prints. Heavy imports stay inside the commands."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from objectaware.errors import InputError

_USAGE = """\
objectaware: object-aware contrastive learning

  objectaware demo                      the whole pipeline on the embedded scenes, on a CPU, in minutes
  objectaware pretrain RECIPE [--key value …]
  objectaware localize IMAGES --checkpoint C --out OUT
  objectaware evaluate linear|background|localization …
  objectaware data build scenes --out DIR
  objectaware ui                        the MLflow UI on the store in use

Every command takes --help."""


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the command line and exits: 0 done, 2 the input was refused, 1 anything else."""
    sys.exit(run(list(sys.argv[1:] if argv is None else argv)))


def run(arguments: list[str]) -> int:
    """Runs one command.

    Args:
        arguments: What follows `objectaware`.

    Returns:
        Exit status: 0 done, 2 the user's input was refused, 130 interrupted; other errors are raised.
    """
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(_USAGE)
        return 0 if arguments else 2
    if arguments[0] == "--version":
        from objectaware import __version__

        print(f"objectaware {__version__}")
        return 0
    try:
        command, words = _find_command(arguments)
        command(f"objectaware {' '.join(words)}", arguments[len(words) :])
    except InputError as error:
        print(f"objectaware: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nobjectaware: interrupted. The same command goes on from here.", file=sys.stderr)
        return 130
    return 0


def _find_command(arguments: list[str]) -> tuple[Callable[[str, list[str]], None], list[str]]:
    """Finds the command that the first words name, and those words."""
    from objectaware import commands

    for length in (3, 2, 1):
        words = arguments[:length]
        command = commands.COMMANDS.get(" ".join(words))
        if command is not None:
            return command, words
    known = sorted(name for name in commands.COMMANDS if name.split()[0] == arguments[0])
    if known:
        remedy = f"Use one of: {', '.join(known)}."
        raise InputError("command", " ".join(arguments[:2]), "is not complete or not known", remedy)
    raise InputError("command", arguments[0], "is not known", "objectaware --help lists the commands.")


def read_recipe(path: Path) -> dict[str, object]:
    """Reads a YAML recipe.

    Raises:
        InputError: There is no such file, or it is not a mapping in YAML.
    """
    import yaml

    if not path.is_file():
        raise InputError("recipe", str(path), "does not exist", "Give a YAML file such as those in jobs/recipes.")
    try:
        content = yaml.safe_load(path.read_text())
    except yaml.YAMLError as error:
        raise InputError("recipe", str(path), f"is not YAML ({error})", "Mend the file.") from error
    if not isinstance(content, dict):
        raise InputError("recipe", str(path), "is not a mapping of fields", "Write `field: value` lines.")
    return content


def override(recipe: dict[str, object], arguments: list[str]) -> dict[str, object]:
    """Lays `--field value` pairs over a recipe; dots reach into nested fields, values are YAML.

    Raises:
        InputError: The arguments are no such pairs.
    """
    import yaml

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
        place[field] = yaml.safe_load(text)
    return recipe


if __name__ == "__main__":
    main()
