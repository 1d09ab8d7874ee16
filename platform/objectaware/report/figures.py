"""Figures in PNG, which matplotlib draws from plain numbers and arrays."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from objectaware.paper import Cell

Series = tuple[Sequence[float], Sequence[float]]
"""Places on the x axis and the values there; both have the same length."""

_HEAT_OPACITY = 0.6
_CAPTION_INCHES = 0.25
_CAPTION_SIZE = 6


def _plot(width: float = 6, height: float = 4) -> tuple[Figure, Axes]:
    """Make a figure of one plot that belongs to no window; width and height in inches."""
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.add_subplot()


def figure_png(figure: Figure, *, dpi: int = 100) -> bytes:
    """Encode a figure as PNG."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=dpi)
    return buffer.getvalue()


def curves(
    series: Mapping[str, Series], *, x_title: str, y_title: str, deviations: Mapping[str, Sequence[float]] | None = None
) -> bytes:
    """Draw curves into one picture, in the given order.

    Args:
        series: Curves by their names in the legend.
        x_title: Title of the x axis, which has ticks at whole numbers.
        y_title: Title of the y axis.
        deviations: Standard deviations of the values of some of the series, drawn as error bars.

    Returns:
        PNG.
    """
    figure, axes = _plot()
    for name, (places, values) in series.items():
        spread = None if deviations is None else deviations.get(name)
        if spread is None:
            axes.plot(places, values, label=name)
        else:
            axes.errorbar(places, values, yerr=spread, capsize=3, marker="o", label=name)
    axes.set(xlabel=x_title, ylabel=y_title)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend()
    return figure_png(figure)


@dataclass(frozen=True)
class ComparedPoint:
    """A point of a line: a measured number, and the paper's number if there is one.

    Attributes:
        place: Place on the x axis.
        number: Measured number: the mean over seeds, and its standard deviation if there are several.
        published: The paper's number; None if there is none.
    """

    place: float
    number: Cell
    published: float | None


def compared_lines(
    lines: Mapping[str, Sequence[ComparedPoint]], *, title: str, x_title: str, y_title: str, is_logarithmic: bool
) -> bytes:
    """Draw lines of measured numbers, with error bars if there are several seeds, and the paper's numbers dashed.

    Args:
        lines: Points by the line's name in the legend, in the order of their places.
        title: Title above the picture.
        x_title: Title of the x axis.
        y_title: Title of the y axis.
        is_logarithmic: Whether the x axis is logarithmic.

    Returns:
        PNG.
    """
    figure, axes = _plot(7, 4.5)
    for label, points in lines.items():
        places, numbers = [point.place for point in points], [point.number for point in points]
        means, deviations = [number.mean for number in numbers], [number.std for number in numbers]
        spread = [std or 0.0 for std in deviations] if any(std is not None for std in deviations) else None
        bars = axes.errorbar(places, means, yerr=spread, marker="o", capsize=3, label=label)
        published = [(point.place, point.published) for point in points if point.published is not None]
        if published:
            colour, name = bars.lines[0].get_color(), f"{label}, paper".removeprefix(", ")
            axes.plot(*zip(*published, strict=True), linestyle="--", marker="x", color=colour, label=name)
    axes.set(xlabel=x_title, ylabel=y_title, title=title)
    if is_logarithmic:
        axes.set_xscale("log")
    if axes.get_legend_handles_labels()[1]:
        axes.legend()
    return figure_png(figure)


def scatter(points: Mapping[str, Sequence[tuple[float, float]]]) -> bytes:
    """Draw points in the plane, one colour per class. There are no axes, because only neighbourhoods have a meaning.

    Args:
        points: Points by the class's name in the legend.

    Returns:
        PNG.
    """
    figure, axes = _plot()
    for name, members in points.items():
        axes.scatter([x for x, _ in members], [y for _, y in members], s=8, label=name)
    axes.set(xticks=[], yticks=[])
    axes.legend()
    return figure_png(figure)


