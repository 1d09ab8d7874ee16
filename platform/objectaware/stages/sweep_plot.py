"""The picture of a sweep: the metric against a parameter."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from objectaware.stages.sweep_config import SweepConfig
from objectaware.stages.sweep_table import Comparison, metric_column


def plotted_parameter(config: SweepConfig, comparisons: Sequence[Comparison]) -> str | None:
    """The parameter along the axis: the one that the sweep names, or the first whose values are numbers."""
    if config.plot is not None:
        return config.plot
    for name in config.parameters:
        values = [comparison.values[name] for comparison in comparisons]
        if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
            return name
    return None


def metric_plot(config: SweepConfig, comparisons: Sequence[Comparison]) -> bytes | None:
    """Draws the metric against a parameter, a line for each combination of the other parameters' values.

    Error bars are one standard deviation over the seeds, where there are several; the paper's numbers are dashed. In a
    sweep that varies one parameter at a time, the line is that of the trials in which the others are as the fields say.

    Returns:
        PNG; None where no parameter has numbers for values, or no trial has finished.
    """
    name, column = plotted_parameter(config, comparisons), metric_column(config)
    finished = [comparison for comparison in comparisons if column in comparison.columns]
    if name is None or not finished:
        return None
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for label, line in _lines(name, finished).items():
        _draw(axes, name, column, label, line)
    axes.set(xlabel=name, ylabel=column, title=config.name)
    if config.parameters[name].loguniform is not None:
        axes.set_xscale("log")
    if axes.get_legend_handles_labels()[1]:
        axes.legend()
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return buffer.getvalue()


def _lines(name: str, comparisons: Sequence[Comparison]) -> dict[str, list[Comparison]]:
    """Combinations by the values of the other parameters, each line in the order of its axis."""
    lines: dict[str, list[Comparison]] = {}
    for comparison in sorted(comparisons, key=lambda each: each.values[name]):
        others = ", ".join(f"{other} = {value}" for other, value in comparison.values.items() if other != name)
        lines.setdefault(others, []).append(comparison)
    return lines


def _draw(axes: Axes, name: str, column: str, label: str, line: Sequence[Comparison]) -> None:
    x: list[Any] = [comparison.values[name] for comparison in line]
    numbers = [comparison.columns[column] for comparison in line]
    spread = [number.std or 0.0 for number in numbers] if any(number.std is not None for number in numbers) else None
    bars = axes.errorbar(x, [number.mean for number in numbers], yerr=spread, marker="o", capsize=3, label=label)
    published = [(place, each.paper[column]) for place, each in zip(x, line, strict=True) if column in each.paper]
    if published:
        colour = bars.lines[0].get_color()
        title = f"{label}, paper".removeprefix(", ")
        axes.plot(*zip(*published, strict=True), linestyle="--", marker="x", color=colour, label=title)
