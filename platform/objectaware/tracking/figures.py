"""Curves and points as pictures, drawn from plain numbers."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

Series = tuple[Sequence[float], Sequence[float]]
"""Places on the x axis and values there, of the same number."""


def curves(
    series: Mapping[str, Series],
    *,
    x_title: str,
    y_title: str,
    deviations: Mapping[str, Sequence[float]] | None = None,
) -> bytes:
    """Curves in one picture, in the order given.

    Args:
        series: By the name in the legend.
        x_title: Under the x axis, which counts in whole numbers.
        y_title: Beside the y axis.
        deviations: Of the values of some of the series, drawn as error bars.

    Returns:
        PNG.
    """
    figure = _figure()
    axes = figure.add_subplot()
    for name, (places, values) in series.items():
        spread = None if deviations is None else deviations.get(name)
        if spread is None:
            axes.plot(places, values, label=name)
        else:
            axes.errorbar(places, values, yerr=spread, capsize=3, marker="o", label=name)
    axes.set(xlabel=x_title, ylabel=y_title)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend()
    return _png(figure)


def scatter(points: Mapping[str, Sequence[tuple[float, float]]]) -> bytes:
    """Points in the plane, a colour a class, without axes: their places mean nothing but their neighbourhood.

    Args:
        points: By the name in the legend.

    Returns:
        PNG.
    """
    figure = _figure()
    axes = figure.add_subplot()
    for name, members in points.items():
        axes.scatter([x for x, _ in members], [y for _, y in members], s=8, label=name)
    axes.set(xticks=[], yticks=[])
    axes.legend()
    return _png(figure)


def _figure() -> Figure:
    figure = Figure(figsize=(6, 4), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return buffer.getvalue()
