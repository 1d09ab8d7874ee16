"""Masks and boxes of the training images: found ones from a mask store, or true ones."""

from __future__ import annotations

from collections.abc import Callable, Container
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from objectaware.config import GROUND_TRUTH, DataConfig, MaskedPolicyConfig
from objectaware.data.dataset import Dataset, TrainingImages
from objectaware.data.masks import OBJECT_MARGIN, expand_box, in_8_bits
from objectaware.data.pack import PackedImages
from objectaware.data.storage import Storage
from objectaware.errors import InputError
from objectaware.localize.mask_table import MaskTable
from objectaware.training.policies.base import Boxes


class StoredMasks:
    """Masks of a data set's images from a mask table.

    Args:
        table: The masks.
        image_ids: The data set's images, in order.
        binary: Whether to take the binary masks instead of the soft ones.
    """

    def __init__(self, table: MaskTable, image_ids: list[str], *, binary: bool) -> None:
        self._table = table
        self._image_ids = image_ids
        self._binary = binary

    def __len__(self) -> int:
        return len(self._image_ids)

    def __getitem__(self, index: int) -> NDArray[np.uint8] | None:
        """Return the mask in 8 bits, (h, w), or None if localization failed."""
        if not self._binary:
            return self._table.cam(self._image_ids[index])
        mask = self._table.mask(self._image_ids[index])
        return None if mask is None else in_8_bits(mask)


class StoredBoxes:
    """Boxes of a data set's images from a mask table. An image whose localization failed has none."""

    def __init__(self, table: MaskTable, image_ids: list[str]) -> None:
        self._table = table
        self._image_ids = image_ids

    def __getitem__(self, index: int) -> NDArray[np.float32]:
        """Return the relative boxes, (n, 4)."""
        boxes = self._table.boxes(self._image_ids[index])
        return np.zeros((0, 4), dtype=np.float32) if boxes is None else boxes


class TrueMasks:
    """True masks of a data set's images.

    Args:
        foreground: Function that returns the mask (H, W) of an index.
        image_ids: The data set's images, in order.
        unreadable: Images that could not be read. Another image stands in for such an image, and the mask would not
            fit it; such an image therefore has no mask here.
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
        """Return the mask in 8 bits, (H, W), with values 0 and 255."""
        return None if self._image_ids[index] in self._unreadable else in_8_bits(self._foreground(index))


class TrueBoxes:
    """True boxes of a data set's images. An image for which another one stands in has none (see `TrueMasks`)."""

    def __init__(self, boxes: Boxes, image_ids: list[str], unreadable: Container[str]) -> None:
        self._boxes = boxes
        self._image_ids = image_ids
        self._unreadable = unreadable

    def __getitem__(self, index: int) -> NDArray[np.float32]:
        """Return the relative boxes, (n, 4)."""
        if self._image_ids[index] in self._unreadable:
            return np.zeros((0, 4), dtype=np.float32)
        return self._boxes[index]


class PackedBoxes:
    """Boxes that were packed with their images, with the margin of the object-aware crop, as in `ObjectBoxes`.

    Args:
        images: The pack.
    """

    def __init__(self, images: PackedImages) -> None:
        self._images = images

    def __getitem__(self, index: int) -> NDArray[np.float32]:
        """Return the relative boxes, (n, 4)."""
        boxes = [expand_box(tuple(box), OBJECT_MARGIN) for box in self._images.boxes(index).tolist()]
        return np.array(boxes, dtype=np.float32).reshape(-1, 4)


def open_boxes(
    policy: MaskedPolicyConfig, data: DataConfig, images: TrainingImages, cache_folder: Path
) -> StoredBoxes | TrueBoxes:
    """Open the boxes that a policy takes.

    Args:
        policy: Configuration of the policy, which says where the boxes are.
        data: The data set.
        images: The data set's opened images.
        cache_folder: Local folder for the mask store's copy.

    Raises:
        InputError: The boxes are missing or malformed.
    """
    if policy.masks == GROUND_TRUTH:
        return true_boxes(policy, data, images)
    return StoredBoxes(MaskTable.open(Storage.from_uri(policy.masks), cache_folder), images.image_ids)


def open_masks(
    policy: MaskedPolicyConfig, data: DataConfig, images: TrainingImages, cache_folder: Path, *, binary: bool
) -> StoredMasks | TrueMasks:
    """Open the masks that a policy takes; arguments and errors are as for `open_boxes`.

    With `binary`, the masks of a store are the binary ones instead of the soft ones.
    """
    if policy.masks == GROUND_TRUTH:
        return true_masks(policy, data, images)
    table = MaskTable.open(Storage.from_uri(policy.masks), cache_folder)
    return StoredMasks(table, images.image_ids, binary=binary)


def true_boxes(policy: MaskedPolicyConfig, data: DataConfig, images: TrainingImages) -> TrueBoxes:
    """Open the data set's own boxes, with the margin of the object-aware crop.

    Raises:
        InputError: The boxes are missing or malformed.
    """
    opened = Dataset(data)
    packed = opened.layout.is_pack
    boxes: Boxes = PackedBoxes(_pack(policy, data, images)) if packed else opened.training_boxes(images.image_ids)
    return TrueBoxes(boxes, images.image_ids, images.unreadable)


def true_masks(policy: MaskedPolicyConfig, data: DataConfig, images: TrainingImages) -> TrueMasks:
    """Open the data set's own masks.

    Raises:
        InputError: The masks are missing or malformed.
    """
    opened = Dataset(data)
    if opened.layout.is_pack:
        return TrueMasks(_pack(policy, data, images).mask, images.image_ids, images.unreadable)
    truth = opened.training_truth(images.image_ids)
    if not truth.has_masks:
        raise InputError("policy.masks", GROUND_TRUTH, "is not there", truth.notice)
    return TrueMasks(truth.__getitem__, images.image_ids, images.unreadable)


def _pack(policy: MaskedPolicyConfig, data: DataConfig, images: TrainingImages) -> PackedImages:
    require_packed_truth(policy, data)
    assert isinstance(images.source, PackedImages)
    return images.source


def require_packed_truth(policy: MaskedPolicyConfig, data: DataConfig) -> None:
    """Refuse a pack from which `masks: ground_truth` cannot take masks or boxes.

    Raises:
        InputError: The pack holds none, or was made from a data set whose masks or boxes the policy would not take.
    """
    root = data.root
    packed = PackedImages.describe(root)
    layout, layouts = packed["source"].get("layout", "unknown"), policy.true_layouts()
    if layout not in layouts:
        problem = f"is a pack of layout {layout}, and policy.masks = ground_truth of {policy.name} is for a pack of "
        raise InputError("data.root", root, problem + " or ".join(layouts), "Give masks of a mask store.")
    if not packed["has_masks"]:
        remedy = "Pack the data set where its masks are, too, or train on its folder."
        raise InputError("data.root", root, "is a pack without true masks and boxes", remedy)
