"""Boxes of objects: the paper's sizes, and relative boxes in whole pixels."""

from __future__ import annotations

import math
from collections.abc import Iterable

MIN_BOX_AREA = 0.01
"""Share of the picture that an object must exceed to have a box; published boxes may be smaller."""
OBJECT_MARGIN = 0.2
"""What the paper adds to each side of an object's box, as a fraction of its width or height."""


def pixel_region(box: Iterable[float], height: int, width: int) -> tuple[int, int, int, int]:
    """Gives the pixels that a relative box touches.

    Args:
        box: x0, y0, x1, y1, from 0 to 1.
        height: Of the image in pixels.
        width: Of the image in pixels.

    Returns:
        (top, left, height, width) in pixels, inside the image and at least one pixel a side.
    """
    x0, y0, x1, y1 = (float(value) for value in box)
    left, top = min(int(x0 * width), width - 1), min(int(y0 * height), height - 1)
    right, bottom = min(math.ceil(x1 * width), width), min(math.ceil(y1 * height), height)
    return top, left, max(bottom - top, 1), max(right - left, 1)
