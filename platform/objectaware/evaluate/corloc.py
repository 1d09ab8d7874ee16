"""CorLoc: how often one box, around the largest region, meets an object (Deselaers et al., 2010)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from objectaware.data.masks import region_boxes

_REQUIRED_IOU = 0.5


def largest_region_box(mask: NDArray[np.bool_]) -> NDArray[np.float64] | None:
    """The box around the largest 4-connected region of a mask, as LOST and TokenCut predict one box an image.

    Args:
        mask: (H, W).

    Returns:
        x0 y0 x1 y1 relative to the picture, without margin; None for an empty mask.
    """
    boxes, areas = region_boxes(mask)
    return boxes[areas.argmax()] if len(boxes) else None


def is_correctly_localized(box: NDArray[np.floating] | None, true_boxes: NDArray[np.floating]) -> bool:
    """Whether a box has an IoU of at least 0.5 with any true one; CorLoc is the share of images where it has.

    Args:
        box: x0 y0 x1 y1; None where nothing was found.
        true_boxes: (n, 4), in the same unit.
    """
    if box is None:
        return False
    intersection = np.minimum(box[2:], true_boxes[:, 2:]) - np.maximum(box[:2], true_boxes[:, :2])
    shared = np.clip(intersection, 0, None).prod(axis=1)
    areas = (true_boxes[:, 2:] - true_boxes[:, :2]).prod(axis=1)
    return bool((shared >= _REQUIRED_IOU * ((box[2:] - box[:2]).prod() + areas - shared)).any())
