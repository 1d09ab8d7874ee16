"""Policy `background_mixup`: the object on another image's background, as the paper describes it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

import numpy as np
from numpy.typing import NDArray

from objectaware.augment.background import BACKGROUND_THRESHOLD, cut_background, mix_background, tile
from objectaware.augment.crop import crop_mask
from objectaware.config import GROUND_TRUTH, DataConfig, MaskedPolicyConfig, MethodConfig
from objectaware.data.dataset import TrainingImages
from objectaware.data.images import Images
from objectaware.errors import InputError
from objectaware.model import Fraction
from objectaware.training.policies.base import Masks, Policy, Region
from objectaware.training.policies.masks import TrueMasks, open_masks, true_masks
from objectaware.training.policies.official_background import OfficialBackground
from objectaware.training.policies.rectangles import background_rectangles

if TYPE_CHECKING:
    from objectaware.config import PretrainConfig


class BackgroundConfig(MaskedPolicyConfig):
    """Base of policies that put the object on another image's background.

    Attributes:
        mix_probability: p_mix, the fraction of views that are mixed; by default the paper's value for the method, and
            0.4 for all methods with `compat: official`.
        mask_field: Mask of the store that serves as weight: `cam` for the soft one, `mask` for the one after CRF.
        background_threshold: Smallest value of a soft mask that is foreground when a background is cut out.
        compat: `official` to take donors from the batch, use strips of them as backgrounds, and mix only view 1.
    """

    mix_probability: Fraction | None = None
    mask_field: Literal["cam", "mask"] | None = "cam"
    background_threshold: Fraction | None = BACKGROUND_THRESHOLD
    compat: Literal["official"] | None = None

    def completed(self, method: MethodConfig) -> Self:
        """Return the policy with the default p_mix of the method; the official code has one p_mix for all methods."""
        if self.mix_probability is not None:
            return self
        default = method.mix_probability if self.compat is None else _OFFICIAL_MIX_PROBABILITY
        return self.model_copy(update={"mix_probability": default})

    def problem(self, config: PretrainConfig) -> str | None:
        """Return the problem, or None. Some methods have no default p_mix."""
        if self.mix_probability is None:
            return f"policy.mix_probability is missing: the paper has none for the method {config.method.name}"
        return super().problem(config)

    def open_truth(self, data: DataConfig, images: TrainingImages) -> TrueMasks | None:
        """Open the true masks."""
        return true_masks(self, data, images) if self.masks == GROUND_TRUTH else None

    def _masks(self, data: DataConfig, images: TrainingImages, cache_folder: Path) -> Masks:
        return open_masks(self, data, images, cache_folder, binary=self.mask_field == "mask")

    def _require_donors(self, policy: BackgroundMixup) -> None:
        if not len(policy.donors):
            problem = "holds no background for any of the images"
            raise InputError("policy.masks", self.masks, problem, "Localize these images first.")


_OFFICIAL_MIX_PROBABILITY = 0.4


class BackgroundMixupConfig(BackgroundConfig):
    """The object is put on another image's background, independently in each view (paper, section 2.3).

    Attributes:
        masks: Mask store from which the policy takes soft masks.
    """

    name: Literal["background_mixup"] = "background_mixup"
    mask_field: Literal["cam", "mask"] = "cam"
    background_threshold: Fraction = BACKGROUND_THRESHOLD

    def build(
        self, *, data: DataConfig, images: TrainingImages, method: MethodConfig, cache_folder: Path
    ) -> BackgroundMixup | OfficialBackground:
        """Build the policy on the images' soft masks."""
        assert self.mix_probability is not None, "a pretraining completes its policy"
        masks = self._masks(data, images, cache_folder)
        probability, threshold = self.mix_probability, self.background_threshold
        if self.compat is not None:
            return OfficialBackground(masks, probability=probability, threshold=threshold, hard=False)
        policy = BackgroundMixup(images, masks, probability=probability, threshold=threshold)
        self._require_donors(policy)
        return policy


class BackgroundMixup(Policy):
    """Policy `background_mixup`: with some probability, each view independently gets another image's background.

    Donors are drawn from the whole data set, as a function of seed, epoch and sample. The number of workers therefore
    does not change the mixtures (paper §2.3, eq. 4; the official code draws donors from the batch).

    Args:
        images: The data set, for the donors' pixels.
        masks: Each image's soft mask.
        probability: p_mix, in [0, 1].
        threshold: Smallest value of a soft mask that is foreground when a background is cut out.

    Attributes:
        donors: Indices of the images that have a background.
    """

    def __init__(
        self,
        images: Images,
        masks: Masks,
        *,
        probability: float,
        threshold: float = BACKGROUND_THRESHOLD,
    ) -> None:
        self._images = images
        self._masks = masks
        self._probability = probability
        self._threshold = threshold
        self._rectangles = background_rectangles(masks, threshold)
        self.donors = np.flatnonzero(self._rectangles[:, 2] > 0)

    def change_patch(
        self,
        patch: NDArray[np.uint8],
        index: int,
        crop: Region,
        height: int,
        width: int,
        draws: NDArray[np.float64],
    ) -> NDArray[np.uint8]:
        """Put the patch's object on a donor's background, with probability p.

        Without a mask or a donor the patch stays unchanged.
        """
        mask = self._masks[index]
        if draws[0] >= self._probability or mask is None or not self.weights(mask).any() or not len(self.donors):
            return patch
        donor = int(self.donors[int(draws[1] * len(self.donors))])
        top, left, crop_height, crop_width = crop
        y, x, rows, columns, mask_height, mask_width = (int(value) for value in self._rectangles[donor])
        background = tile(
            cut_background(self._images.read(donor), (y, x, rows, columns), mask_height, mask_width),
            slice(top, top + crop_height),
            slice(left, left + crop_width),
        )
        return mix_background(patch, self.weights(crop_mask(mask, np.array(crop), height, width)), background)

    def weights(self, mask: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Return the weights of the image's own pixels, in 8 bits; here the soft mask itself (eq. 4)."""
        return mask
