"""Looking at the user's paths, and finding the folder that a data set's release unpacks to."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Sequence
from pathlib import Path

from objectaware.errors import InputError, system_reason

_WNID = re.compile(r"n\d{8}")
EXTRACTED = "Give the folder that the data set's archive was extracted to."
"""What to do about a file that is missing, as messages end."""

_WRITE = "Give another path, or this user the right to write there."
_ACCESS = "Make it readable for this user, or give another path."


def look_at(path: str | Path, *, field: str) -> os.stat_result | None:
    """Return the state of a file or folder, or None where there is none.

    Args:
        path: The path.
        field: What the user gave it as, for the message.

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
        field: What the user gave it as, for the message.

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
        InputError: The folder cannot be listed, or it cannot be told whether an entry is a folder.
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
    """Takes the first of several paths that is there.

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
    """Takes the first of several folders that holds a folder named as a class of ImageNet.

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
    """Says that none of several folders holds a folder of a class, with one of the classes as an example."""
    places = _listed(root, [str(Path(name, class_name)) for name in names])
    return InputError(field, root, f"holds no class folder such as {places}", EXTRACTED)


def _listed(root: str | Path, names: Sequence[str]) -> str:
    """The first of several paths in full, the others as names."""
    others = f" (nor {', '.join(names[1:])})" if len(names) > 1 else ""
    return f"{Path(root, names[0])}{others}"
