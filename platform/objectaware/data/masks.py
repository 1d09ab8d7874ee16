"""Masks at another size and in 8 bits, and the boxes around their regions."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray


def resize_mask(mask: NDArray[np.bool_], height: int, width: int) -> NDArray[np.bool_]:
    """Brings a mask to another size by nearest neighbour; (H, W) to (height, width)."""
    if mask.shape == (height, width):
        return mask
    resized = cv2.resize(mask.astype(np.uint8), (width, height), interpolation=cv2.INTER_NEAREST_EXACT)
    return resized.astype(np.bool_)


def in_8_bits(mask: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """A mask (H, W) as 0 and 255."""
    return mask.astype(np.uint8) * np.uint8(255)


def mask_png(mask: NDArray[np.bool_]) -> bytes:
    """A mask (H, W) as a black and white PNG."""
    _, png = cv2.imencode(".png", in_8_bits(mask))
    return png.tobytes()


def region_boxes(mask: NDArray[np.bool_]) -> tuple[NDArray[np.float64], NDArray[np.int32]]:
    """The boxes around the 4-connected regions of a mask.

    Args:
        mask: (H, W).

    Returns:
        Boxes (n, 4), x0 y0 x1 y1 relative to the picture, and the regions' areas (n,) in pixels.
    """
    _, _, statistics, _ = cv2.connectedComponentsWithStats(mask.astype(np.uint8), connectivity=4)
    regions = statistics[1:].astype(np.int32)  # the first is what the mask leaves out
    x, y, width, height = regions[:, :4].T
    scale = np.array([mask.shape[1], mask.shape[0]] * 2)
    return np.stack([x, y, x + width, y + height], axis=1) / scale, regions[:, cv2.CC_STAT_AREA]
