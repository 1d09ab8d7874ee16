"""CUB-200-2011 in its published layout, and ReDO's split of it.

`images.txt`, `image_class_labels.txt`, `classes.txt`, `train_test_split.txt`, `bounding_boxes.txt`,
`images/NNN.Name/*.jpg`, and from a download of its own `segmentations/NNN.Name/*.png`, in the same folder or beside it.
Layout as in reference/official-implementation.md §5; ReDO's split as in `datasets.py` of github.com/mickaelChen/ReDO.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path, PurePosixPath

import numpy as np
from numpy.typing import NDArray

from objectaware.data.folder import ImageFolder
from objectaware.data.images import UnreadableImage
from objectaware.data.layouts import Layout, Place, PublishedSet, register_layout, register_published
from objectaware.data.sets.wsolevaluation import published_parts
from objectaware.data.truth import TrueObjects, Turns, read_pixels
from objectaware.data.user_files import Table, Value, find_base, is_file, is_folder
from objectaware.errors import InputError

_FIELD = "cub"
_REMEDY = "Give the folder CUB_200_2011 as its archive unpacks to."
_REDO_REMEDY = (
    "Put datasplits/cub/train_val_test_split.txt of github.com/mickaelChen/ReDO there, by its own name or as "
    "redo_split.txt."
)
_SEGMENTATIONS_REMEDY = "Extract segmentations.tgz into the folder CUB_200_2011."
# Codes of the parts in the last column of their files.
_OFFICIAL = {"train": 1, "test": 0}
# 10,000, 788 and 1,000 images.
_REDO = {"redo-train": 0, "redo-val": 1, "redo-test": 2}


def load_cub(root: str | Path, split: str) -> ImageFolder:
    """Open a part of CUB.

    Args:
        root: Folder that holds `images.txt`, or the one above it.
        split: `train` or `test`, or ReDO's `redo-train`, `redo-val` or `redo-test`.

    Returns:
        The images with their labels, in the order of `images.txt`.

    Raises:
        InputError: A file is missing or malformed; ReDO's split lies in a file that the user puts there.
    """
    base = _base(root)
    images, classes = _table(base / "images.txt", str), _table(base / "classes.txt", str)
    class_of_image = _table(base / "image_class_labels.txt", int)
    part = _table(base / "train_test_split.txt", int) if split in _OFFICIAL else _redo_split(base)
    code = {**_OFFICIAL, **_REDO}[split]
    chosen = [number for number in images.rows if part[number] == code]
    if not chosen:
        raise InputError(_FIELD, base, f"has no image of the part {split}", "Take the published files.")
    names = [classes[number] for number in sorted(classes.rows)]
    index_of_name = {name: index for index, name in enumerate(names)}
    labels = [index_of_name[classes[class_of_image[number]]] for number in chosen]
    return ImageFolder(base / "images", [images[number] for number in chosen], labels, names)


class CubObjects(TrueObjects):
    """True masks and boxes of images of CUB, by index.

    A pixel counts as bird if it is brighter than half of white: each mask is the mean of several people's
    masks. The box is the published one. Where the masks were not downloaded there are only boxes, and `notice` says so.

    Args:
        root: As for `load_cub`.
        image_ids: Paths of the images in `images`.

    Raises:
        InputError: The boxes are missing, or an image is not among them.
    """

    def __init__(self, root: str | Path, image_ids: list[str]) -> None:
        base = _base(root)
        images = _table(base / "images.txt", str)
        boxes = _table(base / "bounding_boxes.txt", float, 4)
        self._images = ImageFolder(base / "images", image_ids)
        # They were annotated with tools that showed pictures as they are stored.
        self._turns = Turns(self._images, field=_FIELD, unclear="stored")
        number_of_image = {images[number]: number for number in images.rows}
        self._boxes = [np.array(boxes.values(number_of_image[name])) for name in image_ids]
        folder = next((place for place in _segmentation_places(base) if is_folder(place, field=_FIELD)), None)
        self.has_masks = folder is not None
        self.files = [ImageFolder(base, ["bounding_boxes.txt"])]
        if folder is None:
            place = _segmentation_places(base)[0]
            self.notice = f"{place} is not there, hence no masks but boxes alone. {_SEGMENTATIONS_REMEDY}"
        else:
            names = [str(PurePosixPath(image_id).with_suffix(".png")) for image_id in image_ids]
            self._masks = ImageFolder(folder, names)
            self.files = [*self.files, self._masks]

    def mask(self, index: int) -> NDArray[np.bool_]:
        """Return the mask (H, W) of the bird, upright."""
        assert self.has_masks
        gray = read_pixels(self._masks.path(index), "L", field=_FIELD, remedy=_SEGMENTATIONS_REMEDY)
        mask = gray > 127
        return self._turns.of(index, mask.shape).pixels(mask)

    def boxes(self, index: int) -> NDArray[np.float64]:
        """Return the published box (1, 4), x0 y0 x1 y1 relative to the upright image."""
        x, y, width, height = self._boxes[index]
        try:
            turn = self._turns.stored(index)
        except UnreadableImage as error:
            problem = f"has no size ({error.reason})"
            raise InputError(_FIELD, self._images.path(index), problem, "Extract it from the archive again.") from error
        image_height, image_width = turn.shape
        corners = np.array([[x, y, x + width, y + height]])
        return turn.boxes((corners / np.array([image_width, image_height] * 2)).clip(0, 1))


def _base(root: str | Path) -> Path:
    return find_base(root, ["CUB_200_2011"], ["images.txt", "images"], field=_FIELD, remedy=_REMEDY)


def _segmentation_places(base: Path) -> tuple[Path, Path]:
    return base / "segmentations", base.parent / "segmentations"


def _redo_split(base: Path) -> Table[int]:
    places = [base / "train_val_test_split.txt", base / "redo_split.txt"]
    path = next((place for place in places if is_file(place, field=_FIELD)), places[0])
    return Table(path, int, field=_FIELD, remedy=_REDO_REMEDY)


def _table(path: Path, kind: Callable[[str], Value], num_values: int = 1) -> Table[Value]:
    return Table(path, kind, num_values, field=_FIELD, remedy=_REMEDY)


@register_layout
class Cub(Layout):
    """CUB-200-2011."""

    name = "cub"
    content = "images.txt, images/<class>/*.jpg and segmentations/<class>/*.png of CUB-200-2011"
    labels = "species"
    masks = "segmentations and boxes"
    splits = (*_OFFICIAL, *_REDO)
    true_masks = True

    def open(self, place: Place) -> ImageFolder:
        """List the images of a part."""
        return load_cub(place.root, place.split)

    def truth(self, place: Place, image_ids: list[str], *, needs_boxes: bool) -> CubObjects:
        """Open the boxes, and the masks where they were downloaded."""
        return CubObjects(place.root, image_ids)


_WSOL = published_parts("CUB")

register_published(
    PublishedSet(
        "CUB-200-2011",
        "CUB_200_2011",
        "pictures by their Flickr licences: non-commercial research and education",
        "data.caltech.edu/records/65de6-vp158: CUB_200_2011.tgz, and segmentations.tgz into the same folder. redo-…: "
        "datasplits/cub/train_val_test_split.txt of github.com/mickaelChen/ReDO there, too. wsol-…: a clone of "
        "github.com/clovaai/wsolevaluation beside it; wsol-val: its CUBV2.tar into images",
        {split: {"layout": Cub.name, "split": split} for split in Cub.splits} | _WSOL,
        {
            "train": 5_994,
            "test": 5_794,
            "redo-train": 10_000,
            "redo-val": 788,
            "redo-test": 1_000,
            "wsol-val": 1_000,
            "wsol-test": 5_794,
        },
        measured=("redo-val", "redo-test", *_WSOL),
    )
)
