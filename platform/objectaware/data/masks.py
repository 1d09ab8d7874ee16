"""Masks and boxes of objects as arrays: sizes, 8-bit and PNG forms, boxes around regions, boxes in whole pixels.

Functions import OpenCV where they use it, since configurations import this module.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

MIN_BOX_AREA = 0.01
"""Share of the picture that an object must exceed to have a box; published boxes may be smaller."""
OBJECT_MARGIN = 0.2
"""Margin that the paper adds to each side of an object's box, as a fraction of its width or height."""

Box = tuple[float, float, float, float]
"""x0, y0, x1, y1, relative to a picture."""


def expand_box(box: Box, margin: float) -> Box:
    """Add to each side of a relative box a fraction of its width or height, cut at the picture's border."""
    left, top, right, bottom = box
    width, height = (right - left) * margin, (bottom - top) * margin
    return max(left - width, 0.0), max(top - height, 0.0), min(right + width, 1.0), min(bottom + height, 1.0)


def pixel_region(box: Iterable[float], height: int, width: int) -> tuple[int, int, int, int]:
    """Return the pixels that a relative box touches.

    Args:
        box: x0, y0, x1, y1, from 0 to 1.
        height: Of the image in pixels.
        width: Of the image in pixels.

    Returns:
        (top, left, height, width) in pixels, inside the image and at least one pixel per side.
    """
    x0, y0, x1, y1 = (float(value) for value in box)
    left, top = min(int(x0 * width), width - 1), min(int(y0 * height), height - 1)
    right, bottom = min(math.ceil(x1 * width), width), min(math.ceil(y1 * height), height)
    return top, left, max(bottom - top, 1), max(right - left, 1)


def resize_mask(mask: NDArray[np.bool_], height: int, width: int) -> NDArray[np.bool_]:
    """Bring a mask to another size by nearest neighbour; (H, W) to (height, width)."""
    if mask.shape == (height, width):
        return mask
    import cv2

    resized = cv2.resize(mask.astype(np.uint8), (width, height), interpolation=cv2.INTER_NEAREST_EXACT)
    return resized.astype(np.bool_)


def in_8_bits(mask: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """Return a mask (H, W) as 0 and 255."""
    return mask.astype(np.uint8) * np.uint8(255)


def mask_png(mask: NDArray[np.bool_]) -> bytes:
    """Encode a mask (H, W) as a black and white PNG."""
    import cv2

    _, png = cv2.imencode(".png", in_8_bits(mask))
    return png.tobytes()


def region_boxes(mask: NDArray[np.bool_]) -> tuple[NDArray[np.float64], NDArray[np.int32]]:
    """Return the boxes around the 4-connected regions of a mask.

    Args:
        mask: (H, W).

    Returns:
        Boxes (n, 4), x0 y0 x1 y1 relative to the picture, and the regions' areas (n,) in pixels.
    """
    import cv2

    _, _, statistics, _ = cv2.connectedComponentsWithStats(mask.astype(np.uint8), connectivity=4)
    regions = statistics[1:].astype(np.int32)  # the first is what the mask leaves out
    x, y, width, height = regions[:, :4].T
    scale = np.array([mask.shape[1], mask.shape[0]] * 2)
    return np.stack([x, y, x + width, y + height], axis=1) / scale, regions[:, cv2.CC_STAT_AREA]
