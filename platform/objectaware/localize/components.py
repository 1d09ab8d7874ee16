"""Removal of specks from binary masks."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from objectaware.errors import InputError


def keep_large_components(mask: NDArray[np.bool_], *, min_area: float) -> NDArray[np.bool_]:
    """Keep the 4-connected components whose area exceeds a fraction of the picture.

    The areas are the official code's: above 0.1% for mIoU, above 1% for boxes. Unlike there, a mask that
    fills the picture stays (it drops the first component it meets, taking it for the background).

    Args:
        mask: (H, W) boolean.
        min_area: Fraction of the picture in [0, 1); components of exactly this area go.

    Returns:
        (H, W) boolean, a subset of `mask`.

    Raises:
        InputError: A mask that is not boolean (H, W), a fraction out of range.
    """
    if mask.dtype != np.bool_ or mask.ndim != 2:
        raise InputError("mask", f"{mask.dtype} {mask.shape}", "must be boolean (H, W)", "Binarise it first.")
    if not 0 <= min_area < 1:
        raise InputError("min_area", min_area, "must lie in [0, 1)", "The official code takes 0.001 or 0.01.")
    _, component_of_pixel, statistics, _ = cv2.connectedComponentsWithStats(mask.astype(np.uint8), connectivity=4)
    is_large = statistics[:, cv2.CC_STAT_AREA] > min_area * mask.size
    is_large[0] = False  # Label 0 is what the mask leaves out, whether or not any such pixel exists.
    return np.asarray(is_large[component_of_pixel])
