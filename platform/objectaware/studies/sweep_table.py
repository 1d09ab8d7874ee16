"""The results of a sweep beside the paper's numbers: one row per combination of the parameters' values."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from objectaware.paper import load_table
from objectaware.report.figures import ComparedPoint, compared_lines
from objectaware.studies.sweep_config import PaperCells, SweepConfig

if TYPE_CHECKING:
    from objectaware.studies.sweep import TrialRecord


@dataclass(frozen=True)
class Number:
    """A mean over seeds.

    Attributes:
        mean: The mean.
        std: Standard deviation of the sample; None for one seed.
        count: Number of seeds.
    """

    mean: float
    std: float | None
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Number:
        """Return the mean of one or more values."""
        return cls(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None, len(values))


@dataclass(frozen=True)
class Comparison:
    """One combination of values.

    Attributes:
        values: Value of each parameter.
        columns: Our numbers by column, without columns that no trial has.
        paper: The paper's numbers by column, if it has any.
        num_stopped: Number of trials that the scheduler stopped.
        num_failed: Number of trials that failed.
    """

    values: Mapping[str, Any]
    columns: Mapping[str, Number]
    paper: Mapping[str, float]
    num_stopped: int
    num_failed: int


def metric_column(config: SweepConfig) -> str:
    """Return the column that holds the sweep's metric."""
    return next(name for name, path in config.all_columns().items() if path == config.metric)


def comparison_rows(config: SweepConfig, comparisons: Sequence[Comparison]) -> list[dict[str, Any]]:
    """Return the comparison as a table: parameters, our numbers, the paper's, and counts of unfinished trials."""
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
    """Return the parameter along the axis: the one that the sweep names, or the first whose values are numbers."""
    if config.plot is not None:
        return config.plot
    for name in config.parameters:
        values = [comparison.values[name] for comparison in comparisons]
        if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
            return name
    return None


def metric_plot(config: SweepConfig, comparisons: Sequence[Comparison]) -> bytes | None:
    """Draw the metric against a parameter, with one line per combination of the other parameters' values.

    Error bars show one standard deviation over the seeds, if there are several. The paper's numbers are dashed. In a
    sweep that varies one parameter at a time, the line uses the trials in which the others have the fields' values.

    Returns:
        PNG; None if no parameter has numbers as values, or no trial has finished.
    """
    name, column = plotted_parameter(config, comparisons), metric_column(config)
    finished = [comparison for comparison in comparisons if column in comparison.columns]
    if name is None or not finished:
        return None
    lines = {label: [_point(each, name, column) for each in line] for label, line in _lines(name, finished).items()}
    is_logarithmic = config.parameters[name].loguniform is not None
    return compared_lines(lines, title=config.name, x_title=name, y_title=column, is_logarithmic=is_logarithmic)


def _point(comparison: Comparison, name: str, column: str) -> ComparedPoint:
    number = comparison.columns[column]
    return ComparedPoint(comparison.values[name], number.mean, number.std, comparison.paper.get(column))


def _lines(name: str, comparisons: Sequence[Comparison]) -> dict[str, list[Comparison]]:
    """Group combinations by the values of the other parameters, each line in the order of its axis."""
    lines: dict[str, list[Comparison]] = {}
    for comparison in sorted(comparisons, key=lambda each: each.values[name]):
        others = ", ".join(f"{other} = {value}" for other, value in comparison.values.items() if other != name)
        lines.setdefault(others, []).append(comparison)
    return lines


def compare(config: SweepConfig, records: Iterable[TrialRecord]) -> list[Comparison]:
    """Gather trials over their seeds, in the given order, and look up the paper's numbers."""
    groups: dict[str, list[TrialRecord]] = {}
    for record in records:
        groups.setdefault(str(_in_order(config, record)), []).append(record)
    return [_comparison(config, group) for group in groups.values()]


def _comparison(config: SweepConfig, records: list[TrialRecord]) -> Comparison:
    values = _in_order(config, records[0])
    finished = [record.columns for record in records if record.status == "finished"]
    return Comparison(
        values=values,
        columns={name: Number.of([columns[name] for columns in finished]) for name in config.all_columns()}
        if finished
        else {},
        paper=paper_numbers(config, values),
        num_stopped=sum(record.status == "stopped" for record in records),
        num_failed=sum(record.status == "failed" for record in records),
    )


def _in_order(config: SweepConfig, record: TrialRecord) -> dict[str, Any]:
    """Return a trial's values in the order of the sweep's parameters. A record's file has them sorted by name."""
    return {name: record.trial.values[name] for name in config.parameters}


def paper_numbers(config: SweepConfig, values: Mapping[str, Any]) -> dict[str, float]:
    """Return the paper's numbers for a combination of values, by column of the sweep."""
    found: dict[str, float] = {}
    for cells in config.paper:
        if all(values[name] == value for name, value in cells.where.items()):
            found |= _numbers_in(cells, values)
    return found


def _numbers_in(cells: PaperCells, values: Mapping[str, Any]) -> dict[str, float]:
    table = load_table(cells.table)
    row = next((row for row in table.rows if _is_row(row.name, cells, values)), None)
    if row is None:
        return {}
    places = {column: index for index, parts in enumerate(table.columns) for column in [" ".join(parts)]}
    numbers = {name: row.cells[places[column]] for name, column in cells.columns.items()}
    return {name: cell.mean for name, cell in numbers.items() if cell is not None}


def _is_row(name: Sequence[str], cells: PaperCells, values: Mapping[str, Any]) -> bool:
    parts = [values[parameter] for parameter in cells.rows]
    return all(_is_value(part, cells.names, value) for part, value in zip(name, parts, strict=True))


def _is_value(part: str, names: Mapping[str, str], value: object) -> bool:
    """Return whether the paper's text stands for a parameter's value: 0 is printed as 0.0."""
    if names.get(str(value), str(value)) == part:
        return True
    try:
        return isinstance(value, int | float) and math.isclose(float(part), value)
    except ValueError:
        return False


def trial_rows(config: SweepConfig, records: Iterable[TrialRecord]) -> list[dict[str, Any]]:
    """Return one row per trial: its values, seed, status, numbers, and the reason of a failure."""
    return [
        {
            **_in_order(config, record),
            "seed": record.trial.seed,
            "status": record.status,
            **record.columns,
            "error": record.error,
        }
        for record in records
    ]


def best(config: SweepConfig, comparisons: Iterable[Comparison]) -> Comparison | None:
    """Return the combination with the best mean of the metric, or None if no trial has finished."""
    name = metric_column(config)
    ranked = [comparison for comparison in comparisons if name in comparison.columns]
    sign = 1 if config.mode == "max" else -1
    return max(ranked, key=lambda comparison: sign * comparison.columns[name].mean, default=None)
