"""Where each image's background patch lies."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from objectaware.augment.background import largest_empty_rectangles
from objectaware.training.policies.base import Masks

_MAX_SIDE = 224
_CHUNK = 1024


def background_rectangles(masks: Masks, threshold: float) -> NDArray[np.int64]:
    """Largest background rectangle of each mask.

    Masks pass through in chunks, each size of mask on its own, so that memory stays flat.

    Args:
        masks: Each image's soft mask.
        threshold: A mask is foreground from here on, in [0, 1].

    Returns:
        (top, left, height, width) of the rectangle and (height, width) of the mask that it was sought in, in that
        mask's pixels, shape (N, 6); zeros where there is no mask or no background. Masks of more than 224 pixels a
        side, which are as large as their photos, are shrunk first: a rectangle then keeps clear of the foreground
        by up to a pixel of the shrunk mask.
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
    """The mask at no more than 224 pixels a side, true wherever it touches any foreground; (H, W) to (h, w)."""
    height, width = foreground.shape
    factor = _MAX_SIDE / max(height, width)
    if factor >= 1:
        return foreground
    size = max(round(width * factor), 1), max(round(height * factor), 1)
    # The share of each cell that is foreground; a cell counts as soon as any of it is.
    share = cv2.resize(foreground.astype(np.float32), size, interpolation=cv2.INTER_AREA)
    return share > 1e-6
