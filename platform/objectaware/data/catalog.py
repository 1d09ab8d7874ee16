"""Opening data sets by the layout they lie in."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from objectaware.data.backgrounds_challenge import load_foreground_mask, load_variant
from objectaware.data.coco import CocoDataset, load_coco
from objectaware.data.crops import CroppedObjects
from objectaware.data.folder import ImageFolder
from objectaware.data.masks import region_boxes
from objectaware.data.shards import PackedImages
from objectaware.data.subset import restrict
from objectaware.errors import InputError

Split = Literal["train", "val"]

_MIN_BOX_AREA = 0.01


def open_images(
    root: str | Path,
    layout: str,
    *,
    variant: str | None = None,
    split: Split | None = None,
    subset: str | None = None,
    shuffle_window: int = 1,
) -> ImageFolder | CroppedObjects | PackedImages:
    """Opens a set of images.

    Args:
        root: The folder.
        layout: `folder`, `class-folders`, `backgrounds-challenge`, `coco`, `coco-crop` or `shards`.
        variant: Variant of the Backgrounds Challenge; `original` where none is given.
        split: `train` or `val`, for the published layouts.
        subset: Path or URI of a list of the images that count; all do where none is given. Not for `coco-crop` and
            `shards`.
        shuffle_window: Shards that training mixes, for the layout `shards`.

    Raises:
        InputError: Something is missing or malformed, or the layout is not known.
    """
    if layout == "shards":
        assert subset is None, "the images of a pack are no files"
        return PackedImages.open(str(root), window=shuffle_window)
    images = _open_whole(root, layout, variant, split)
    if subset is None:
        return images
    assert isinstance(images, ImageFolder), f"the images of the layout {layout} are no files"
    return restrict(images, subset)


def _open_whole(
    root: str | Path, layout: str, variant: str | None, split: Split | None
) -> ImageFolder | CroppedObjects:
    if layout == "folder":
        return ImageFolder.scan(root)
    if layout == "class-folders":
        return ImageFolder.from_classes(root)
    assert split is not None, f"the layout {layout} has splits"
    if layout == "backgrounds-challenge":
        return load_variant(root, variant or "original", split)
    if layout == "coco":
        return load_coco(root, split).images
    if layout == "coco-crop":
        return CroppedObjects(load_coco(root, split))
    raise InputError("layout", layout, "is not known", "Use one of the layouts in docs/data.md.")


class TrueMasks:
    """True foreground masks and boxes of a data set, by index.

    Args:
        root: The folder.
        layout: `backgrounds-challenge` or `coco`.
        split: `train` or `val`.
        image_ids: The data set's images, or some of them, in order.

    Raises:
        InputError: The layout has no masks.
    """

    def __init__(self, root: str | Path, layout: str, split: Split, image_ids: list[str]) -> None:
        if layout not in ("backgrounds-challenge", "coco"):
            raise InputError("layout", layout, "has no true masks", "Use backgrounds-challenge or coco.")
        self._root = root
        self._split: Split = split
        self._image_ids = image_ids
        self._coco = load_coco(root, split).select(image_ids) if layout == "coco" else None

    @property
    def coco(self) -> CocoDataset | None:
        """The images with their numbers, in the same order, where the layout is COCO's."""
        return self._coco

    def __len__(self) -> int:
        return len(self._image_ids)

    def __getitem__(self, index: int) -> NDArray[np.bool_]:
        """Mask (H, W) at the image's size, true on any object."""
        if self._coco is not None:
            return self._coco.foreground_mask(index)
        return load_foreground_mask(self._root, self._split, self._image_ids[index])

    def boxes(self, index: int) -> NDArray[np.float64]:
        """Boxes (n, 4), x0 y0 x1 y1 relative to the image, of the objects that cover more than 1% of it.

        COCO's are the instances', crowds included, as the official code takes them. Where there is a mask alone,
        they are those around its regions.
        """
        if self._coco is not None:
            instances = self._coco.instances(index)
            boxes = [one.box_relative for one in instances if one.area_fraction > _MIN_BOX_AREA]
            return np.array(boxes, dtype=np.float64).reshape(-1, 4)
        mask = self[index]
        around, areas = region_boxes(mask)
        return around[areas > _MIN_BOX_AREA * mask.size]
