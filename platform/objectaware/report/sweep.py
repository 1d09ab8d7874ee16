"""What a sweep came to, beside the paper's numbers: a row per combination of the parameters' values, and a plot."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes

from objectaware.config.sweep import SweepConfig
from objectaware.report.figures import figure_png, new_figure


@dataclass(frozen=True)
class Number:
    """A mean over seeds.

    Attributes:
        mean: Mean.
        std: Standard deviation of the sample; None for one seed.
        count: Number of seeds.
    """

    mean: float
    std: float | None
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Number:
        """The mean of one or more values."""
        return cls(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None, len(values))


@dataclass(frozen=True)
class Comparison:
    """One combination of values.

    Attributes:
        values: Value of each parameter.
        columns: Our numbers by column; those that no trial gave are missing.
        paper: The paper's numbers by column, where it has any.
        num_stopped: Trials that the scheduler stopped.
        num_failed: Trials that failed.
    """

    values: Mapping[str, Any]
    columns: Mapping[str, Number]
    paper: Mapping[str, float]
    num_stopped: int
    num_failed: int


def metric_column(config: SweepConfig) -> str:
    """The column that holds the sweep's metric."""
    return next(name for name, path in config.all_columns().items() if path == config.metric)


def comparison_rows(config: SweepConfig, comparisons: Sequence[Comparison]) -> list[dict[str, Any]]:
    """The comparison as a table: parameters, our numbers, the paper's, and what did not finish."""
    with_paper = {name for comparison in comparisons for name in comparison.paper}
    rows = []
    for comparison in comparisons:
        row: dict[str, Any] = dict(comparison.values)
        for name in config.all_columns():
            number = comparison.columns.get(name)
            row[name] = None if number is None else number.mean
            if len(config.seeds) > 1:
                row[f"{name} std"] = None if number is None else number.std
            if name in with_paper:
                row[f"{name} paper"] = comparison.paper.get(name)
        row |= {"seeds": max((number.count for number in comparison.columns.values()), default=0)}
        row |= {"stopped": comparison.num_stopped, "failed": comparison.num_failed}
        rows.append(row)
    return rows


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
    """Draw the metric against a parameter, a line for each combination of the other parameters' values.

    Error bars are one standard deviation over the seeds, where there are several; the paper's numbers are dashed. In a
    sweep that varies one parameter at a time, the line is that of the trials in which the others are as the fields say.

    Returns:
        PNG; None where no parameter has numbers for values, or no trial has finished.
    """
    name, column = plotted_parameter(config, comparisons), metric_column(config)
    finished = [comparison for comparison in comparisons if column in comparison.columns]
    if name is None or not finished:
        return None
    figure = new_figure(7, 4.5)
    axes = figure.add_subplot()
    for label, line in _lines(name, finished).items():
        _draw(axes, name, column, label, line)
    axes.set(xlabel=name, ylabel=column, title=config.name)
    if config.parameters[name].loguniform is not None:
        axes.set_xscale("log")
    if axes.get_legend_handles_labels()[1]:
        axes.legend()
    return figure_png(figure)


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
