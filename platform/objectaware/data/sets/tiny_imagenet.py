"""Tiny-ImageNet: 200 classes of ImageNet at 64 × 64 pixels, each picture with the box of its object.

`wnids.txt`, `train/<wnid>/images/*.JPEG` with `train/<wnid>/<wnid>_boxes.txt`, and `val/images/*.JPEG` with
`val/val_annotations.txt`, as tiny-imagenet-200.zip unpacks. The part `test` has no labels, and is left out.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import numpy as np
from numpy.typing import NDArray

from objectaware.data.folder import ImageFolder
from objectaware.data.layouts import Layout, Place, PublishedSet, register_layout, register_published
from objectaware.data.sets.imagenet import IMAGENET_TERMS
from objectaware.data.truth import GroundTruth, Turns
from objectaware.data.user_files import Release

_SIDE = 64
_VAL_ANNOTATIONS = "val/val_annotations.txt"
_RELEASE = Release("tiny_imagenet", ("tiny-imagenet-200",), ("wnids.txt", "train"))


class TinyImageNetBoxes(GroundTruth):
    """The published box of each image, by index; there are no masks.

    Args:
        place: The part.
        image_ids: The images, as `TinyImageNet` names them.

    Raises:
        InputError: A file is missing or malformed, or has no box of an image.
    """

    has_masks = False

    def __init__(self, place: Place, image_ids: list[str]) -> None:
        base = _RELEASE.base(place.root)
        folder = base / "train" if place.split == "train" else base / "val" / "images"
        # The boxes are ImageNet's, whose tools showed pictures as they are stored.
        self._turns = Turns(ImageFolder(folder, image_ids), field=_RELEASE.field)
        if place.split == "train":
            wnids = list(dict.fromkeys(PurePosixPath(name).parts[0] for name in image_ids))
            names, num_fields, prefix = [f"train/{wnid}/{wnid}_boxes.txt" for wnid in wnids], 5, "{}/images/"
        else:
            wnids, names, num_fields, prefix = [""], [_VAL_ANNOTATIONS], 6, ""
        corners = {
            prefix.format(wnid) + row[0]: _corners(row, base / name)
            for wnid, name in zip(wnids, names, strict=True)
            for row in _rows(base / name, num_fields)
        }
        missing = next((image_id for image_id in image_ids if image_id not in corners), None)
        if missing is not None:
            raise _RELEASE.malformed(folder / missing, "has no box")
        self._corners = [corners[image_id] for image_id in image_ids]
        super().__init__(image_ids, [ImageFolder(base, names)])

    def boxes(self, index: int) -> NDArray[np.float64]:
        """Return the published box (1, 4), x0 y0 x1 y1 relative to the upright image."""
        x0, y0, x1, y1 = self._corners[index]
        # The file names the first and the last pixel of the object; an edge lies behind its last pixel.
        edges = np.array([[x0, y0, x1 + 1, y1 + 1]], dtype=np.float64) / _SIDE
        return self._turns.of(index, (_SIDE, _SIDE)).boxes(edges.clip(0, 1))


def _rows(path: Path, num_fields: int) -> list[list[str]]:
    """Read the lines of a file: an image, in `val` its class, and four corners, with tabs between them."""
    rows = [line.split("\t") for line in _RELEASE.lines(path)]
    for number, row in enumerate(rows, start=1):
        if len(row) != num_fields:
            raise _RELEASE.malformed(path, f"has {len(row)} fields, not {num_fields}, in line {number}")
    return rows


def _corners(row: list[str], path: Path) -> list[int]:
    try:
        x0, y0, x1, y1 = (int(value) for value in row[-4:])
    except ValueError as error:
        raise _RELEASE.malformed(path, f"has corners that are not whole numbers: {row}") from error
    if x1 < x0 or y1 < y0:
        raise _RELEASE.malformed(path, f"has a box that ends before it begins: {row}")
    return [x0, y0, x1, y1]


@register_layout
class TinyImageNet(Layout):
    """Tiny-ImageNet, with 500 images per class in `train` and 50 in `val`. Classes are in the order of their wnids."""

    name = "tiny-imagenet"
    content = "train/<wnid>/images/*.JPEG, val/images/*.JPEG, wnids.txt and their lists of boxes"
    labels = "class of Tiny-ImageNet"
    masks = "boxes"
    splits = ("train", "val")

    def open(self, place: Place) -> ImageFolder:
        """List the images of a split. An image of a class that `wnids.txt` does not name is refused."""
        base = _RELEASE.base(place.root)
        wnids = sorted(_RELEASE.lines(base / "wnids.txt"))
        label_of_wnid = {wnid: label for label, wnid in enumerate(wnids)}
        if place.split == "train":
            found = ImageFolder.from_classes(base / "train")
            folder, wnid_of_image = found.root, {name: PurePosixPath(name).parts[0] for name in found.image_ids}
        else:
            folder = base / "val" / "images"
            wnid_of_image = {name: wnid for name, wnid, *_ in _rows(base / _VAL_ANNOTATIONS, 6)}
        for name, wnid in wnid_of_image.items():
            if wnid not in label_of_wnid:
                problem = f"is of the class {wnid}, which wnids.txt does not name"
                raise _RELEASE.malformed(folder / name, problem)
        return ImageFolder(folder, list(wnid_of_image), [label_of_wnid[wnid] for wnid in wnid_of_image.values()], wnids)

    def truth(self, place: Place, image_ids: list[str], *, needs_boxes: bool) -> TinyImageNetBoxes:
        """Open the boxes."""
        return TinyImageNetBoxes(place, image_ids)


register_published(
    PublishedSet(
        "Tiny-ImageNet",
        "tiny-imagenet-200",
        IMAGENET_TERMS,
        "cs231n.stanford.edu/tiny-imagenet-200.zip",
        {split: {"layout": TinyImageNet.name, "split": split} for split in TinyImageNet.splits},
        {"train": 100_000, "val": 10_000},
        measured=("val",),
    )
)
