"""Pictures in rows and columns, with heat, boxes and captions, as one PNG."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

_INCHES = 1.6
_HEAT_OPACITY = 0.6


@dataclass(frozen=True)
class Tile:
    """One picture.

    Attributes:
        picture: Shape (H, W, 3), RGB or (H, W), grey.
        caption: What stands above it.
        heat: Map (h, w) in [0, 1] laid over it; None for none.
        boxes: Boxes (n, 4) drawn on it, x0 y0 x1 y1 relative; None for none.
    """

    picture: NDArray[np.uint8]
    caption: str = ""
    heat: NDArray[np.float32] | None = None
    boxes: NDArray[np.floating] | None = None


def tiles_png(rows: Sequence[Sequence[Tile]], *, title: str = "") -> bytes:
    """Draws rows of tiles, pictures of any size each fitted into its cell.

    Args:
        rows: Tiles from left to right; rows may differ in their number.
        title: What stands above all.

    Returns:
        PNG.
    """
    num_columns = max(len(row) for row in rows)
    figure = Figure(figsize=(_INCHES * num_columns, (_INCHES + 0.25) * len(rows)), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(len(rows), num_columns, squeeze=False)
    for line, row in zip(grid, rows, strict=True):
        for axes in line:
            axes.set_axis_off()
        for axes, tile in zip(line, row, strict=False):
            height, width = tile.picture.shape[:2]
            place = (0, width, height, 0)
            axes.imshow(tile.picture, extent=place, cmap="gray", vmin=0, vmax=255)
            if tile.heat is not None:
                axes.imshow(tile.heat, cmap="jet", vmin=0, vmax=1, alpha=_HEAT_OPACITY, extent=place)
            for x0, y0, x1, y1 in [] if tile.boxes is None else tile.boxes * [width, height, width, height]:
                axes.add_patch(Rectangle((x0, y0), x1 - x0, y1 - y0, fill=False, edgecolor="red", linewidth=1.5))
            axes.set_title(tile.caption[-40:], fontsize=6)
    if title:
        figure.suptitle(title, fontsize=8)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=120)
    return buffer.getvalue()
