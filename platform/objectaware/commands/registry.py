"""The subcommands of `objectaware`. Each is registered by `@command` at its function.

A kind of stage needs no subcommand of its own: schema.json lists the words that run it by a recipe. A subcommand with
the same words takes other arguments.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, is_dataclass
from functools import partial, wraps
from typing import Any, TypeVar

import tyro

from objectaware.commands.fields import described_stages, format_fields
from objectaware.process import import_modules
from objectaware.recipes import split_overrides

Command = TypeVar("Command", bound=Callable[..., None])
Result = TypeVar("Result")
OVERRIDABLE = "Fields of the recipe, each overridden by --FIELD VALUE:"


@dataclass(frozen=True)
class Subcommand:
    """A subcommand.

    Attributes:
        parse: Function that takes the program's name, for messages, and the arguments that follow the command's words.
            It returns the call that runs the command.
        usage: Its arguments, as `objectaware --help` shows them.
        meaning: One line that says what it does.
    """

    parse: Callable[[str, list[str]], Callable[[], None]]
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
        _SUBCOMMANDS[words] = Subcommand(partial(parsed, function, models, title), usage, meaning)
        return function

    return register


def parsed(
    function: Callable[..., Result],
    models: Sequence[str],
    title: str,
    program: str,
    arguments: list[str],
    *,
    description: str | None = None,
) -> Callable[[], Result]:
    """Return the call of a function with the arguments of a command; see `command`.

    The caller calls it, so that parsing has ended before a command begins.

    Args:
        function: The function.
        models: Names of the models whose fields --help lists.
        title: Line above the fields.
        program: Name of the command.
        arguments: Arguments that follow the name.
        description: Description of the command for --help. By default the function's docstring.
    """

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Callable[[], Result]:  # noqa: ANN401 - whatever the function takes
        return partial(function, *args, **kwargs)

    takes: Callable[..., Callable[[], Result]] = call
    parameters = inspect.signature(function).parameters
    if "overrides" in parameters:
        arguments, overrides = split_overrides(arguments, _own_options(parameters.values()))
        takes = partial(call, overrides)
    elif "words" in parameters:
        place = arguments.index("--") if "--" in arguments else len(arguments)
        takes, arguments = partial(call, arguments[place + 1 :]), arguments[:place]
    try:
        return tyro.cli(takes, prog=program, description=description, args=arguments)
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
    from objectaware.commands.common import stage_command

    import_modules("objectaware.commands")
    found = dict(_SUBCOMMANDS)
    for kind, described in described_stages().items():
        if described["command"] not in found:
            parse = partial(stage_command, kind)
            found[described["command"]] = Subcommand(parse, "RECIPE [--key value …]", described["summary"])
    return dict(sorted(found.items()))


def usage_text() -> str:
    """Return the text of `objectaware --help`."""
    lines = ["objectaware: object-aware contrastive learning", ""]
    for words, one in all_subcommands().items():
        lines.append(f"  objectaware {words} {one.usage}".rstrip())
        lines += textwrap.wrap(one.meaning, 100, initial_indent=" " * 6, subsequent_indent=" " * 6)
    return "\n".join([*lines, "", "Every command takes --help."])
