"""The official code's backgrounds: the largest strip beside the object, laid over the object's box.

This is `compat="official"`; `background` and `rectangle` hold what the paper describes.
"""

from __future__ import annotations

import torch
from torch import Tensor

Bounds = tuple[int, int, int, int]
"""First and last row, first and last column of the foreground, in pixels, the last ones included."""


def foreground_bounds(foreground: Tensor) -> list[Bounds | None]:
    """Bounding box of all foreground of each mask.

    Args:
        foreground: Boolean masks, shape (N, H, W).

    Returns:
        One a mask; None where the mask is empty or its box spans the picture, so that no strip lies beside it.
    """
    # Two transfers for the whole batch; one a picture would stop a GPU that often.
    rows, columns = foreground.any(dim=2).cpu(), foreground.any(dim=1).cpu()
    bounds: list[Bounds | None] = []
    for in_rows, in_columns in zip(rows, columns, strict=True):
        y, x = torch.nonzero(in_rows).flatten(), torch.nonzero(in_columns).flatten()
        if not len(y) or (y[-1] - y[0] + 1 == len(in_rows) and x[-1] - x[0] + 1 == len(in_columns)):
            bounds.append(None)
        else:
            bounds.append((int(y[0]), int(y[-1]), int(x[0]), int(x[-1])))
    return bounds


def strip_background(image: Tensor, bounds: Bounds) -> Tensor:
    """Covers the object's box with the largest of the four strips beside it, tiled over the picture.

    Args:
        image: Picture, shape (3, H, W).
        bounds: Its foreground, not all of the picture.

    Returns:
        Picture (3, H, W): outside the box as it was.

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
