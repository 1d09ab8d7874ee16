"""Reading what published data sets lay beside their images: lists, masks, and where both lie."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from objectaware.data.folder import ImageFolder
from objectaware.data.places import list_folder, look_at
from objectaware.errors import InputError

Value = TypeVar("Value")


def find_base(root: str | Path, folders: Sequence[str], needed: Sequence[str], *, field: str, remedy: str) -> Path:
    """Finds a data set in the folder that the user gave, or in one that its archive unpacks to.

    Args:
        root: What the user gave.
        folders: Where else it may lie, relative to `root`.
        needed: Files and folders that must be there; the first one tells the data set.
        field: Name of the data set, for the message.
        remedy: What to give instead, for the message.

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


def require_some_file(images: ImageFolder, *, named_by: Path, field: str) -> None:
    """Refuse a list of images none of which is there; where some are, each missing one is a row with its reason.

    Args:
        images: The images.
        named_by: The file or folder that names them.
        field: Name of the data set, for the message.

    Raises:
        InputError: None is there, or their folder cannot be listed.
    """
    if not images.image_ids or any(_is_there(images.path(index)) for index in range(len(images))):
        return
    named = images.image_ids[0]
    others = f" and {len(images) - 1} more" if len(images) > 1 else ""
    problem = f"names {named}{others}, none of which is in {images.root}"
    base = re.split(r"[/\\]", named)[-1]
    if base != named and _is_there(images.root / base):
        remedy = f"Name it {base}, as that folder does."
    else:
        held = min((entry.name for entry in list_folder(images.root, field=field)), default=None)
        remedy = f"Name images by their paths in that folder, which holds {held or 'nothing'}."
    raise InputError(field, named_by, problem, remedy)


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # a link that no system follows
        return False


def read_lines(path: Path, *, field: str, remedy: str) -> list[str]:
    """Reads a list in UTF-8, a line each, without those that are empty; the last needs no line break.

    Raises:
        InputError: It is missing or no text.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise InputError(field, path, "does not exist", remedy) from error
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(field, path, f"cannot be read as text ({error})", remedy) from error
    return [line for line in text.splitlines() if line.strip()]


class Table(Generic[Value]):
    """A list of numbers, each with what belongs to it: `<number> <value> …` a line, in any order.

    Args:
        path: The file.
        kind: What each value is: `str`, `int` or `float`.
        num_values: Values behind the number; the last takes what is left of the line.
        field: Name of the data set, for messages.
        remedy: What to do about a missing file, for messages.

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
        """The first value of a number.

        Raises:
            InputError: The list does not have it.
        """
        return self.values(number)[0]

    def values(self, number: int) -> list[Value]:
        """All values of a number; raises as above."""
        if number not in self.rows:
            raise InputError(self._field, self._path, f"has no line for {number}", "Take the published file.")
        return self.rows[number]


def read_pixels(path: Path, mode: str | None, *, field: str, remedy: str) -> NDArray[np.uint8]:
    """Reads the file of a mask.

    Args:
        path: The file.
        mode: Pillow's mode that its pixels are brought to, such as `L`; None leaves them, so that a palette's are
            its numbers.
        field: Name of the data set, for the message.
        remedy: What to do about it, for the message.

    Returns:
        (H, W) or (H, W, channels).

    Raises:
        InputError: It is missing or no picture.
    """
    try:
        with Image.open(path) as image:
            return np.asarray(image if mode is None else image.convert(mode), dtype=np.uint8)
    except FileNotFoundError as error:
        raise InputError(field, path, "does not exist", remedy) from error
    except Exception as error:  # Pillow's decoders raise whatever a malformed file provokes in them
        raise InputError(field, path, f"is no picture ({error})", "Extract it from the archive again.") from error
