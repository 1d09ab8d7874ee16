"""True masks and boxes of a data set, turned upright as their pictures are.

A picture is stored in one way and, by its EXIF orientation, shown in another. This package reads it as it is shown,
upright. Its annotations may be in pixels of either. Their size says which, except where both have the same size.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from objectaware.data.folder import ImageFolder, Manifest
from objectaware.data.images import UnreadableImage, read_header
from objectaware.data.masks import MIN_BOX_AREA, region_boxes
from objectaware.data.user_files import Release
from objectaware.errors import InputError

if TYPE_CHECKING:
    from objectaware.data.sets.coco import CocoDataset


Pixels = TypeVar("Pixels", bound=np.generic)
Numbers = TypeVar("Numbers", np.float32, np.float64)
Shape = tuple[int, int]
Side = Literal["stored", "upright"]

# EXIF orientation -> whether rows become columns, and whether then rows and columns are reversed.
_STEPS = {
    1: (False, False, False),
    2: (False, False, True),
    3: (False, True, True),
    4: (False, True, False),
    5: (True, False, False),
    6: (True, False, True),
    7: (True, True, True),
    8: (True, True, False),
}

_MAX_LOOKED_AT = 2000
"""Number of pictures that are examined for one that shows in which pixels a set was annotated."""


@dataclass(frozen=True)
class Orientation:
    """The turn that brings pixels of a size upright.

    Attributes:
        shape: Height and width before.
        tag: EXIF orientation, from 1, which changes nothing, to 8.
    """

    shape: Shape
    tag: int = 1

    @property
    def upright_shape(self) -> Shape:
        """Height and width after."""
        return self.shape_before(self.shape)

    @property
    def inverse(self) -> Orientation:
        """The turn that reverses this one."""
        return Orientation(self.upright_shape, {6: 8, 8: 6}.get(self.tag, self.tag))

    def shape_before(self, upright: Shape) -> Shape:
        """Return the height and width that become those given: the same, or swapped where the turn swaps them."""
        return (upright[1], upright[0]) if _STEPS[self.tag][0] else upright

    def pixels(self, values: NDArray[Pixels]) -> NDArray[Pixels]:
        """Turn an array (H, W, …) of any size."""
        is_transposed, rows_reversed, columns_reversed = _STEPS[self.tag]
        turned = values.swapaxes(0, 1) if is_transposed else values
        turned = turned[::-1] if rows_reversed else turned
        return np.ascontiguousarray(turned[:, ::-1] if columns_reversed else turned)

    def boxes(self, boxes: NDArray[Numbers], shape: Shape = (1, 1)) -> NDArray[Numbers]:
        """Turn boxes (n, 4), x0 y0 x1 y1, relative to the picture or in pixels of one of the given height and width."""
        is_transposed, rows_reversed, columns_reversed = _STEPS[self.tag]
        height, width = self.shape_before(shape)
        x0, y0, x1, y1 = boxes.T[[1, 0, 3, 2]] if is_transposed else boxes.T
        if rows_reversed:
            y0, y1 = height - y1, height - y0
        if columns_reversed:
            x0, x1 = width - x1, width - x0
        return np.stack([x0, y0, x1, y1], axis=1)


def fitting_sides(stored: Orientation, shape: Shape) -> list[Side]:
    """Decide by its size whether something was annotated in a picture's stored or in its upright pixels.

    Annotations of a shrunk or enlarged copy of the picture are recognized by its proportions.

    Args:
        stored: The turn that brings the picture upright.
        shape: Height and width that the annotation is for.

    Returns:
        Both where they have the same size, as in squares and in pictures that are mirrored or upside down; none where
        the annotation is for a picture of another form.
    """
    shapes: dict[Side, Shape] = {"stored": stored.shape, "upright": stored.upright_shape}
    exact: list[Side] = [side for side, known in shapes.items() if shape == known]
    return exact or [side for side, known in shapes.items() if _has_proportions(shape, known)]


def _has_proportions(one: Shape, other: Shape) -> bool:
    """Tell whether one shape is the other scaled by a factor, up to the rounding of the smaller one to whole pixels."""
    small, large = sorted((one, other))
    return all((small[side] - 1) * large[1 - side] <= (small[1 - side] + 1) * large[side] for side in (0, 1))


@dataclass(eq=False)
class Turns:
    """The turns that bring annotations of each picture of a set upright.

    The header of a picture is read once, when it is asked for.

    Attributes:
        images: The pictures.
        field: Name of the data set, for messages.
        unclear: The pixels that annotations are taken to be in where their size does not decide it; by default the
            stored ones, since published sets were annotated with tools that showed pictures so.
        shapes: Gives the height and width that a picture's annotations are for; picklable. With it, `unclear` holds
            only where none of the set's first 2000 pictures decides it. Else all are as the first one that does, since
            one tool annotated them.
    """

    images: ImageFolder
    field: str
    unclear: Side = "stored"
    shapes: Callable[[int], Shape] | None = None

    def __post_init__(self) -> None:
        # Height, width and EXIF orientation of each picture as it is stored; an orientation of 0 where not read yet.
        self._headers = np.zeros((len(self.images), 3), dtype=np.int32)

    def stored(self, index: int) -> Orientation:
        """Return the orientation that brings a picture itself upright.

        Raises:
            UnreadableImage: It cannot be read.
        """
        height, width, tag = self._headers[index].tolist()
        if not tag:
            height, width, tag = self._headers[index] = read_header(self.images.path(index))
        return Orientation((height, width), tag)

    def of(self, index: int, shape: Shape) -> Orientation:
        """Return the orientation that brings upright the annotations of a picture of this height and width.

        A picture that cannot be read is not turned.

        Raises:
            InputError: The picture has this size neither as it is stored nor upright.
        """
        try:
            stored = self.stored(index)
        except UnreadableImage:  # reading its pixels says so
            return Orientation(shape)
        sides = fitting_sides(stored, shape)
        if not sides:
            (rows, columns), (height, width) = stored.shape, shape
            turned = "" if stored.upright_shape == stored.shape else f" ({rows} × {columns} as it is shown)"
            problem = f"is {columns} × {rows} pixels{turned}, its annotations are for {width} × {height}"
            remedy = "Replace the file, or correct the width and height of its annotations."
            raise InputError(self.field, self.images.path(index), problem, remedy)
        if stored.tag == 1:
            return Orientation(shape)
        side = sides[0] if len(sides) == 1 else self._side_where_unclear
        return Orientation(shape, stored.tag if side == "stored" else 1)

    def upright(self, index: int, values: NDArray[Pixels]) -> NDArray[Pixels]:
        """Bring upright an array (H, W, …) of a picture's size as it was annotated; raises as `of`."""
        return self.of(index, values.shape[:2]).pixels(values)

    @cached_property
    def _side_where_unclear(self) -> Side:
        if self.shapes is None:
            return self.unclear
        for index in range(min(len(self.images), _MAX_LOOKED_AT)):
            try:
                sides = fitting_sides(self.stored(index), self.shapes(index))
            except UnreadableImage:  # the other pictures may still decide it
                continue
            if len(sides) == 1:
                return sides[0]
        return self.unclear


