"""Masks and boxes of the images to train on: found ones out of a mask store, or true ones."""

from __future__ import annotations

from collections.abc import Callable, Container

import numpy as np
from numpy.typing import NDArray

from objectaware.data.boxes import OBJECT_MARGIN
from objectaware.data.coco import expand_box
from objectaware.data.masks import in_8_bits
from objectaware.data.shards import PackedImages
from objectaware.localize.mask_table import MaskTable
from objectaware.training.policies.base import Boxes


class StoredMasks:
    """Masks of a data set's images out of a mask table.

    Args:
        table: The masks.
        image_ids: The data set's images, in order.
        binary: The binary masks instead of the soft ones.
    """

    def __init__(self, table: MaskTable, image_ids: list[str], *, binary: bool) -> None:
        self._table = table
        self._image_ids = image_ids
        self._binary = binary

    def __len__(self) -> int:
        return len(self._image_ids)

    def __getitem__(self, index: int) -> NDArray[np.uint8] | None:
        """Mask in 8 bits, (h, w), or None where localization failed."""
        if not self._binary:
            return self._table.cam(self._image_ids[index])
        mask = self._table.mask(self._image_ids[index])
        return None if mask is None else in_8_bits(mask)


class StoredBoxes:
    """Boxes of a data set's images out of a mask table, empty where localization failed."""

    def __init__(self, table: MaskTable, image_ids: list[str]) -> None:
        self._table = table
        self._image_ids = image_ids

    def __getitem__(self, index: int) -> NDArray[np.float32]:
        """Relative boxes, (n, 4)."""
        boxes = self._table.boxes(self._image_ids[index])
        return np.zeros((0, 4), dtype=np.float32) if boxes is None else boxes


class TrueMasks:
    """True masks of a data set's images.

    Args:
        foreground: Gives the mask (H, W) of an index.
        image_ids: The data set's images, in order.
        unreadable: Images that could not be read. Another one stands in for such an image, whose mask would not
            fit, so that it has none here.
    """

    def __init__(
        self, foreground: Callable[[int], NDArray[np.bool_]], image_ids: list[str], unreadable: Container[str]
    ) -> None:
        self._foreground = foreground
        self._image_ids = image_ids
        self._unreadable = unreadable

    def __len__(self) -> int:
        return len(self._image_ids)

    def __getitem__(self, index: int) -> NDArray[np.uint8] | None:
        """Mask in 8 bits, (H, W): 0 and 255."""
        return None if self._image_ids[index] in self._unreadable else in_8_bits(self._foreground(index))


class TrueBoxes:
    """True boxes of a data set's images, none for an image that another one stands in for (see `TrueMasks`)."""

    def __init__(self, boxes: Boxes, image_ids: list[str], unreadable: Container[str]) -> None:
        self._boxes = boxes
        self._image_ids = image_ids
        self._unreadable = unreadable

    def __getitem__(self, index: int) -> NDArray[np.float32]:
        """Relative boxes, (n, 4)."""
        if self._image_ids[index] in self._unreadable:
            return np.zeros((0, 4), dtype=np.float32)
        return self._boxes[index]


class PackedBoxes:
    """Boxes that were packed with their images, with the margin of the object-aware crop, as `ObjectBoxes` gives them.

    Args:
        images: The pack.
    """

    def __init__(self, images: PackedImages) -> None:
        self._images = images

    def __getitem__(self, index: int) -> NDArray[np.float32]:
        """Relative boxes, (n, 4)."""
        boxes = [expand_box(tuple(box), OBJECT_MARGIN) for box in self._images.boxes(index).tolist()]
        return np.array(boxes, dtype=np.float32).reshape(-1, 4)
