"""Finding the folder that a data set's release unpacks to."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from objectaware.errors import InputError

_WNID = re.compile(r"n\d{8}")
_REMEDY = "Give the folder that the data set's archive was extracted to."


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
        if Path(root, name).exists():
            return Path(root, name)
    raise missing_place(field, root, names)


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
        if folder.is_dir() and any(wnid_folders(folder)):
            return folder
    raise missing_classes(field, root, names, "n01440764")


def wnid_folders(folder: Path) -> Iterable[Path]:
    """The folders of a folder that are named as classes of ImageNet are."""
    return (entry for entry in folder.iterdir() if _WNID.fullmatch(entry.name) and entry.is_dir())


def missing_place(field: str, root: str | Path, names: Sequence[str]) -> InputError:
    """Says that none of several paths is there: the first in full, the others as names."""
    return InputError(field, root, f"holds no {_listed(root, names)}", _REMEDY)


def missing_classes(field: str, root: str | Path, names: Sequence[str], class_name: str) -> InputError:
    """Says that none of several folders holds a folder of a class, with one of the classes as an example."""
    places = _listed(root, [str(Path(name, class_name)) for name in names])
    return InputError(field, root, f"holds no class folder such as {places}", _REMEDY)


def _listed(root: str | Path, names: Sequence[str]) -> str:
    others = f" (nor {', '.join(names[1:])})" if len(names) > 1 else ""
    return f"{Path(root, names[0])}{others}"


def read_lines(field: str, path: Path) -> list[str]:
    """Reads the lines of a text file, without those that are empty.

    Raises:
        InputError: There is none, or it is not text in UTF-8.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise InputError(field, path, "does not exist", _REMEDY) from error
    except UnicodeDecodeError as error:
        raise InputError(field, path, "is not text in UTF-8", "Extract it from the archive again.") from error
    return [line.strip() for line in text.splitlines() if line.strip()]
