"""Largest empty rectangle of a mask: the background patch of background mixup (paper §2.3)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def largest_empty_rectangles(masks: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Finds in each mask the axis-parallel rectangle of largest area that holds no true pixel.

    The exact dynamic programme over rows (height, left and right bound of the tallest empty column through each
    pixel), run for all masks of the batch at once: O(H) array operations on (N, W).

    Args:
        masks: True where there is foreground, shape (N, H, W).

    Returns:
        Rectangles as (top, left, height, width) in pixels, shape (N, 4); zeros where a mask is all foreground.
        Of rectangles of equal area the first by bottom row, then by column, is returned.

    Source:
        Paper §2.3: "the largest rectangle in the zeros of the binarized CAM mask".
    """
    num_masks, num_rows, num_columns = masks.shape
    column = np.arange(num_columns)[None, :]
    height = np.zeros((num_masks, num_columns), dtype=np.int64)
    left = np.zeros_like(height)
    right = np.full_like(height, num_columns)
    best_area = np.zeros(num_masks, dtype=np.int64)
    best = np.zeros((num_masks, 4), dtype=np.int64)
    rows = np.arange(num_masks)
    for row in range(num_rows):
        empty = ~masks[:, row]
        height = np.where(empty, height + 1, 0)
        # Bounds of the run of empty pixels around each column in this row alone …
        run_left = np.maximum.accumulate(np.where(empty, 0, column + 1), axis=1)
        reversed_right = np.where(empty, num_columns, column)[:, ::-1]
        run_right = np.minimum.accumulate(reversed_right, axis=1)[:, ::-1]
        # … narrowed by the rows above; a full column starts afresh.
        left = np.where(empty, np.maximum(left, run_left), 0)
        right = np.where(empty, np.minimum(right, run_right), num_columns)
        area = height * (right - left)
        where = np.argmax(area, axis=1)
        better = area[rows, where] > best_area
        candidate = np.stack(
            [
                row + 1 - height[rows, where],
                left[rows, where],
                height[rows, where],
                (right - left)[rows, where],
            ],
            axis=1,
        )
        best = np.where(better[:, None], candidate, best)
        best_area = np.where(better, area[rows, where], best_area)
    return best


def largest_empty_rectangle(mask: NDArray[np.bool_]) -> tuple[int, int, int, int] | None:
    """Finds the largest rectangle of one mask that holds no true pixel.

    Args:
        mask: True where there is foreground, shape (H, W).

    Returns:
        (top, left, height, width) in pixels, or None where every pixel is foreground.
    """
    top, left, height, width = (int(value) for value in largest_empty_rectangles(mask[None])[0])
    return (top, left, height, width) if height else None
