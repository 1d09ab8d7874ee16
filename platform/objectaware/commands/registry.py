"""The subcommands of `objectaware`. Each is registered by `@command` at its function.

A kind of stage needs no subcommand of its own: schema.json lists the words that run it by a recipe. A subcommand with
the same words takes other arguments.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, is_dataclass
from functools import partial
from typing import TypeVar

import tyro

from objectaware.commands.fields import described_stages, format_fields
from objectaware.process import import_modules
from objectaware.recipes import split_overrides

Command = TypeVar("Command", bound=Callable[..., None])
OVERRIDABLE = "Fields of the recipe, each overridden by --FIELD VALUE:"


@dataclass(frozen=True)
class Subcommand:
    """A subcommand.

    Attributes:
        run: Function that takes the program's name, for messages, and the arguments that follow the command's words.
        usage: Its arguments, as `objectaware --help` shows them.
        meaning: One line that says what it does.
    """

    run: Callable[[str, list[str]], None]
    usage: str
    meaning: str


_SUBCOMMANDS: dict[str, Subcommand] = {}


def command(
    words: str, usage: str, meaning: str, *models: str, title: str = OVERRIDABLE
) -> Callable[[Command], Command]:
    """Register a function as a subcommand whose arguments are the function's parameters.

    tyro parses the arguments by the parameters' types. --help shows the function's docstring, and then the fields of
    models. A function whose first parameter is `overrides` takes there the `--field value` pairs that override fields
    of its recipe. One whose first parameter is `words` takes there the words after `--`.

    Args:
        words: Words after `objectaware`, such as `export boxes`.
        usage: Its arguments, as `objectaware --help` shows them.
        meaning: One line that says what it does.
        models: Names of the models of configuration that the command's recipe follows.
        title: Line above their fields.
    """

    def register(function: Command) -> Command:
        assert words not in _SUBCOMMANDS, f"{words} is registered twice"
        _SUBCOMMANDS[words] = Subcommand(partial(run_function, function, models, title), usage, meaning)
        return function

    return register


def run_function(
    function: Callable[..., None],
    models: Sequence[str],
    title: str,
    program: str,
    arguments: list[str],
    *,
    description: str | None = None,
) -> None:
    """Call a function with the arguments of a command; see `command`.

    Args:
        function: The function.
        models: Names of the models whose fields --help lists.
        title: Line above the fields.
        program: Name of the command.
        arguments: Arguments that follow the name.
        description: Description of the command for --help. By default the function's docstring.
    """
    parameters = inspect.signature(function).parameters
    if "overrides" in parameters:
        arguments, overrides = split_overrides(arguments, _own_options(parameters.values()))
        function = partial(function, overrides)
    elif "words" in parameters:
        place = arguments.index("--") if "--" in arguments else len(arguments)
        function, arguments = partial(function, arguments[place + 1 :]), arguments[:place]
    try:
        tyro.cli(function, prog=program, description=description, args=arguments)
    except SystemExit as end:
        if models and end.code in (0, None) and not {"-h", "--help"}.isdisjoint(arguments):
            print("\n\n".join([title, *map(format_fields, models)]))
        raise


def _own_options(parameters: Iterable[inspect.Parameter]) -> dict[str, object]:
    """Return the default values of a command's own options by name, with --help."""
    own: dict[str, object] = {"help": False}
    for parameter in parameters:
        if is_dataclass(parameter.default):
            own |= vars(parameter.default)
        elif parameter.default is not parameter.empty:
            own[parameter.name] = parameter.default
    return own | {f"no_{name}": default for name, default in own.items() if isinstance(default, bool)}


def all_subcommands() -> dict[str, Subcommand]:
    """Return every subcommand by its words, sorted by words."""
    from objectaware.commands.common import run_recipe

    import_modules("objectaware.commands")
    found = dict(_SUBCOMMANDS)
    for kind, described in described_stages().items():
        if described["command"] not in found:
            run = partial(run_recipe, kind)
            found[described["command"]] = Subcommand(run, "RECIPE [--key value …]", described["summary"])
    return dict(sorted(found.items()))


def usage_text() -> str:
    """Return the text of `objectaware --help`."""
    lines = ["objectaware: object-aware contrastive learning", ""]
    for words, one in all_subcommands().items():
        lines.append(f"  objectaware {words} {one.usage}".rstrip())
        lines += textwrap.wrap(one.meaning, 100, initial_indent=" " * 6, subsequent_indent=" " * 6)
    return "\n".join([*lines, "", "Every command takes --help."])
