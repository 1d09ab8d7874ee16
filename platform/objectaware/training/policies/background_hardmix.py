"""Policy `background_hardmix`: the object copied onto another image's background."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import model_validator

from objectaware.augment.background import BACKGROUND_THRESHOLD
from objectaware.config import GROUND_TRUTH
from objectaware.model import Fraction, filled
from objectaware.training.policies.background_mixup import BackgroundConfig, BackgroundMixup


class BackgroundHardMix(BackgroundMixup):
    """Policy `background_hardmix`: background mixup with a binary mask, a copy-and-paste.

    The mask is binarised at the threshold when it is used, at the crop's resolution. Everything else is the same as in
    background mixup.

    Source:
        Paper §2.3 and its appendix "soft or hard" (BG-HardMix): "the copy-and-paste version with the binarized CAM"
        and with ground-truth masks. The official code does not contain it.
    """

    binarises = True


class BackgroundHardMixConfig(BackgroundConfig):
    """The object is copied onto another image's background: background mixup with a binary mask.

    Attributes:
        masks: Mask store from which the policy takes masks; or `ground_truth` for the data set's own.
        mask_field: Mask of the store that serves as weight: `cam` for the soft one (the default), `mask` for the one
            after CRF.
        background_threshold: Smallest value of a soft mask that is foreground, both when a background is cut out and
            when the object is copied; 0.2 by default. True masks need no threshold.
    """

    takes: ClassVar = "masks"
    policy: ClassVar = BackgroundHardMix

    name: Literal["background_hardmix"] = "background_hardmix"
    mask_field: Literal["cam", "mask"] | None = None
    background_threshold: Fraction | None = None

    @model_validator(mode="before")
    @classmethod
    def _fill_defaults(cls, values: object) -> object:
        """Fill in the defaults for found masks, so that a stored recipe is complete."""
        if not isinstance(values, dict) or values.get("masks") == GROUND_TRUTH:
            return values
        return filled(values, {"mask_field": "cam", "background_threshold": BACKGROUND_THRESHOLD})

    @model_validator(mode="after")
    def _truth_is_binary(self) -> Self:
        for field in ("mask_field", "background_threshold"):
            if self.masks == GROUND_TRUTH and getattr(self, field) is not None:
                raise ValueError(f"{field} has no meaning with masks = ground_truth; leave it out")
        return self
