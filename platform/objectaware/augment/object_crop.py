"""Object-aware random crop: both views from around one object (paper §2.3)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def object_region(
    boxes: NDArray[np.float32], uniform: float, image_height: int, image_width: int
) -> tuple[int, int, int, int]:
    """Picks one of an image's boxes and returns it as the region that the crops are drawn from.

    Args:
        boxes: Relative x0 y0 x1 y1, shape (n, 4); n may be 0.
        uniform: A number in [0, 1) that decides which.
        image_height: Height of the image in pixels.
        image_width: Width of the image in pixels.

    Returns:
        (top, left, height, width) in pixels; the whole image where there is no box, as in the paper's listing.
    """
    if len(boxes) == 0:
        return 0, 0, image_height, image_width
    x0, y0, x1, y1 = (float(value) for value in boxes[int(uniform * len(boxes))])
    left, top = int(x0 * image_width), int(y0 * image_height)
    right, bottom = int(np.ceil(x1 * image_width)), int(np.ceil(y1 * image_height))
    left, top = min(left, image_width - 1), min(top, image_height - 1)
    return top, left, max(min(bottom, image_height) - top, 1), max(min(right, image_width) - left, 1)
