"""A picture of how ContraCAM's mask grows from iteration to iteration."""

from __future__ import annotations

import io
from collections.abc import Sequence

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray

_INCHES = 1.4
_HEAT_OPACITY = 0.6


def iteration_panel(photos: Sequence[NDArray[np.uint8]], cams: NDArray[np.uint8], names: Sequence[str]) -> bytes:
    """A grid with one row an image: the photo, the CAM of each iteration as heat over it, and their maximum, the mask.

    Args:
        photos: (H, W, 3) RGB each, of any size; they are squashed to the maps' size, as the network saw them.
        cams: (T, n, S, S), 0 to 255.
        names: What is written above each row.

    Returns:
        PNG.
    """
    num_iterations, num_images, size = cams.shape[:3]
    columns = [*(f"CAM {number}" for number in range(1, num_iterations + 1)), "mask"]
    figure = Figure(figsize=(_INCHES * (len(columns) + 1), (_INCHES + 0.25) * num_images), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(num_images, len(columns) + 1, squeeze=False)
    for row, photo, maps, name in zip(grid, photos, cams.swapaxes(0, 1), names, strict=True):
        for axes, heat, column in zip(row, [None, *maps, maps.max(axis=0)], ["photo", *columns], strict=True):
            axes.imshow(photo, extent=(0, size, size, 0), aspect="equal")
            if heat is not None:
                axes.imshow(heat, cmap="jet", vmin=0, vmax=255, alpha=_HEAT_OPACITY, extent=(0, size, size, 0))
            axes.set_axis_off()
            axes.set_title(column, fontsize=6)
        row[0].set_title(name[-30:], fontsize=6, loc="left")
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=100)
    return buffer.getvalue()
