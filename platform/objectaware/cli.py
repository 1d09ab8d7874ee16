"""The command line: parses, calls one function, prints. Heavy imports stay inside the commands."""

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

_USAGE = """\
objectaware: object-aware contrastive learning

  objectaware demo                      the whole pipeline on the embedded scenes, on a CPU, in minutes
  objectaware pretrain RECIPE [--key value …]
  objectaware localize IMAGES --checkpoint C --out OUT
  objectaware evaluate linear|background|shift|knn|few-shot|class-distance|losses|localization|localizers|detection …
  objectaware sweep sweeps/NAME.yaml    a study for every combination of parameters' values, compared with the paper
  objectaware reproduce list            the paper's tables and figures, and which can run with the data at hand
  objectaware reproduce show TABLE      a table of the paper
  objectaware reproduce TABLE|figure:LABEL [--plan] [--scale smoke|full]
  objectaware plan measure --out FILE   what this machine takes for each kind of work
  objectaware plan show --rates FILE --images N [--gpus G] [--cpus C]   how long stages take, and what they wait for
  objectaware data list [ROOT]          the layouts of data sets, or what a folder holds
  objectaware data check NAME           whether a published data set is whole, and where to get it
  objectaware data build scenes --out DIR
  objectaware data build imagenet9 IMAGENET --out DIR
  objectaware data subset ROOT --fraction F --out FILE
  objectaware data pack ROOT --out URI  shards that training streams from any store
  objectaware export backbone|detectron2|detector CHECKPOINT --out FILE
  objectaware export boxes|masks STORE --out OUT
  objectaware runs list|show|compare|prune   what was made from what, in the storage and in MLflow
  objectaware submit [--address URL] -- COMMAND …   the same command as a Ray job
  objectaware ui                        the MLflow UI on the store in use
  objectaware doctor                    what of the above would work here, and what to do about the rest

Every command takes --help."""


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the command line and exits: 0 done, 2 the input was refused, 130 interrupted, 1 anything else."""
    try:
        status = run(list(sys.argv[1:] if argv is None else argv))
    except Exception as error:
        traceback.print_exc()
        # Once more, since a worker's traceback stands below the message; the end of a job's log is what is read.
        print(f"objectaware: {type(error).__name__}: {error}", file=sys.stderr)
        status = 1
    sys.exit(status)


def run(arguments: list[str]) -> int:
    """Runs one command.

    Args:
        arguments: What follows `objectaware`.

    Returns:
        Exit status: 0 done, 1 failed for a reason that is told in a line (a full disk, a stage that another command
        computes, a training that diverged), 2 the input was refused, 130 interrupted; other errors are raised.
    """
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(_USAGE)
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
    """An error's message behind a colon, where it has one."""
    return f": {error}" if str(error) else ""


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


if __name__ == "__main__":
    main()
