"""Backgrounds of images: the paper's background mixup (§2.3, eq. 4), and what the official code does instead.

The paper takes the largest empty rectangle of the mask, tiled over the whole picture. The official code
(`compat="official"`) covers the object's box with the largest of the four strips beside it.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def largest_empty_rectangles(masks: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Find in each mask the axis-parallel rectangle of largest area that holds no true pixel.

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
        # … narrowed by the rows above; a full column starts again.
        left = np.where(empty, np.maximum(left, run_left), 0)
        right = np.where(empty, np.minimum(right, run_right), num_columns)
        area = height * (right - left)
        where = np.argmax(area, axis=1)
        better = area[rows, where] > best_area
        candidate = np.stack(
            [row + 1 - height[rows, where], left[rows, where], height[rows, where], (right - left)[rows, where]], axis=1
        )
        best = np.where(better[:, None], candidate, best)
        best_area = np.where(better, area[rows, where], best_area)
    return best


def largest_empty_rectangle(mask: NDArray[np.bool_]) -> tuple[int, int, int, int] | None:
    """Find the largest rectangle of one mask that holds no true pixel.

    Args:
        mask: True where there is foreground, shape (H, W).

    Returns:
        (top, left, height, width) in pixels, or None where every pixel is foreground.
    """
    top, left, height, width = (int(value) for value in largest_empty_rectangles(mask[None])[0])
    return (top, left, height, width) if height else None


BACKGROUND_THRESHOLD = 0.2
"""Value from which on a soft mask is foreground when a background is cut out (paper, common set-up)."""


def cut_background(
    image: NDArray[np.uint8], rectangle: tuple[int, int, int, int], mask_height: int, mask_width: int
) -> NDArray[np.uint8]:
    """Cut the background patch out of an image.

    Args:
        image: Pixels, shape (H, W, 3).
        rectangle: (top, left, height, width) in pixels of the mask, which covers the whole image.
        mask_height: Height of the mask in pixels.
        mask_width: Width of the mask in pixels.

    Returns:
        The patch, shape (h, w, 3), at least one pixel per side. Edges are rounded inwards, so that no pixel that
        the mask calls foreground is in it.
    """
    top, left, height, width = rectangle
    scale_y, scale_x = image.shape[0] / mask_height, image.shape[1] / mask_width
    y0, x0 = int(np.ceil(top * scale_y)), int(np.ceil(left * scale_x))
    y1, x1 = int((top + height) * scale_y), int((left + width) * scale_x)
    y0, x0 = min(y0, image.shape[0] - 1), min(x0, image.shape[1] - 1)
    return image[y0 : max(y1, y0 + 1), x0 : max(x1, x0 + 1)]


def tile(patch: NDArray[np.uint8], rows: slice, columns: slice) -> NDArray[np.uint8]:
    """Repeat a patch over the plane and return a window of it.

    Args:
        patch: Pixels, shape (h, w, 3).
        rows: Window's rows; the patch's top-left corner lies at (0, 0).
        columns: Window's columns.

    Returns:
        Window, shape (rows, columns, 3).
    """
    y = np.arange(rows.start, rows.stop) % patch.shape[0]
    x = np.arange(columns.start, columns.stop) % patch.shape[1]
    return patch[y[:, None], x[None, :]]


def background_only(
    image: NDArray[np.uint8], mask: NDArray[np.floating], *, threshold: float = BACKGROUND_THRESHOLD
) -> NDArray[np.uint8] | None:
    """Make the background-only image x₂ᵇᵍ: the largest empty rectangle, tiled over the whole picture.

    Args:
        image: Pixels, shape (H, W, 3).
        mask: Soft foreground mask in [0, 1] of the whole image, shape (h, w).
        threshold: The mask is foreground where it is at least this.

    Returns:
        Picture of the image's size, or None where the mask leaves no background.

    Source:
        Paper §2.3 and its appendix on background bias.
    """
    rectangle = largest_empty_rectangle(mask >= threshold)
    if rectangle is None:
        return None
    patch = cut_background(image, rectangle, mask.shape[0], mask.shape[1])
    return tile(patch, slice(0, image.shape[0]), slice(0, image.shape[1]))


def mix_background(
    image: NDArray[np.uint8], mask: NDArray[np.uint8], background: NDArray[np.uint8]
) -> NDArray[np.uint8]:
    """Blend x₁ ← CAM(x₁) ⊙ x₁ + (1 − CAM(x₁)) ⊙ x₂ᵇᵍ (paper eq. 4).

    Args:
        image: x₁, shape (H, W, 3).
        mask: CAM(x₁) in 8 bits (255 is 1), shape (H, W).
        background: x₂ᵇᵍ, shape (H, W, 3).

    Returns:
        Mixed image, shape (H, W, 3), rounded to the nearest level.
    """
    weight = mask.astype(np.uint16)[..., None]
    # 16 bits hold 255 · 255 + 127, and integers are several times faster here than floats.
    mixed = image * weight + background * (np.uint16(255) - weight) + np.uint16(127)
    return (mixed // np.uint16(255)).astype(np.uint8)


Bounds = tuple[int, int, int, int]
"""First and last row, first and last column of the foreground, in pixels, the last ones included."""


def foreground_bounds(foreground: Tensor) -> list[Bounds | None]:
    """Return the bounding box of all foreground of each mask.

    Args:
        foreground: Boolean masks on the host, shape (N, H, W).

    Returns:
        One per mask; None where the mask is empty or its box spans the picture, so that no strip lies beside it.
    """
    rows, columns = foreground.any(dim=2), foreground.any(dim=1)
    bounds: list[Bounds | None] = []
    for in_rows, in_columns in zip(rows, columns, strict=True):
        y, x = torch.nonzero(in_rows).flatten(), torch.nonzero(in_columns).flatten()
        if not len(y) or (y[-1] - y[0] + 1 == len(in_rows) and x[-1] - x[0] + 1 == len(in_columns)):
            bounds.append(None)
        else:
            bounds.append((int(y[0]), int(y[-1]), int(x[0]), int(x[-1])))
    return bounds


def strip_background(image: Tensor, bounds: Bounds) -> Tensor:
    """Cover the object's box with the largest of the four strips beside it, tiled over the picture.

    Args:
        image: Picture, shape (3, H, W).
        bounds: Its foreground, not all of the picture.

    Returns:
        Picture (3, H, W): unchanged outside the box.

    Source:
        official-implementation §2 (BG-Mixup). Two inaccuracies of the official code are kept: the last row and
        column of the box stay as they are, and the strips below and to the right begin with them.
    """
    height, width = image.shape[1:]
    first_row, last_row, first_column, last_column = bounds
    areas = (
        first_row * width,
        first_column * height,
        (width - 1 - last_column) * height,
        (height - 1 - last_row) * width,
    )
    rows = torch.arange(first_row, last_row, device=image.device)
    columns = torch.arange(first_column, last_column, device=image.device)
    largest = areas.index(max(areas))
    if largest == 0:
        rows_from, columns_from = rows % first_row, columns
    elif largest == 1:
        rows_from, columns_from = rows, columns % first_column
    elif largest == 2:
        rows_from, columns_from = rows, last_column + columns % (width - last_column)
    else:
        rows_from, columns_from = last_row + rows % (height - last_row), columns
    covered = image.clone()
    covered[:, first_row:last_row, first_column:last_column] = image[:, rows_from[:, None], columns_from[None, :]]
    return covered