def turned_by_size(path: Path, found: NDArray[Pixels]) -> NDArray[Pixels]:
    """Bring upright an array (H, W, …) that a system found in a picture, if its size fits the stored picture alone.

    An array of any other size is taken to be upright, as masks of this package are.
    """
    try:
        height, width, tag = read_header(path)
    except UnreadableImage:  # reading its pixels says so
        return found
    stored = Orientation((height, width), tag)
    return stored.pixels(found) if fitting_sides(stored, found.shape[:2]) == ["stored"] else found


class GroundTruth:
    """True masks and boxes of some images, by index; each layout that has some has a class of its own.

    Args:
        image_ids: The images.
        files: The files that masks and boxes are read from, by folder, except annotations that are part of the images'
            own hash.

    Attributes:
        files: As given.
        has_masks: Whether every image has a mask; else there are only boxes.
        has_ignored: Whether some pixels count neither as object nor as background.
        has_classes: Whether `class_masks` gives a mask for each class; else the label of an image, where there is one,
            is the class of its object.
        notice: A line about them for the user, or an empty one.
        coco: The images with their numbers, in the same order, where they have annotations in COCO's format.
    """

    has_masks: bool = True
    has_ignored: bool = False
    has_classes: bool = False
    notice: str = ""
    coco: CocoDataset | None = None

    def __init__(self, image_ids: Sequence[str], files: Sequence[ImageFolder] = ()) -> None:
        self._num_images = len(image_ids)
        self.files = files

    def __len__(self) -> int:
        return self._num_images

    def __getitem__(self, index: int) -> NDArray[np.bool_]:
        """Return the mask of an image; see `mask`."""
        return self.mask(index)

    def mask(self, index: int) -> NDArray[np.bool_]:
        """Return the mask (H, W), true on any object.

        It has the image's size, except in wsolevaluation's sets, whose masks are 224 × 224.
        """
        raise NotImplementedError

    def class_masks(self, index: int) -> dict[str, NDArray[np.bool_]]:
        """Return by the class's name the mask (H, W) of all objects of each class that an image shows.

        Only where `has_classes`. Masks of two classes may overlap.
        """
        raise NotImplementedError

    def ignored(self, index: int) -> NDArray[np.bool_] | None:
        """Return the pixels (H, W) that count neither as object nor as background, or None where all count."""
        return None

    def boxes(self, index: int) -> NDArray[np.float64]:
        """Return the boxes (n, 4), x0 y0 x1 y1 relative to the image.

        The published ones, whatever their size. Of annotations in COCO's format, those of the instances of more than 1%
        of the picture, crowds included, as the official code takes them. Where there is a mask alone, they are those
        around its regions of more than 1%. Masks with ignored regions that hold objects, too, give none.
        """
        mask = self.mask(index)
        around, areas = region_boxes(mask)
        return around[areas > MIN_BOX_AREA * mask.size]

    def content_hash(self, verify: bool = False) -> str:
        """Hash the files of masks and boxes: names, sizes and times.

        Args:
            verify: Hash the files' content instead of their times.
        """
        text = "".join(Manifest.of(folder).content_hash(verify) for folder in self.files)
        return hashlib.sha256(text.encode()).hexdigest()


def read_pixels(path: Path, mode: str | None, release: Release) -> NDArray[np.uint8]:
    """Read the file of a mask.

    Args:
        path: The file.
        mode: Pillow's mode that its pixels are converted to, such as `L`; None leaves them, so that pixels of a
            palette are its indices.
        release: The data set, for the message.

    Returns:
        (H, W) or (H, W, channels).

    Raises:
        InputError: It is missing or not a picture.
    """
    # Pillow's decoders raise whatever a malformed file provokes in them.
    with release.reading(path, "is not a picture", Exception), Image.open(path) as image:
        return np.asarray(image if mode is None else image.convert(mode), dtype=np.uint8)
