"""True masks and boxes of a data set, by its layout."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from objectaware.data.backgrounds_challenge import load_foreground_mask
from objectaware.data.coco import CocoDataset, load_coco
from objectaware.data.masks import region_boxes
from objectaware.errors import InputError

_MIN_BOX_AREA = 0.01


class GroundTruth:
    """True foreground masks and boxes of a data set, by index.

    Args:
        root: The folder.
        layout: `backgrounds-challenge` or `coco`.
        split: `train` or `val`.
        image_ids: The data set's images, or some of them, in order.

    Raises:
        InputError: The layout has no masks.
    """

    def __init__(self, root: str | Path, layout: str, split: str, image_ids: list[str]) -> None:
        if layout not in ("backgrounds-challenge", "coco"):
            raise InputError("layout", layout, "has no true masks", "Use backgrounds-challenge or coco.")
        self._root = root
        self._split = split
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