def box_histogram(counts: Mapping[int, int], truth_counts: Mapping[int, int] | None = None) -> bytes:
    """Draw a histogram of the number of boxes per image.

    Args:
        counts: Number of images by number of boxes.
        truth_counts: The same for the true objects, drawn beside it; None if they are not known.

    Returns:
        PNG.
    """
    series = {"found": counts} if truth_counts is None else {"found": counts, "truth": truth_counts}
    largest = max(max(values, default=0) for values in series.values())
    figure, axes = _plot()
    edges = np.arange(largest + 2) - 0.5
    values = [list(one) for one in series.values()]
    weights = [list(one.values()) for one in series.values()]
    axes.hist(values, bins=edges.tolist(), weights=weights, label=list(series))
    axes.set(xlabel="boxes per image", ylabel="images")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(integer=True))
    axes.legend()
    return figure_png(figure)


@dataclass(frozen=True)
class Tile:
    """One picture among others in rows and columns.

    Attributes:
        picture: Picture (H, W, 3) in RGB, or (H, W) in grey.
        caption: Text above the picture.
        heat: Map (h, w) that is laid over the picture, float in [0, 1] or 0 to 255, or None.
        boxes: Boxes (n, 4) that are drawn on the picture, x0 y0 x1 y1 relative, or None.
        shape: Height and width to which the picture is stretched; None for its own.
    """

    picture: NDArray[np.uint8]
    caption: str = ""
    heat: NDArray[np.float32] | NDArray[np.uint8] | None = None
    boxes: NDArray[np.floating] | None = None
    shape: tuple[int, int] | None = None


def tiles_png(rows: Sequence[Sequence[Tile]], *, title: str = "") -> bytes:
    """Draw rows of tiles. Pictures may have any size; each is fitted into its cell.

    Args:
        rows: Tiles from left to right; rows may have different numbers of tiles.
        title: Text above all rows.

    Returns:
        PNG.
    """
    figure, _ = _draw_tiles(rows, cell_inches=1.6)
    if title:
        figure.suptitle(title, fontsize=8)
    return figure_png(figure, dpi=120)


def iteration_panel(photos: Sequence[NDArray[np.uint8]], cams: NDArray[np.uint8], names: Sequence[str]) -> bytes:
    """Draw one row per image: the photo, the CAM of each iteration as heat over it, and their maximum, the mask.

    Args:
        photos: RGB photos (H, W, 3) of any size. They are squashed to the maps' size, as the network saw them.
        cams: Maps (T, n, S, S), 0 to 255.
        names: Texts above the rows.

    Returns:
        PNG.
    """
    titles = ["photo", *(f"CAM {number}" for number in range(1, len(cams) + 1)), "mask"]
    height, width = cams.shape[2:]
    rows = []
    for photo, maps in zip(photos, cams.swapaxes(0, 1), strict=True):
        cells = zip(titles, [None, *maps, maps.max(axis=0)], strict=True)
        rows.append([Tile(photo, title, heat, shape=(height, width)) for title, heat in cells])
    figure, grid = _draw_tiles(rows, cell_inches=1.4)
    for line, name in zip(grid, names, strict=True):
        line[0].set_title(name[-30:], fontsize=_CAPTION_SIZE, loc="left")
    return figure_png(figure)


def _draw_tiles(rows: Sequence[Sequence[Tile]], *, cell_inches: float) -> tuple[Figure, NDArray[np.object_]]:
    """Draw rows of tiles into a new figure, and return it with the axes of its cells."""
    num_columns = max(map(len, rows))
    size = cell_inches * num_columns, (cell_inches + _CAPTION_INCHES) * len(rows)
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(len(rows), num_columns, squeeze=False)
    for axes in grid.flat:
        axes.set_axis_off()
    for line, row in zip(grid, rows, strict=True):
        for axes, tile in zip(line, row, strict=False):
            height, width = tile.shape or tile.picture.shape[:2]
            extent = (0, width, height, 0)
            axes.imshow(tile.picture, extent=extent, cmap="gray", vmin=0, vmax=255)
            if tile.heat is not None:
                largest = 255 if tile.heat.dtype == np.uint8 else 1
                axes.imshow(tile.heat, extent=extent, cmap="jet", vmin=0, vmax=largest, alpha=_HEAT_OPACITY)
            for x0, y0, x1, y1 in [] if tile.boxes is None else tile.boxes * [width, height, width, height]:
                axes.add_patch(Rectangle((x0, y0), x1 - x0, y1 - y0, fill=False, edgecolor="red", linewidth=1.5))
            axes.set_title(tile.caption[-40:], fontsize=_CAPTION_SIZE)
    return figure, grid
