"""Errors whose message says everything that the user needs, and the findings of `objectaware doctor`."""

from __future__ import annotations

import errno
from dataclasses import dataclass
from typing import Literal

# The system reports these errors for a path that the user has to change.
_NO_RIGHT = {errno.EACCES, errno.EPERM, errno.EROFS}
_BAD_PATH = {errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG}


class ExplainedError(RuntimeError):
    """An error whose message gives the reason.

    The command line turns it into that message and exit status 1. It prints a traceback only for a cause that is not
    explained itself.
    """


class InputError(ValueError):
    """An error for input of the user that was refused.

    The command line turns it into one message and exit status 2, without a traceback.

    Args:
        field: Name of the setting, argument or file that was refused.
        value: Value that was given.
        problem: The problem with the value, as a clause without a full stop.
        remedy: The remedy, as a sentence.

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


@dataclass(frozen=True)
class Finding:
    """The outcome of one check of `objectaware doctor`.

    Attributes:
        name: Name of the check.
        state: `ok`; `limited`, works only slowly or in part; `broken`, nothing works until it is repaired;
            `not checked`, cannot be checked from here.
        found: Result of the check, as text.
        remedy: What the user should do; empty if there is nothing to do.
    """

    name: str
    state: Literal["ok", "limited", "broken", "not checked"]
    found: str
    remedy: str = ""


def is_explained(error: BaseException) -> bool:
    """Return whether an error's message is enough: for the errors above, a full disk and a refused path."""
    return isinstance(error, InputError | ExplainedError) or is_full_disk(error) or is_refused_path(error)


def is_full_disk(error: BaseException) -> bool:
    """Return whether the disk, or this user's quota of it, had no room for a file."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def is_refused_path(error: BaseException) -> bool:
    """Return whether the system refused a path: no permission, a file instead of a folder or vice versa, a bad name."""
    return isinstance(error, OSError) and error.errno in _NO_RIGHT | _BAD_PATH


def system_reason(error: Exception) -> str:
    """Return one line that says why the system refused a path. The caller's message names the path."""
    return getattr(error, "strerror", None) or one_line(error)


def one_line(error: Exception) -> str:
    """Return an error's message in one line, or the name of its type if it has no message."""
    return " ".join(str(error).split()) or type(error).__name__
