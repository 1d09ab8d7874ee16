"""Results of several seeds in one, and tables of results as text."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

Rows = Mapping[str, Mapping[str, float]]
"""Cells by row and column; rows and columns appear in the order in which they are first met."""

MISSING = "–"


def mean_and_std(results: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns mean and standard deviation of each number over results of the same shape.

    Args:
        results: One nested mapping for each seed, whose leaves are numbers.

    Returns:
        Two mappings in the same shape. The standard deviation is that of a sample (divisor n - 1), and 0 for
        a single result.

    Raises:
        ValueError: There is no result, two differ in their keys, or a leaf is not a number.
    """
    if not results:
        raise ValueError("there is no result to summarise")
    means: dict[str, Any] = {}
    deviations: dict[str, Any] = {}
    for result in results[1:]:
        if result.keys() != results[0].keys():
            raise ValueError(f"results differ in their keys: {sorted(results[0])} and {sorted(result)}")
    for key in results[0]:
        values = [result[key] for result in results]
        if all(isinstance(value, Mapping) for value in values):
            means[key], deviations[key] = mean_and_std(values)
        elif all(isinstance(value, int | float) for value in values):
            means[key] = statistics.fmean(values)
            deviations[key] = statistics.stdev(values) if len(values) > 1 else 0.0
        else:
            raise ValueError(f"{key} is not a number in each result: {values}")
    return means, deviations


def format_table(title: str, rows: Rows, *, digits: int = 1, deviations: Rows | None = None) -> str:
    """Returns a table for the terminal: the title, the columns' names, and a line for each row.

    Args:
        title: Stands above the table.
        rows: The cells. A cell that is absent or NaN is shown as a dash.
        digits: Number of decimals.
        deviations: Standard deviations of the same cells, shown behind them after `±`; some may be absent.
    """
    cells = _cells(rows, digits, deviations)
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = []
    for name, *numbers in cells:
        aligned = (number.rjust(width) for number, width in zip(numbers, widths[1:], strict=True))
        lines.append("  ".join([name.ljust(widths[0]), *aligned]).rstrip())
    rule = "-" * (sum(widths) + 2 * (len(widths) - 1))
    return "\n".join([title, rule, lines[0], rule, *lines[1:], rule])


def to_markdown(rows: Rows, *, digits: int = 1, deviations: Rows | None = None) -> str:
    """Returns the table in Markdown, numbers aligned right; the arguments are those of `format_table`."""
    cells = [[cell.replace("|", "\\|") for cell in line] for line in _cells(rows, digits, deviations)]
    rule = [":--", *["--:"] * (len(cells[0]) - 1)]
    return "\n".join("| " + " | ".join(line) + " |" for line in [cells[0], rule, *cells[1:]])


def _cells(rows: Rows, digits: int, deviations: Rows | None) -> list[list[str]]:
    """Returns the texts of all cells; the first line holds the columns' names, the first column the rows'."""
    columns = list(dict.fromkeys(column for row in rows.values() for column in row))
    lines = [["", *columns]]
    for name, row in rows.items():
        spread = {} if deviations is None else deviations.get(name, {})
        lines.append([name, *(_cell(row.get(column), spread.get(column), digits) for column in columns)])
    return lines


def _cell(value: float | None, deviation: float | None, digits: int) -> str:
    if value is None or math.isnan(value):
        return MISSING
    return f"{value:.{digits}f}" + ("" if deviation is None else f" ± {deviation:.{digits}f}")
