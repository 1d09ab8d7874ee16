"""The command line: it parses, calls one function and prints. Heavy imports stay inside the commands."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Sequence

from objectaware import collector
from objectaware.errors import (
    ExplainedError,
    InputError,
    is_explained,
    is_full_disk,
    is_refused_path,
    system_reason,
)


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line and exit: 0 done, 2 the input was refused, 130 interrupted, 1 anything else."""
    try:
        status = run(list(sys.argv[1:] if argv is None else argv))
    except Exception as error:
        traceback.print_exc()
        # Print the message again: a worker's traceback stands below the first one, and people read the end of a log.
        print(f"objectaware: {type(error).__name__}: {error}", file=sys.stderr)
        status = 1
    sys.exit(status)


def run(arguments: list[str]) -> int:
    """Run one command.

    Args:
        arguments: The words after `objectaware`.

    Returns:
        Exit status. 0: done. 1: failed for a reason that one line explains (a full disk, a stage that another command
        computes, a training that diverged). 2: the input was refused. 130: interrupted. Other errors are raised.
    """
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        from objectaware.commands.registry import usage_text

        print(usage_text())
        return 0 if arguments else 2
    if arguments[0] == "--version":
        from objectaware import __version__

        print(f"objectaware {__version__}")
        return 0
    collector.relax()
    try:
        command, words = _find_command(arguments)
        command(f"objectaware {' '.join(words)}", arguments[len(words) :])
    except InputError as error:
        print(f"objectaware: {error}", file=sys.stderr)
        return 2
    except ExplainedError as error:
        if error.__cause__ is not None and not is_explained(error.__cause__):
            traceback.print_exception(error.__cause__)
        print(f"objectaware: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        if is_refused_path(error):
            place = "" if error.filename is None else f"{os.fspath(error.filename)}: "
            print(
                f"objectaware: {place}{system_reason(error)}. Give another path, or the right to it.", file=sys.stderr
            )
            return 2
        if not is_full_disk(error):
            raise
        print(f"objectaware: {error}. Make room there; the same command goes on from here.", file=sys.stderr)
        return 1
    except MemoryError as error:
        print(f"objectaware: out of memory{_behind(error)}. The same command goes on from here.", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nobjectaware: interrupted. The same command goes on from here.", file=sys.stderr)
        return 130
    return 0


def _behind(error: Exception) -> str:
    """Return an error's message after a colon, or nothing if it has no message."""
    return f": {error}" if str(error) else ""


def _find_command(arguments: list[str]) -> tuple[Callable[[str, list[str]], None], list[str]]:
    """Return the command that the first words name, and those words."""
    from objectaware.commands.registry import all_subcommands

    subcommands = all_subcommands()
    for length in (3, 2, 1):
        words = arguments[:length]
        found = subcommands.get(" ".join(words))
        if found is not None:
            return found.run, words
    known = [name for name in subcommands if name.split()[0] == arguments[0]]
    if known:
        remedy = f"Use one of: {', '.join(known)}."
        raise InputError("command", " ".join(arguments[:2]), "is not complete or not known", remedy)
    raise InputError("command", arguments[0], "is not known", "objectaware --help lists the commands.")


if __name__ == "__main__":
    main()
