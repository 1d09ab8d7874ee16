"""The paper's trainings by the names of their recipes, and where their masks come from (docs/paper.md)."""

from __future__ import annotations

import re

from objectaware.config import PRESETS
from objectaware.paper.nodes import Images, Localize, Options, Pretrain, Published, options

TRAINING_IMAGES = {
    "coco": Images("COCO", "train"),
    "in9": Images("ImageNet-9", "train"),
    "imagenet10": Images("ImageNet", "train", subset="lists/imagenet-10-percent.txt"),
    "cub": Images("CUB-200-2011", "redo-train"),
    "flowers": Images("Flowers102", "redo-train"),
}
"""What a recipe learns from, by the part of its name behind the backbone."""

SEGMENTED_IMAGES = {
    "CUB": Images("CUB-200-2011", "redo-test"),
    "Flowers": Images("Flowers102", "redo-test"),
    "COCO": Images("COCO", "val"),
    "ImageNet-9": Images("ImageNet-9", "val"),
}
"""Images whose masks are measured, by the tables' names of the data sets."""

CROP: Options = options(PRESETS["crop"])
"""Boxes for object crop, and the masks that are measured."""
MIXUP: Options = options(PRESETS["mixup"])
"""Soft masks for background mixup."""

METHODS = {"MoCov2": "moco", "BYOL": "byol"}
"""The paper's names of the methods, and those of the recipes."""

SUPERVISED_IMAGENET = Published("torchvision ResNet-50 (ImageNet, supervised)")
MOCO_IMAGENET = Published("MoCo v2 ResNet-50 (ImageNet)")
FASTER_RCNN = Published("torchvision Faster R-CNN ResNet-50 (COCO)")
MASK_RCNN = Published("torchvision Mask R-CNN ResNet-50 (COCO)")
REDO = {name: Published(f"ReDO ({name})", "masks", images) for name, images in SEGMENTED_IMAGES.items()}
PUBLISHED_NAMES = tuple(
    one.name for one in (SUPERVISED_IMAGENET, MOCO_IMAGENET, FASTER_RCNN, MASK_RCNN, *REDO.values())
)
"""Networks and masks of others, as `--networks` names them."""

_MIX_PROBABILITIES = {"moco": 0.4, "byol": 0.3}


def recipe_parts(recipe: str) -> tuple[str, str, str, str]:
    """Splits the name of a recipe, METHOD_BACKBONE_DATA_POLICY; the policy is empty where there is none."""
    found = re.fullmatch(rf"([^_]+)_(.+?)_({'|'.join(TRAINING_IMAGES)})(?:_(.+))?", recipe)
    assert found is not None, f"{recipe} is not METHOD_BACKBONE_DATA_POLICY of a data set of the paper"
    method, backbone, data, policy = found.groups(default="")
    return method, backbone, data, policy


def training(recipe: str, *, seed: int = 0, mix_probability: float | None = None) -> Pretrain:
    """A training with all that comes before it.

    Masks are computed once, by the network of seed 0, for all seeds.

    Args:
        recipe: METHOD_BACKBONE_DATA, with the policy behind it.
        seed: Its seed.
        mix_probability: p_mix of a background policy; by default the recipe's.
    """
    method, backbone, data, policy = recipe_parts(recipe)
    images = TRAINING_IMAGES[data]
    masks = None
    if policy in ("object_crop", "object_crop_second"):
        # Boxes are those of MoCo v2 for both methods (appendix B.2).
        source = f"moco_{backbone}_{data}" + ("_object_crop" if policy.endswith("second") else "")
        masks = Localize(images, training(source), CROP)
    elif policy in ("background_mixup", "background_hardmix"):
        masks = Localize(images, training(f"{method}_{backbone}_{data}"), MIXUP)
    if policy.startswith("background") and mix_probability is None:
        mix_probability = _MIX_PROBABILITIES[method]
    return Pretrain(recipe, images, seed, masks, mix_probability)
