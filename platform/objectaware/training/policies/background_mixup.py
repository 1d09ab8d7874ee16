"""Policy `background_mixup`: the object on another image's background, as the paper describes it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from objectaware.augment.background import BACKGROUND_THRESHOLD, cut_background, mix_background, tile
from objectaware.augment.crop import crop_mask
from objectaware.data.images import Images
from objectaware.training.policies.base import Masks, Policy, Region
from objectaware.training.policies.rectangles import background_rectangles


class BackgroundMixup(Policy):
    """Policy `background_mixup`: each view on its own, with some probability, on another image's background.

    Donors are drawn from the whole data set as a function of seed, epoch and sample, so the same run with more
    workers mixes the same (paper §2.3, eq. 4; the official code draws donors from the batch).

    Args:
        images: The data set, for the donors' pixels.
        masks: Each image's soft mask.
        probability: p_mix, in [0, 1].
        threshold: A soft mask is foreground from here on when a background is cut out.

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
        """The patch's object on a donor's background, with probability p; unchanged without a mask or donor."""
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
        """What the image's own pixels are weighed with, in 8 bits; here the soft mask itself (eq. 4)."""
        return mask
