"""Object-aware random crop: both views from around one object (paper §2.3)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from objectaware.data.boxes import pixel_region


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
    return pixel_region(boxes[int(uniform * len(boxes))], image_height, image_width)
