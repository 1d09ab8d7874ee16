"""The user's files: look at paths, find the folder that a release unpacks to, and read the lists beside its images."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from objectaware.errors import InputError, one_line, system_reason

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")
Row = TypeVar("Row")

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
    found = []
    for entry in list_folder(folder, field=field):
        try:
            if not entry.name.startswith(".") and entry.is_dir():
                found.append(entry.name)
        except OSError as error:
            if error.errno not in (errno.ELOOP, errno.ENAMETOOLONG):  # such a link leads nowhere
                raise InputError(field, entry.path, f"cannot be looked at ({system_reason(error)})", _ACCESS) from error
    return found


def find_class_folders(
    field: str, root: str | Path, names: Sequence[str], is_class: Callable[[str], object], example: str
) -> Path:
    """Take the first of several folders that holds a folder of a class.

    Args:
        field: Name of the data set, for the message.
        root: The user's folder.
        names: Paths below it, the published one first.
        is_class: Tells whether a class has this name.
        example: Name of a class, for the message.

    Raises:
        InputError: None of them does.
    """
    for folder in (Path(root, name) for name in names):
        if is_folder(folder, field=field) and any(map(is_class, subfolders(folder, field=field))):
            return folder
    others = f" (nor {', '.join(str(Path(name, example)) for name in names[1:])})" if len(names) > 1 else ""
    problem = f"holds no class folder such as {Path(root, names[0], example)}{others}"
    raise InputError(field, root, problem, EXTRACTED)


@dataclass(frozen=True)
class Release:
    """A published data set as its archive unpacks: where its files lie, and how they are refused.

    Attributes:
        field: Name of the data set, for messages.
        folders: Where it may lie below the folder that the user gave, other than in that folder itself.
        needed: Files and folders that must be there; the first one identifies the data set.
        remedy: Remedy for a missing file, for messages.
    """

    field: str
    folders: tuple[str, ...] = ()
    needed: tuple[str, ...] = ()
    remedy: str = EXTRACTED

    def base(self, root: str | Path, *needed: str) -> Path:
        """Find the data set in the folder that the user gave, or in one that its archive unpacks to.

        Args:
            root: The folder that the user gave.
            needed: Files and folders that must be there, before those that always must.

        Returns:
            Its folder, absolute.

        Raises:
            InputError: It is in none of them, or something of it is missing.
        """
        needed += self.needed
        places = [Path(root, folder) for folder in ("", *self.folders)]
        found = [place for place in places if look_at(place / needed[0], field=self.field) is not None]
        base = found[0] if found else places[0]
        missing = next((name for name in needed if look_at(base / name, field=self.field) is None), None)
        if missing is not None:
            others = [] if found else [f"{folder}/{missing}" for folder in self.folders]
            nor = f" (nor {', '.join(others)})" if others else ""
            raise InputError(self.field, root, f"holds no {base / missing}{nor}", self.remedy)
        return base.absolute()

    def lines(self, path: Path) -> list[str]:
        """Read the lines of a list in UTF-8 without the empty ones. The last line needs no line break.

        Raises:
            InputError: It is missing or not text.
        """
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError as error:
            raise InputError(self.field, path, "does not exist", self.remedy) from error
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(self.field, path, f"cannot be read as text ({one_line(error)})", self.remedy) from error
        return [line for line in text.splitlines() if line.strip()]

    def rows(self, path: Path, parse: Callable[[str], Row], form: str) -> Iterator[Row]:
        """Read the lines of a list one by one.

        Args:
            path: The list.
            parse: Takes a line; raises ValueError for one of another form.
            form: The form of a line, for the message.

        Raises:
            InputError: The list is missing or not text, or a line has another form.
        """
        for place, line in enumerate(self.lines(path), start=1):
            with self.reading(path, f"has no {form} in line {place}: {line!r}", ValueError):
                row = parse(line)
            yield row

    @contextmanager
    def reading(self, path: Path, problem: str, *errors: type[Exception]) -> Iterator[None]:
        """Refuse a file that is not there, or that raises one of some errors while it is read.

        Args:
            path: The file.
            problem: The problem with a file that raises one of these errors.
            errors: The errors.
        """
        try:
            yield
        except InputError:  # is a ValueError, and says more
            raise
        except FileNotFoundError as error:
            raise InputError(self.field, path, "does not exist", self.remedy) from error
        except errors as error:
            raise self.malformed(path, f"{problem} ({type(error).__name__}: {one_line(error)})") from error

    def malformed(self, path: Path, problem: str) -> InputError:
        """Make the refusal of a file that is not as it was published."""
        return InputError(self.field, path, problem, "Extract or download it again.")


class Table(dict[Key, list[Value]]):
    """The values behind each key of a published list; a key without a line is refused.

    Args:
        release: The data set, for messages.
        path: The list.
        rows: Its keys with their values. Values of a key that comes several times follow each other.
    """

    def __init__(self, release: Release, path: Path, rows: Iterable[tuple[Key, list[Value]]]) -> None:
        super().__init__()
        self._release = release
        self._path = path
        for key, values in rows:
            self.setdefault(key, []).extend(values)

    def __missing__(self, key: Key) -> list[Value]:
        """Refuse a key.

        Raises:
            InputError: Always.
        """
        raise self._release.malformed(self._path, f"has no line for {key}")
