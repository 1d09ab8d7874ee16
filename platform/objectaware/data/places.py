"""Finding the folder that a data set's release unpacks to."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from objectaware.errors import InputError

_WNID = re.compile(r"n\d{8}")
EXTRACTED = "Give the folder that the data set's archive was extracted to."
"""What to do about a file that is missing, as messages end."""


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
        if folder.is_dir() and any(wnid_folders(folder)):
            return folder
    raise missing_classes(field, root, names, "n01440764")


def wnid_folders(folder: Path) -> Iterable[Path]:
    """The folders of a folder that are named as classes of ImageNet are."""
    return (entry for entry in folder.iterdir() if _WNID.fullmatch(entry.name) and entry.is_dir())


def missing_classes(field: str, root: str | Path, names: Sequence[str], class_name: str) -> InputError:
    """Says that none of several folders holds a folder of a class, with one of the classes as an example."""
    places = _listed(root, [str(Path(name, class_name)) for name in names])
    return InputError(field, root, f"holds no class folder such as {places}", EXTRACTED)


def _listed(root: str | Path, names: Sequence[str]) -> str:
    """The first of several paths in full, the others as names."""
    others = f" (nor {', '.join(names[1:])})" if len(names) > 1 else ""
    return f"{Path(root, names[0])}{others}"
