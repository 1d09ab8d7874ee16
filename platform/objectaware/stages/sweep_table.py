"""What a sweep came to, beside the paper's numbers: a row a combination of the parameters' values."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from objectaware.config.sweep import PaperCells, SweepConfig
from objectaware.paper import load_table
from objectaware.report.sweep import Comparison, Number, metric_column
from objectaware.stages.sweep_trial import TrialRecord


def compare(config: SweepConfig, records: Iterable[TrialRecord]) -> list[Comparison]:
    """Gathers trials over their seeds, in the order in which they are given, and looks up the paper's numbers."""
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
    """A trial's values in the order of the sweep's parameters; a record's file has them sorted."""
    return {name: record.trial.values[name] for name in config.parameters}


def paper_numbers(config: SweepConfig, values: Mapping[str, Any]) -> dict[str, float]:
    """The paper's numbers for a combination of values, by column of the sweep."""
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
    """Whether the paper's text is a parameter's value: 0 is printed as 0.0."""
    if names.get(str(value), str(value)) == part:
        return True
    try:
        return isinstance(value, int | float) and math.isclose(float(part), value)
    except ValueError:
        return False


def trial_rows(config: SweepConfig, records: Iterable[TrialRecord]) -> list[dict[str, Any]]:
    """A row a trial: its values, seed, how it ended, its numbers, and why it failed."""
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
    """The combination with the best mean of the metric; None where no trial has finished."""
    name = metric_column(config)
    ranked = [comparison for comparison in comparisons if name in comparison.columns]
    sign = 1 if config.mode == "max" else -1
    return max(ranked, key=lambda comparison: sign * comparison.columns[name].mean, default=None)
