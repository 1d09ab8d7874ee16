"""The place of each image's background patch."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from objectaware.augment.background import largest_empty_rectangles
from objectaware.training.policies.base import Masks

_MAX_SIDE = 224
_CHUNK = 1024


def background_rectangles(masks: Masks, threshold: float) -> NDArray[np.int64]:
    """Find the largest background rectangle of each mask.

    Masks are processed in chunks, and masks of one size together, so that memory use stays constant.

    Args:
        masks: Each image's soft mask.
        threshold: Smallest value of a mask that is foreground, in [0, 1].

    Returns:
        (top, left, height, width) of the rectangle and (height, width) of the mask that was searched, in that mask's
        pixels, shape (N, 6); zeros if there is no mask or no background. Masks with sides above 224 pixels, which are
        as large as their photos, are shrunk first. The rectangle then keeps a distance of up to one pixel of the
        shrunk mask from the foreground.
    """
    rectangles = np.zeros((len(masks), 6), dtype=np.int64)
    for start in range(0, len(masks), _CHUNK):
        by_size: dict[tuple[int, ...], list[tuple[int, NDArray[np.bool_]]]] = {}
        for index in range(start, min(start + _CHUNK, len(masks))):
            mask = masks[index]
            if mask is not None:
                foreground = _shrunk(mask >= threshold * 255)
                by_size.setdefault(foreground.shape, []).append((index, foreground))
        for size, members in by_size.items():
            indices = [index for index, _ in members]
            found = largest_empty_rectangles(np.stack([mask for _, mask in members]))
            rectangles[indices, :4] = found
            rectangles[indices, 4:] = np.where(found[:, 2:3] > 0, size, 0)
    return rectangles


def _shrunk(foreground: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Shrink a mask (H, W) to (h, w) with sides of at most 224 pixels; cells that touch any foreground are true."""
    height, width = foreground.shape
    factor = _MAX_SIDE / max(height, width)
    if factor >= 1:
        return foreground
    size = max(round(width * factor), 1), max(round(height * factor), 1)
    # The fraction of each cell that is foreground. A cell counts as foreground if any part of it is.
    share = cv2.resize(foreground.astype(np.float32), size, interpolation=cv2.INTER_AREA)
    return share > 1e-6
