"""The command line: it parses, calls one function and prints. Heavy imports stay inside the commands."""

from __future__ import annotations

import os
import select
import sys
import traceback
from collections.abc import Callable, Sequence

from objectaware.errors import ExplainedError, InputError, is_explained, is_full_disk, is_refused_path, system_reason
from objectaware.process import relax_collector


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        arguments: Arguments after `objectaware`. By default those of this process.

    Returns:
        Exit status: 0 done, 1 failed, 2 the input was refused, 130 interrupted. A failure with a known reason (a full
        disk, a stage that another command computes, a training that diverged) is reported in one line, any other with
        its traceback.
    """
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if not arguments or arguments[0] in ("-h", "--help", "help"):
            from objectaware.commands.registry import usage_text

            print(usage_text(), flush=True)
            return 0 if arguments else 2
        if arguments[0] == "--version":
            from objectaware import __version__

            print(f"objectaware {__version__}", flush=True)
            return 0
        relax_collector()
        parse, words = _find_command(arguments)
        command = parse(f"objectaware {' '.join(words)}", arguments[len(words) :])
        command()
        sys.stdout.flush()
    except InputError as error:
        return _failed(error, status=2)
    except ExplainedError as error:
        if error.__cause__ is not None and not is_explained(error.__cause__):
            traceback.print_exception(error.__cause__)
        return _failed(error)
    except OSError as error:
        if isinstance(error, BrokenPipeError) and _is_reader_gone():
            return 1
        if is_refused_path(error):
            place = "" if error.filename is None else f"{os.fspath(error.filename)}: "
            return _failed(f"{place}{system_reason(error)}. Give another path, or the right to it.", status=2)
        if is_full_disk(error):
            return _failed(f"{error}. Make room there, then run the same command again: it resumes.")
        return _failed_unexpectedly(error)
    except MemoryError as error:
        reason = f"out of memory: {error}" if str(error) else "out of memory"
        return _failed(f"{reason}. Run the same command again: it resumes.")
    except KeyboardInterrupt:
        print("\nobjectaware: interrupted. Run the same command again: it resumes.", file=sys.stderr)
        return 130
    except Exception as error:
        return _failed_unexpectedly(error)
    return 0


def _failed(reason: object, *, status: int = 1) -> int:
    print(f"objectaware: {reason}", file=sys.stderr)
    return status


def _failed_unexpectedly(error: Exception) -> int:
    traceback.print_exception(error)
    # Repeat the message: a worker's traceback follows it, and readers look at the end of a job's log.
    return _failed(f"{type(error).__name__}: {error}")


def _is_reader_gone() -> bool:
    """Return whether the reader of what is printed, such as `head`, has ended. If so, print nothing more."""
    printed = select.poll()
    printed.register(sys.stdout, 0)
    if not any(event & select.POLLERR for _, event in printed.poll(0)):
        return False
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes once more when it exits
    return True


def _find_command(arguments: list[str]) -> tuple[Callable[[str, list[str]], Callable[[], None]], list[str]]:
    """Return the parser of the command that the first words name, and those words."""
    from objectaware.commands.registry import all_subcommands

    subcommands = all_subcommands()
    for length in (3, 2, 1):
        words = arguments[:length]
        found = subcommands.get(" ".join(words))
        if found is not None:
            return found.parse, words
    known = [name for name in subcommands if name.split()[0] == arguments[0]]
    if known:
        remedy = f"Use one of: {', '.join(known)}."
        raise InputError("command", " ".join(arguments[:2]), "is not complete or not known", remedy)
    raise InputError("command", arguments[0], "is not known", "objectaware --help lists the commands.")


if __name__ == "__main__":
    sys.exit(run())
