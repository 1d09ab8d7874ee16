"""The changes of the positives: one policy per file, each a `Policy` with the hooks that it needs."""

from objectaware.training.policies.background_hardmix import BackgroundHardMix
from objectaware.training.policies.background_mixup import BackgroundMixup
from objectaware.training.policies.base import (
    NUM_MIX_DRAWS,
    NUM_POLICY_DRAWS,
    Boxes,
    Masks,
    PlainViews,
    Policy,
    Region,
)
from objectaware.training.policies.cutmix import CutMix
from objectaware.training.policies.mixup import Mixup
from objectaware.training.policies.object_crop import ObjectCrop
from objectaware.training.policies.official_background import OfficialBackground

__all__ = [
    "NUM_MIX_DRAWS",
    "NUM_POLICY_DRAWS",
    "BackgroundHardMix",
    "BackgroundMixup",
    "Boxes",
    "CutMix",
    "Masks",
    "Mixup",
    "ObjectCrop",
    "OfficialBackground",
    "PlainViews",
    "Policy",
    "Region",
]
