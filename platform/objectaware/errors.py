"""Errors whose message says all that the user needs."""

from __future__ import annotations

import errno

# What the system says of a path that the user has to change.
_REFUSALS = frozenset(
    [
        *(errno.EACCES, errno.EPERM, errno.EROFS),
        *(errno.EEXIST, errno.ENOTDIR, errno.EISDIR),
        *(errno.ELOOP, errno.ENAMETOOLONG),
    ]
)


class ExplainedError(RuntimeError):
    """Something went wrong for a reason that the message gives.

    The command line turns it into that message and exit status 1, without a traceback but for that of a cause that is
    not explained itself.
    """


class InputError(ValueError):
    """The user's input was refused.

    The command line turns it into one message and exit status 2, without a traceback.

    Args:
        field: Name of the setting, argument or file that was refused.
        value: What was given.
        problem: What is wrong with it, as a clause without a full stop.
        remedy: What to do instead, as a sentence.

    Example:
        >>> raise InputError("temperature", -1, "must be positive", "Give a value such as 0.2.")
        Traceback (most recent call last):
        objectaware.errors.InputError: temperature = -1: must be positive. Give a value such as 0.2.
    """

    def __init__(self, field: str, value: object, problem: str, remedy: str) -> None:
        self.field = field
        self.value = value
        self.problem = problem
        self.remedy = remedy
        super().__init__(f"{field} = {value}: {problem}. {remedy}")

    def __reduce__(self) -> tuple[type[InputError], tuple[str, object, str, str]]:
        # Ray carries errors between processes by pickling; the default would call __init__ with the message alone.
        return type(self), (self.field, self.value, self.problem, self.remedy)


def is_explained(error: BaseException) -> bool:
    """Whether an error's message says all: one of the above, that a disk is full, or that a path is refused."""
    return isinstance(error, InputError | ExplainedError) or is_full_disk(error) or is_refused_path(error)


def is_full_disk(error: BaseException) -> bool:
    """Whether there was no room for a file, or none that this user may take."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def is_refused_path(error: BaseException) -> bool:
    """Whether the system refused a path: no right to it, a file in place of a folder or the reverse, or its name."""
    return isinstance(error, OSError) and error.errno in _REFUSALS


def system_reason(error: Exception) -> str:
    """Say in one line why the system refused a path, without the path, which the message names itself."""
    return getattr(error, "strerror", None) or one_line(error)


def one_line(error: Exception) -> str:
    """Return an error's message in one line, or the name of its type where it has none."""
    return " ".join(str(error).split()) or type(error).__name__
