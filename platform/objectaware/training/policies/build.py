"""From a configuration to its policy."""

from __future__ import annotations

from pathlib import Path

from objectaware.config import GROUND_TRUTH, PretrainConfig
from objectaware.config.policies import true_layouts
from objectaware.data.cache import TrainingImages
from objectaware.data.dataset import Dataset
from objectaware.data.shards import PackedImages
from objectaware.data.storage import Storage
from objectaware.errors import InputError
from objectaware.localize.mask_table import MaskTable
from objectaware.training.policies.background_hardmix import BackgroundHardMix
from objectaware.training.policies.background_mixup import BackgroundMixup
from objectaware.training.policies.base import Boxes, Masks, PlainViews, Policy
from objectaware.training.policies.cutmix import CutMix
from objectaware.training.policies.masks import (
    PackedBoxes,
    StoredBoxes,
    StoredMasks,
    TrueBoxes,
    TrueMasks,
)
from objectaware.training.policies.mixup import Mixup
from objectaware.training.policies.object_crop import ObjectCrop
from objectaware.training.policies.official_background import OfficialBackground

# Of true masks, which are 0 and 1 but where a resize has blended their edges.
_BINARY_THRESHOLD = 0.5


def build_policy(config: PretrainConfig, images: TrainingImages, cache_folder: Path) -> Policy:
    """Builds the policy that a configuration names.

    Args:
        config: Names it.
        images: The images to train on.
        cache_folder: Local folder that the workers of a node share, for the mask store's copy.

    Raises:
        InputError: The masks do not fit the images.
    """
    official = config.compat == "official"
    if config.policy == "object_crop":
        return ObjectCrop(_boxes(config, images, cache_folder))
    if config.policy in ("background_mixup", "background_hardmix"):
        return _background_policy(config, images, _masks(config, images, cache_folder))
    if config.policy == "mixup":
        # The official code averages the loss before λ weighs it for MoCo, not for BYOL.
        return Mixup(official=official, average_weights=official and config.method == "moco")
    return CutMix(official=official) if config.policy == "cutmix" else PlainViews()


def _background_policy(config: PretrainConfig, images: TrainingImages, masks: Masks) -> Policy:
    hard = config.policy == "background_hardmix"
    assert config.mix_probability is not None
    threshold = _BINARY_THRESHOLD if config.background_threshold is None else config.background_threshold
    if config.compat == "official":
        return OfficialBackground(masks, probability=config.mix_probability, threshold=threshold, hard=hard)
    kind = BackgroundHardMix if hard else BackgroundMixup
    policy = kind(images, masks, probability=config.mix_probability, threshold=threshold)
    if not len(policy.donors):
        assert config.masks is not None
        problem = "holds no background for any of the images"
        raise InputError("masks", config.masks, problem, "Localize these images first.")
    return policy


def _boxes(config: PretrainConfig, images: TrainingImages, cache_folder: Path) -> Boxes:
    if config.masks != GROUND_TRUTH:
        return StoredBoxes(_table(config, cache_folder), images.image_ids)
    return _true_boxes(config, images)


def _masks(config: PretrainConfig, images: TrainingImages, cache_folder: Path) -> Masks:
    if config.masks != GROUND_TRUTH:
        return StoredMasks(_table(config, cache_folder), images.image_ids, binary=config.mask_field == "mask")
    return _true_masks(config, images)


def open_truth(config: PretrainConfig, images: TrainingImages) -> TrueBoxes | TrueMasks | None:
    """Opens the true boxes or masks that `build_policy` takes, with no more than it takes; None without any.

    Args:
        config: Names the policy.
        images: The images to train on.

    Raises:
        InputError: They are missing or malformed.
    """
    if config.masks != GROUND_TRUTH:
        return None
    return _true_boxes(config, images) if config.policy == "object_crop" else _true_masks(config, images)


def _true_boxes(config: PretrainConfig, images: TrainingImages) -> TrueBoxes:
    data = Dataset(config.data)
    packed = data.layout.is_pack
    boxes: Boxes = PackedBoxes(_pack(config, images)) if packed else data.training_boxes(images.image_ids)
    return TrueBoxes(boxes, images.image_ids, images.unreadable)


def _true_masks(config: PretrainConfig, images: TrainingImages) -> TrueMasks:
    data = Dataset(config.data)
    if data.layout.is_pack:
        return TrueMasks(_pack(config, images).mask, images.image_ids, images.unreadable)
    truth = data.training_truth(images.image_ids)
    if not truth.has_masks:
        raise InputError("masks", GROUND_TRUTH, "is not there", truth.notice)
    return TrueMasks(truth.__getitem__, images.image_ids, images.unreadable)


def _pack(config: PretrainConfig, images: TrainingImages) -> PackedImages:
    require_packed_truth(config)
    assert isinstance(images.source, PackedImages)
    return images.source


def require_packed_truth(config: PretrainConfig) -> None:
    """Refuses a pack for the masks or boxes that `masks: ground_truth` takes from it.

    Raises:
        InputError: It holds none, or was made of a data set from whose folder the policy would not take them.
    """
    root = config.data.root
    packed = PackedImages.describe(root)
    layout, layouts = packed["source"].get("layout", "unknown"), true_layouts(config.policy)
    if layout not in layouts:
        problem = f"is a pack of layout {layout}, and masks = ground_truth of {config.policy} is for a pack of "
        raise InputError("data.root", root, problem + " or ".join(layouts), "Give masks of a mask store.")
    if not packed["has_masks"]:
        remedy = "Pack the data set where its masks are, too, or train on its folder."
        raise InputError("data.root", root, "is a pack without true masks and boxes", remedy)


def _table(config: PretrainConfig, cache_folder: Path) -> MaskTable:
    assert config.masks is not None
    return MaskTable.open(Storage.from_uri(config.masks), cache_folder)
