"""Policy `background_hardmix`: the object copied onto another image's background."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from objectaware.data.masks import in_8_bits
from objectaware.training.policies.background_mixup import BackgroundMixup


class BackgroundHardMix(BackgroundMixup):
    """Policy `background_hardmix`: background mixup with a mask of two values, a copy-and-paste.

    The mask is binarised at the threshold where it is used, at the crop's resolution. Everything else is background
    mixup's.

    Source:
        Paper §2.3 and its appendix "soft or hard" (BG-HardMix): "the copy-and-paste version with the binarized CAM"
        and with ground-truth masks. The official code has none of it.
    """

    def weights(self, mask: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """255 where the mask is foreground, else 0."""
        return in_8_bits(mask >= self._threshold * 255)
