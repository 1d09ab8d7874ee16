"""Trivial answers that a localizer has to beat: they look at no picture, or at its contrast alone.

They take no part in localization. The scoring of masks puts them beside the masks, before and after the same CRF.
"""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from objectaware.errors import InputError
from objectaware.localize.objects import dense_crf

# The window is 25 pixels on pictures of 128 pixels. It was best of three (9, 15 and 25) on earlier scenes, whose
# objects had more contrast than their backgrounds.
_WINDOW_SHARE = 25 / 128
# Below this number of grey levels, differences are rounding errors of a picture of one colour.
_LEAST_CONTRAST = 1e-3
_LABEL_PROBABILITY = 0.7


def center_map(size: int) -> NDArray[np.float32]:
    """Return a soft mask (size, size) that falls off with the distance from the centre, from 1 to 0 at the corners.

    It is the baseline of Choe et al. (2020), which does not look at the pictures. Theirs falls off as a Gaussian; the
    order of the pixels, and so every foreground by a threshold, is the same.
    """
    offsets = np.arange(size) - (size - 1) / 2
    distance = np.hypot(offsets[:, None], offsets)
    return (1 - distance / distance.max()).astype(np.float32)


def contrast_map(image: NDArray[np.uint8], *, window: int | None = None) -> NDArray[np.float32]:
    """Return the local standard deviation of grey, from 0 where it is least in the picture to 1 where it is greatest.

    It shows how far objects stand out by contrast alone, without any learning. At the borders, the picture is mirrored.

    Args:
        image: (H, W, 3) uint8 RGB.
        window: Side in pixels of the square that is looked at around each pixel, an odd number; by default the odd
            number next to 25/128 of the shorter side.

    Returns:
        (H, W) float32 in [0, 1]; zeros for a picture of one colour.

    Raises:
        InputError: The image has another shape or type, or the window is not an odd number that fits into it.
    """
    if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3 or image.size == 0:
        found = f"{image.dtype} {image.shape}"
        raise InputError("image", found, "must be uint8 (H, W, 3)", "Decode it to RGB, do not normalise it.")
    shorter = min(image.shape[:2])
    side = 2 * int(shorter * _WINDOW_SHARE / 2) + 1 if window is None else window
    if side % 2 == 0 or not 0 < side <= 2 * shorter - 1:
        raise InputError("window", side, "must be odd, and less than twice the picture's sides", "Leave it out.")
    grey = cv2.cvtColor(image, cv2.COLOR_RGB2GRAY).astype(np.float64)
    mean, mean_of_squares = (
        cv2.blur(values, (side, side), borderType=cv2.BORDER_REFLECT_101) for values in (grey, grey**2)
    )
    deviation = np.sqrt(np.clip(mean_of_squares - mean**2, 0, None))
    contrast = deviation - deviation.min()
    if contrast.max() < _LEAST_CONTRAST:
        return np.zeros(grey.shape, dtype=np.float32)
    return np.asarray(contrast / contrast.max(), dtype=np.float32)


def refined_baseline(image: NDArray[np.uint8], baseline: NDArray[np.float32]) -> NDArray[np.float32]:
    """Refine a baseline's map by the CRF that masks go through in localization.

    A map of 0 and 1 alone, such as a box, becomes probabilities of 0.3 and 0.7 first, those of pydensecrf's example for
    labels. At 0 and 1 the unary energies are ±46, and no CRF would move an edge.

    Args:
        image: (H, W, 3) uint8 RGB.
        baseline: (H, W) in [0, 1].

    Returns:
        (H, W) float32 in [0, 1]; an empty map stays empty, as in localization, and a full one full. The CRF would move
        neither across 0.5, since there is no edge.
    """
    if not baseline.any() or (baseline == 1).all():
        return baseline
    if ((baseline == 0) | (baseline == 1)).all():
        baseline = np.where(baseline > 0, _LABEL_PROBABILITY, 1 - _LABEL_PROBABILITY).astype(np.float32)
    return dense_crf(image, baseline)
