"""The subcommands of `objectaware`. Each is registered by `@subcommand` at its function.

A kind of stage needs no subcommand of its own: schema.json lists the words that run it by a recipe. A subcommand with
the same words takes other arguments.
"""

from __future__ import annotations

import importlib
import pkgutil
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

Function = Callable[[str, list[str]], None]
"""Function that takes the program's name, for messages, and the arguments that follow the command's words."""


@dataclass(frozen=True)
class Subcommand:
    """A subcommand.

    Attributes:
        run: Function that runs it.
        usage: Its arguments, as `objectaware --help` shows them.
        meaning: One line that says what it does.
    """

    run: Function
    usage: str
    meaning: str


_SUBCOMMANDS: dict[str, Subcommand] = {}


def subcommand(words: str, usage: str, meaning: str) -> Callable[[Function], Function]:
    """Register a function as a subcommand.

    Args:
        words: Words after `objectaware`, such as `export boxes`.
        usage: Its arguments, as `objectaware --help` shows them.
        meaning: One line that says what it does.
    """

    def register(function: Function) -> Function:
        assert words not in _SUBCOMMANDS, f"{words} is registered twice"
        _SUBCOMMANDS[words] = Subcommand(function, usage, meaning)
        return function

    return register


def all_subcommands() -> dict[str, Subcommand]:
    """Return every subcommand by its words, sorted by words."""
    from objectaware import commands
    from objectaware.commands.common import run_recipe
    from objectaware.commands.fields import described_stages

    for module in pkgutil.iter_modules(commands.__path__):
        importlib.import_module(f"{commands.__name__}.{module.name}")
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
