"""The user's files: look at paths, find the folder that a release unpacks to, and read the lists beside its images."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from objectaware.errors import InputError, system_reason

_WNID = re.compile(r"n\d{8}")
EXTRACTED = "Give the folder that the data set's archive was extracted to."
"""Remedy for a missing file, at the end of messages."""

_WRITE = "Give another path, or this user the right to write there."
_ACCESS = "Make it readable for this user, or give another path."


def look_at(path: str | Path, *, field: str) -> os.stat_result | None:
    """Return the state of a file or folder, or None where there is none.

    Args:
        path: The path.
        field: Name of the argument that the user gave, for the message.

    Raises:
        InputError: The system refuses to say: a folder above may not be entered, links lead in a circle, the name is
            too long, the disk fails.
    """
    try:
        return Path(path).stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:  # ValueError: a NUL character in the path
        raise InputError(field, path, f"cannot be looked at ({system_reason(error)})", _ACCESS) from error


def is_folder(path: str | Path, *, field: str) -> bool:
    """Tell whether there is a folder; raises as `look_at` does."""
    state = look_at(path, field=field)
    return state is not None and stat.S_ISDIR(state.st_mode)


def is_file(path: str | Path, *, field: str) -> bool:
    """Tell whether there is a file; raises as `look_at` does."""
    state = look_at(path, field=field)
    return state is not None and stat.S_ISREG(state.st_mode)


def require_writable_file(path: str | Path, *, field: str) -> None:
    """Refuse a place where no file can be written, before anything is computed for it.

    Args:
        path: The file, which may exist or not; folders above it come into being with it.
        field: Name of the argument that the user gave, for the message.

    Raises:
        InputError: It is a folder, or this user may not write there.
    """
    state = look_at(path, field=field)
    if state is None:
        _require_writable(Path(path).absolute().parent, path, field)
    elif stat.S_ISDIR(state.st_mode):
        raise InputError(field, path, "is a folder", "Give the name of a file.")
    elif not os.access(path, os.W_OK):
        raise InputError(field, path, "cannot be written to", _WRITE)


def require_writable_folder(path: str | Path, *, field: str) -> None:
    """Refuse a folder, which may exist or not, in which no file can be written; see `require_writable_file`."""
    state = look_at(path, field=field)
    if state is not None and not stat.S_ISDIR(state.st_mode):
        raise InputError(field, path, "is a file", "Give a folder that is new or may be written to.")
    _require_writable(Path(path).absolute(), path, field)


def _require_writable(folder: Path, path: str | Path, field: str) -> None:
    """Refuse a path where its folder, or the one that would hold it, does not take a file."""
    while look_at(folder, field=field) is None and folder != folder.parent:
        folder = folder.parent
    if not is_folder(folder, field=field):
        raise InputError(field, path, f"would lie in {folder}, which is a file", _WRITE)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InputError(field, path, f"cannot be written, since {folder} may not be written to", _WRITE)


def list_folder(folder: str | Path, *, field: str) -> list[os.DirEntry[str]]:
    """List the entries of a folder, in no order.

    Raises:
        InputError: The folder cannot be listed.
    """
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError as error:
        raise InputError(field, folder, f"cannot be listed ({system_reason(error)})", _ACCESS) from error


def subfolders(folder: str | Path, *, field: str) -> list[str]:
    """Name the folders in a folder, links to folders among them; hidden ones are left out, as are broken links.

    Raises:
        InputError: The folder cannot be listed, or it is not known whether an entry is a folder.
    """
    entries = [entry for entry in list_folder(folder, field=field) if not entry.name.startswith(".")]
    return [entry.name for entry in entries if _leads_to_folder(entry, field)]


def _leads_to_folder(entry: os.DirEntry[str], field: str) -> bool:
    try:
        return entry.is_dir()
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENAMETOOLONG):  # it leads nowhere
            return False
        raise InputError(field, entry.path, f"cannot be looked at ({system_reason(error)})", _ACCESS) from error


def find_place(field: str, root: str | Path, names: Sequence[str]) -> Path:
    """Take the first of several paths that is there.

    Args:
        field: Name of the data set, for the message.
        root: The user's folder.
        names: Paths below it, the published one first.

    Raises:
        InputError: None of them is there.
    """
    for name in names:
        if look_at(Path(root, name), field=field) is not None:
            return Path(root, name)
    raise InputError(field, root, f"holds no {_listed(root, names)}", EXTRACTED)


def find_wnid_folder(field: str, root: str | Path, names: Sequence[str]) -> Path:
    """Take the first of several folders that holds a folder named as a class of ImageNet.

    Args:
        field: Name of the data set, for the message.
        root: The user's folder.
        names: Paths below it, the published one first.

    Raises:
        InputError: None of them does.
    """
    for name in names:
        folder = Path(root, name)
        if is_folder(folder, field=field) and has_wnid_folders(folder, field=field):
            return folder
    raise missing_classes(field, root, names, "n01440764")


def has_wnid_folders(folder: Path, *, field: str) -> bool:
    """Tell whether a folder holds one that is named as a class of ImageNet is."""
    return any(_WNID.fullmatch(name) for name in subfolders(folder, field=field))


def missing_classes(field: str, root: str | Path, names: Sequence[str], class_name: str) -> InputError:
    """Make the refusal of folders none of which holds a class folder, with one of the classes as an example."""
    places = _listed(root, [str(Path(name, class_name)) for name in names])
    return InputError(field, root, f"holds no class folder such as {places}", EXTRACTED)


def _listed(root: str | Path, names: Sequence[str]) -> str:
    """List several paths, the first in full and the others as names."""
    others = f" (nor {', '.join(names[1:])})" if len(names) > 1 else ""
    return f"{Path(root, names[0])}{others}"


Value = TypeVar("Value")


def find_base(root: str | Path, folders: Sequence[str], needed: Sequence[str], *, field: str, remedy: str) -> Path:
    """Find a data set in the folder that the user gave, or in one that its archive unpacks to.

    Args:
        root: The folder that the user gave.
        folders: Where else it may lie, relative to `root`.
        needed: Files and folders that must be there; the first one identifies the data set.
        field: Name of the data set, for the message.
        remedy: The remedy, for the message.

    Returns:
        Its folder, absolute.

    Raises:
        InputError: It is in none of them, or something of it is missing.
    """
    places = [Path(root), *(Path(root, folder) for folder in folders)]
    base = next((place for place in places if look_at(place / needed[0], field=field) is not None), places[0])
    missing = [name for name in needed if look_at(base / name, field=field) is None]
    if missing:
        raise InputError(field, root, f"holds no {base / missing[0]}", remedy)
    return base.absolute()


def read_lines(path: Path, *, field: str, remedy: str) -> list[str]:
    """Read the lines of a list in UTF-8 without the empty ones. The last line needs no line break.

    Raises:
        InputError: It is missing or not text.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise InputError(field, path, "does not exist", remedy) from error
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(field, path, f"cannot be read as text ({error})", remedy) from error
    return [line for line in text.splitlines() if line.strip()]


