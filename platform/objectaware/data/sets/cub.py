"""CUB-200-2011 in its published layout, and ReDO's split of it.

`images.txt`, `image_class_labels.txt`, `classes.txt`, `train_test_split.txt`, `bounding_boxes.txt`,
`images/NNN.Name/*.jpg`, and from a download of its own `segmentations/NNN.Name/*.png`, in the same folder or beside it.
Layout as in reference/official-implementation.md §5; ReDO's split as in `datasets.py` of github.com/mickaelChen/ReDO.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path, PurePosixPath

import numpy as np
from numpy.typing import NDArray

from objectaware.data.dataset import Dataset, PublishedSet
from objectaware.data.folder import ImageFolder
from objectaware.data.images import UnreadableImage
from objectaware.data.sets.wsolevaluation import published_parts
from objectaware.data.truth import GroundTruth, Turns, read_pixels
from objectaware.data.user_files import Release, Table, Value, is_file, is_folder

_RELEASE = Release(
    "cub", ("CUB_200_2011",), ("images.txt", "images"), "Give the folder CUB_200_2011 as its archive unpacks to."
)
_REDO_RELEASE = replace(
    _RELEASE,
    remedy="Put datasplits/cub/train_val_test_split.txt of github.com/mickaelChen/ReDO there, by its own name or as "
    "redo_split.txt.",
)
_SEGMENTATIONS = replace(_RELEASE, remedy="Extract segmentations.tgz into the folder CUB_200_2011.")
# Codes of the parts in the last column of their files.
_OFFICIAL = {"train": 1, "test": 0}
# 10,000, 788 and 1,000 images.
_REDO = {"redo-train": 0, "redo-val": 1, "redo-test": 2}


class CubTruth(GroundTruth):
    """True masks and boxes of images of CUB, by index.

    A pixel counts as bird if it is brighter than half of white: each mask is the mean of several people's
    masks. The box is the published one. Where the masks were not downloaded there are only boxes, and `notice` says so.

    Args:
        root: Folder that holds `images.txt`, or the one above it.
        image_ids: Paths of the images in `images`.

    Raises:
        InputError: The boxes are missing, or an image is not among them.
    """

    def __init__(self, root: str, image_ids: list[str]) -> None:
        base = _RELEASE.base(root)
        boxes = _table(base / "bounding_boxes.txt", float, 4)
        self._images = ImageFolder(base / "images", image_ids)
        self._turns = Turns(self._images, field=_RELEASE.field)
        number_of_image = {name: number for number, [name] in _table(base / "images.txt", str).items()}
        self._boxes = [boxes[number_of_image[name]] for name in image_ids]
        files = [ImageFolder(base, ["bounding_boxes.txt"])]
        places = [base / "segmentations", base.parent / "segmentations"]
        folder = next((place for place in places if is_folder(place, field=_RELEASE.field)), None)
        self.has_masks = folder is not None
        if folder is None:
            self.notice = f"{places[0]} is not there, so only boxes are used. {_SEGMENTATIONS.remedy}"
        else:
            self._masks = ImageFolder(folder, [str(PurePosixPath(name).with_suffix(".png")) for name in image_ids])
            files.append(self._masks)
        super().__init__(image_ids, files)

    def mask(self, index: int) -> NDArray[np.bool_]:
        """Return the mask (H, W) of the bird, upright."""
        assert self.has_masks
        gray = read_pixels(self._masks.path(index), "L", _SEGMENTATIONS)
        return self._turns.upright(index, gray > 127)

    def boxes(self, index: int) -> NDArray[np.float64]:
        """Return the published box (1, 4), x0 y0 x1 y1 relative to the upright image."""
        x, y, width, height = self._boxes[index]
        try:
            turn = self._turns.stored(index)
        except UnreadableImage as error:
            raise _RELEASE.malformed(self._images.path(index), f"has no size ({error.reason})") from error
        image_height, image_width = turn.shape
        corners = np.array([[x, y, x + width, y + height]])
        return turn.boxes((corners / np.array([image_width, image_height] * 2)).clip(0, 1))


def _table(
    path: Path, kind: Callable[[str], Value], num_values: int = 1, release: Release = _RELEASE
) -> Table[int, Value]:
    """Read a list with `<number> <value> …` in each line, in any order. The last value takes the rest of the line."""

    def parse(line: str) -> tuple[int, list[Value]]:
        number, *values = line.strip().split(None, num_values)
        if len(values) < num_values:
            raise ValueError("it ends too early")
        return int(number), [kind(value) for value in values]

    form = f"number with {num_values} {kind.__name__} behind it"
    return Table(release, path, dict(release.rows(path, parse, form)).items())


class Cub(Dataset):
    """CUB-200-2011. Images are in the order of `images.txt`; ReDO's split lies in a file that the user puts there."""

    name = "cub"
    content = "images.txt, images/<class>/*.jpg and segmentations/<class>/*.png of CUB-200-2011"
    labels = "species"
    masks = "segmentations and boxes"
    splits = (*_OFFICIAL, *_REDO)
    true_masks = True

    def open_images(self) -> ImageFolder:
        """List the images of a part."""
        base = _RELEASE.base(self.root)
        images, classes = _table(base / "images.txt", str), _table(base / "classes.txt", str)
        class_of_image = _table(base / "image_class_labels.txt", int)
        if self.split in _OFFICIAL:
            part = _table(base / "train_test_split.txt", int)
        else:
            paths = [base / "train_val_test_split.txt", base / "redo_split.txt"]
            path = next((path for path in paths if is_file(path, field=_RELEASE.field)), paths[0])
            part = _table(path, int, release=_REDO_RELEASE)
        code = {**_OFFICIAL, **_REDO}[self.split]
        chosen = [number for number in images if part[number] == [code]]
        if not chosen:
            raise _RELEASE.malformed(base, f"has no image of the part {self.split}")
        names = [classes[number][0] for number in sorted(classes)]
        index_of_name = {name: index for index, name in enumerate(names)}
        labels = [index_of_name[classes[class_of_image[number][0]][0]] for number in chosen]
        return ImageFolder(base / "images", [images[number][0] for number in chosen], labels, names)

    def truth_of(self, image_ids: list[str], *, needs_boxes: bool = True) -> CubTruth:
        """Open the boxes, and the masks where they were downloaded."""
        return CubTruth(self.root, image_ids)


_WSOL = published_parts("CUB")

PublishedSet(
    "CUB-200-2011",
    "CUB_200_2011",
    "pictures by their Flickr licences: non-commercial research and education",
    "data.caltech.edu/records/65de6-vp158: CUB_200_2011.tgz, and segmentations.tgz into the same folder. redo-…: "
    "datasplits/cub/train_val_test_split.txt of github.com/mickaelChen/ReDO there, too. wsol-…: a clone of "
    "github.com/clovaai/wsolevaluation beside it; wsol-val: its CUBV2.tar into images",
    {split: {"layout": Cub.name, "split": split} for split in Cub.splits} | _WSOL,
    {"train": 5_994, "test": 5_794, "redo-train": 10_000, "redo-val": 788, "redo-test": 1_000}
    | {"wsol-val": 1_000, "wsol-test": 5_794},
    measured=("redo-val", "redo-test", *_WSOL),
)
