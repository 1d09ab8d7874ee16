"""Oxford Flowers 102 in its published layout, and ReDO's use of its parts.

`jpg/image_%05d.jpg`, `imagelabels.mat`, `setid.mat` and, for the masks, `segmim/segmim_%05d.jpg`; torchvision puts the
first three into `flowers-102`. Layout as in reference/official-implementation.md §5; ReDO's parts and its rule for the
masks as in `datasets.py` of github.com/mickaelChen/ReDO.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from objectaware.data.dataset import Dataset, PublishedSet
from objectaware.data.folder import ImageFolder
from objectaware.data.truth import GroundTruth, Turns, read_pixels
from objectaware.data.user_files import Release, is_folder
from objectaware.errors import InputError

_RELEASE = Release(
    "flowers102",
    ("flowers-102", "flowers102"),
    ("jpg", "setid.mat", "imagelabels.mat"),
    "Give the folder that holds jpg, imagelabels.mat and setid.mat.",
)
_MASKS = replace(
    _RELEASE, needed=(*_RELEASE.needed, "segmim"), remedy="Extract 102segmentations.tgz there: it holds segmim."
)
# Lists of 1,020, 1,020 and 6,149 images; ReDO trains on the test part and tests on the training part.
_OFFICIAL = {"train": "trnid", "val": "valid", "test": "tstid"}
_VARIABLES = _OFFICIAL | {"redo-train": "tstid", "redo-val": "valid", "redo-test": "trnid"}
_BLUE = 254


class FlowersTruth(GroundTruth):
    """True masks of images of Flowers102, by index.

    Their files show the flower on blue, (0, 0, 254), as JPEG, whose noise leaves specks around the flower. ReDO counts
    as background what has red 0, green 0 or blue 254, and so does the paper; specks stay in the mask, and boxes are
    those around regions of more than 1% of the picture.

    Args:
        root: The folder, or the one above it.
        image_ids: Names of the images in `jpg`.

    Raises:
        InputError: There are no masks.
    """

    def __init__(self, root: str, image_ids: list[str]) -> None:
        base = _MASKS.base(root)
        self._masks = ImageFolder(base / "segmim", [re.sub(r"^image_", "segmim_", name) for name in image_ids])
        self._turns = Turns(ImageFolder(base / "jpg", image_ids), field=_RELEASE.field)
        super().__init__(image_ids, [self._masks])

    def mask(self, index: int) -> NDArray[np.bool_]:
        """Return the mask (H, W) of the flower, upright."""
        pixels = read_pixels(self._masks.path(index), "RGB", _MASKS)
        red, green, blue = pixels.transpose(2, 0, 1)
        return self._turns.upright(index, np.asarray((red != 0) & (green != 0) & (blue != _BLUE)))


def _read_numbers(path: Path, variable: str) -> NDArray[np.int64]:
    """Return the numbers of a variable of a MATLAB file."""
    from scipy.io import loadmat  # here, or whatever opens a data set would wait for it

    # SciPy does not document what it raises for a file of another kind.
    with _RELEASE.reading(path, f"holds no variable {variable}", Exception):
        return np.asarray(loadmat(path)[variable]).ravel().astype(np.int64)


class Flowers102(Dataset):
    """Flowers 102, in the order of `setid.mat`; classes are named `001` to `102`, since the release names none."""

    name = "flowers102"
    content = "jpg/image_*.jpg, setid.mat, imagelabels.mat and segmim/segmim_*.jpg of Flowers 102"
    labels = "species"
    masks = "segmim"
    splits = tuple(_VARIABLES)
    true_masks = True

    def open_images(self) -> ImageFolder:
        """List the images of a part."""
        base = _RELEASE.base(self.root)
        numbers = _read_numbers(base / "setid.mat", _VARIABLES[self.split])
        labels = _read_numbers(base / "imagelabels.mat", "labels")
        if not ((numbers >= 1) & (numbers <= len(labels))).all() or not (labels >= 1).all():
            problem = f"names images that {base / 'imagelabels.mat'} gives no label"
            raise InputError(_RELEASE.field, base / "setid.mat", problem, "Take both files from the same release.")
        class_names = [f"{number:03d}" for number in range(1, int(labels.max()) + 1)]
        image_ids = [f"image_{number:05d}.jpg" for number in numbers]
        return ImageFolder(base / "jpg", image_ids, labels[numbers - 1] - 1, class_names)

    @property
    def has_truth(self) -> bool:
        """Whether the masks were downloaded, too."""
        return is_folder(_RELEASE.base(self.root) / "segmim", field=_RELEASE.field)

    def truth_of(self, image_ids: list[str], *, needs_boxes: bool = True) -> FlowersTruth:
        """Open the masks."""
        return FlowersTruth(self.root, image_ids)


PublishedSet(
    "Flowers102",
    "flowers102",
    "pictures by their owners' licences: research",
    "robots.ox.ac.uk/~vgg/data/flowers/102: 102flowers.tgz, imagelabels.mat, setid.mat (torchvision's Flowers102 "
    "downloads these), and 102segmentations.tgz for the masks",
    {split: {"layout": Flowers102.name, "split": split} for split in Flowers102.splits},
    {"train": 1_020, "val": 1_020, "test": 6_149, "redo-train": 6_149, "redo-val": 1_020, "redo-test": 1_020},
    measured=("redo-val", "redo-test"),
)
