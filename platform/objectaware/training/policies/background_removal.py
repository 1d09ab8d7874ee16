"""Policy `background_removal`: the object on a background of one grey."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np

from objectaware.augment.background import mix_background
from objectaware.augment.crop import crop_mask
from objectaware.config import PolicyInputs
from objectaware.model import Fraction
from objectaware.training.policies.base import Draws, Masks, Pixels, Policy, Region
from objectaware.training.policies.masks import LocatedPolicyConfig


class BackgroundRemovalConfig(LocatedPolicyConfig):
    """The background is replaced by one grey, each view on its own (Ryali, Schwab & Morcos 2021, BG_RM).

    Attributes:
        masks: Mask store from which the policy takes masks; or `ground_truth` for the data set's own.
        remove_probability: Fraction of the views that lose their background.
        mask_field: Mask of the store that serves as weight: `cam` for the soft one, `mask` for the one after CRF.
    """

    takes: ClassVar = "masks"

    name: Literal["background_removal"] = "background_removal"
    remove_probability: Fraction
    mask_field: Literal["cam", "mask"] = "cam"

    def build(self, inputs: PolicyInputs) -> BackgroundRemoval:
        """Build the policy on the images' masks."""
        masks = self.open_masks(inputs, binary=self.mask_field == "mask")
        return BackgroundRemoval(masks, probability=self.remove_probability)


class BackgroundRemoval(Policy):
    """Policy `background_removal`: each view on its own, with some probability, on one grey.

    Args:
        masks: Each image's soft mask, by which its own pixels are weighed.
        probability: Share of the views that are changed, in [0, 1].

    Source:
        Ryali, Schwab & Morcos 2021, "Characterizing and Improving the Robustness of Self-Supervised Learning through
        Background Augmentations" (arXiv 2103.12719), BG_RM. The masks there come from an unsupervised saliency network.
    """

    def __init__(self, masks: Masks, *, probability: float) -> None:
        self._masks = masks
        self._probability = probability

    def change_patch(self, patch: Pixels, index: int, crop: Region, height: int, width: int, draws: Draws) -> Pixels:
        """Put the patch's object on a random grey. Without a mask the patch stays unchanged."""
        mask = self._masks(index)
        if draws[0] >= self._probability or mask is None or not mask.any():
            return patch
        grey = np.full_like(patch, int(draws[1] * 256))
        return mix_background(patch, crop_mask(mask, crop, height, width), grey)
