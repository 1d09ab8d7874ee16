"""Masks and boxes of the training images: found ones from a mask store, or true ones."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from objectaware.config import GROUND_TRUTH, DataConfig, MaskedPolicyConfig, PolicyInputs
from objectaware.data.dataset import Dataset, TrainingImages
from objectaware.data.masks import OBJECT_MARGIN, expand_box, in_8_bits
from objectaware.data.pack import PackedImages
from objectaware.data.storage import Storage
from objectaware.errors import InputError
from objectaware.localize.mask_store import MaskTable
from objectaware.training.policies.base import Boxes, Masks


class LocatedPolicyConfig(MaskedPolicyConfig):
    """Base of policies that open masks or boxes."""

    def open_truth(self, data: DataConfig, images: TrainingImages) -> object:
        """Open the true boxes or masks that the policy takes; return None if it takes those of a mask store."""
        if self.masks != GROUND_TRUTH:
            return None
        return _true_boxes(self, data, images) if self.takes == "boxes" else _true_masks(self, data, images)

    def open_boxes(self, inputs: PolicyInputs) -> Boxes:
        """Open each image's boxes: none if its localization failed, and no true ones if another image stands in.

        Raises:
            InputError: The boxes are missing or malformed.
        """
        if self.masks == GROUND_TRUTH:
            return _true_boxes(self, inputs.data, inputs.images)
        table, image_ids = self._table(inputs), inputs.images.image_ids

        def read(index: int) -> NDArray[np.float32]:
            boxes = table.boxes(image_ids[index])
            return _NO_BOXES if boxes is None else boxes

        return read

    def open_masks(self, inputs: PolicyInputs, *, binary: bool) -> Masks:
        """Open each image's mask: None if its localization failed, and no true one if another image stands in.

        Args:
            inputs: The images, and the folder for the mask store's copy.
            binary: Whether to take the binary masks of a mask store instead of the soft ones.

        Raises:
            InputError: The masks are missing or malformed.
        """
        if self.masks == GROUND_TRUTH:
            return _true_masks(self, inputs.data, inputs.images)
        table, image_ids = self._table(inputs), inputs.images.image_ids

        def read(index: int) -> NDArray[np.uint8] | None:
            if not binary:
                return table.cam(image_ids[index])
            mask = table.mask(image_ids[index])
            return None if mask is None else in_8_bits(mask)

        return read

    def _table(self, inputs: PolicyInputs) -> MaskTable:
        return MaskTable.open(Storage.from_uri(self.masks), inputs.cache_folder)


_NO_BOXES = np.zeros((0, 4), dtype=np.float32)


def _true_boxes(policy: MaskedPolicyConfig, data: DataConfig, images: TrainingImages) -> Boxes:
    """Open the data set's own boxes, with the margin of the object-aware crop.

    Another image stands in for one that cannot be read. Its boxes would not fit, and it has none here.
    """
    opened = Dataset.of(data)
    pack = _pack(policy, data, images) if opened.is_pack else None
    boxes = None if pack is not None else opened.training_boxes(images.image_ids)

    def read(index: int) -> NDArray[np.float32]:
        if images.is_unreadable(index):
            return _NO_BOXES
        if boxes is not None:
            return boxes[index]
        assert pack is not None
        widened = [expand_box(tuple(box), OBJECT_MARGIN) for box in pack.boxes(index).tolist()]
        return np.array(widened, dtype=np.float32).reshape(-1, 4)

    return read


def _true_masks(policy: MaskedPolicyConfig, data: DataConfig, images: TrainingImages) -> Masks:
    """Open the data set's own masks, with values 0 and 255; None for an image for which another one stands in."""
    opened = Dataset.of(data)
    foreground: Callable[[int], NDArray[np.bool_]]
    if opened.is_pack:
        foreground = _pack(policy, data, images).mask
    else:
        truth = opened.training_truth(images.image_ids)
        if not truth.has_masks:
            raise InputError("policy.masks", GROUND_TRUTH, "is not available", truth.notice)
        foreground = truth.__getitem__
    return lambda index: None if images.is_unreadable(index) else in_8_bits(foreground(index))


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
        remedy = "Pack the data set again where its masks are, or train on its folder."
        raise InputError("data.root", root, "is a pack without true masks and boxes", remedy)