class Table(Generic[Value]):
    """A list of numbers with their values: one `<number> <value> …` per line, in any order.

    Args:
        path: The file.
        kind: Type of each value: `str`, `int` or `float`.
        num_values: Values behind the number; the last takes the rest of the line.
        field: Name of the data set, for messages.
        remedy: Remedy for a missing file, for messages.

    Attributes:
        rows: The values by number.

    Raises:
        InputError: It is missing, or a line is of another form.
    """

    def __init__(
        self, path: Path, kind: Callable[[str], Value], num_values: int = 1, *, field: str, remedy: str
    ) -> None:
        self._path = path
        self._field = field
        self.rows: dict[int, list[Value]] = {}
        for place, line in enumerate(read_lines(path, field=field, remedy=remedy), start=1):
            try:
                number, *values = line.strip().split(None, num_values)
                self.rows[int(number)] = [kind(value) for value in values]
            except ValueError:
                values = []
            if len(values) < num_values:
                problem = f"has no number with {num_values} {kind.__name__} behind it in line {place}: {line!r}"
                raise InputError(field, path, problem, "Take the published file.")

    def __getitem__(self, number: int) -> Value:
        """Return the first value of a number.

        Raises:
            InputError: The list does not have it.
        """
        return self.values(number)[0]

    def values(self, number: int) -> list[Value]:
        """Return all values of a number; raises as above."""
        if number not in self.rows:
            raise InputError(self._field, self._path, f"has no line for {number}", "Take the published file.")
        return self.rows[number]
