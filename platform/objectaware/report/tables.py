"""Tables as text, for the terminal and as Markdown."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

Rows = Mapping[str, Mapping[str, float]]
"""Cells by row and column. Rows and columns appear in the order of their first occurrence."""

MISSING = "–"
"""Text in place of a missing number."""


def aligned(lines: Sequence[Sequence[str]], is_text: Sequence[bool]) -> list[str]:
    """Lay cells out in columns.

    Args:
        lines: The texts of the cells, line by line.
        is_text: Whether each column holds text, which is aligned left, or numbers, which are aligned right.
    """
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if left else cell.rjust(width)
            for cell, width, left in zip(line, widths, is_text, strict=True)
        ).rstrip()
        for line in lines
    ]


def ruled(lines: Sequence[Sequence[str]], *, num_names: int = 1, num_headers: int = 1) -> list[str]:
    """Lay cells out in columns between rules.

    Args:
        lines: The texts of the cells, line by line.
        num_names: Columns from the left that are names; the others are numbers.
        num_headers: Lines from the top that name the columns.
    """
    text = aligned(lines, [place < num_names for place in range(len(lines[0]))])
    rule = "-" * max(map(len, text))
    return [rule, *text[:num_headers], rule, *text[num_headers:], rule]


def markdown(lines: Sequence[Sequence[str]], *, num_names: int = 1) -> str:
    """Format cells as a table in Markdown.

    Args:
        lines: The texts of the cells, line by line; the first line names the columns.
        num_names: Columns from the left that are names; the others are numbers.
    """
    escaped = [[cell.replace("|", "\\|") for cell in line] for line in lines]
    rule = [":--" if place < num_names else "--:" for place in range(len(lines[0]))]
    return "\n".join("| " + " | ".join(line) + " |" for line in [escaped[0], rule, *escaped[1:]])


def format_table(title: str, rows: Rows, *, digits: int = 1, deviations: Rows | None = None) -> str:
    """Format numbers by row and column: the title, the columns' names, and one line for each row.

    Args:
        title: Text above the table.
        rows: The cells. A cell that is absent or NaN is shown as a dash.
        digits: Number of decimals.
        deviations: Standard deviations of the same cells, shown after `±`; some may be absent.
    """
    return "\n".join([title, *ruled(_cells(rows, digits, deviations))])


def to_markdown(rows: Rows, *, digits: int = 1, deviations: Rows | None = None) -> str:
    """Format numbers as a table in Markdown; the arguments are those of `format_table`."""
    return markdown(_cells(rows, digits, deviations))


def format_rows(rows: Sequence[Mapping[str, object]]) -> str:
    """Format rows of data, such as those of MLflow's tables: numbers aligned right, words aligned left."""
    columns = list(dict.fromkeys(column for row in rows for column in row))
    lines = [columns, *([_text(row.get(column)) for column in columns] for row in rows)]
    is_text = [not all(isinstance(row.get(column), int | float | None) for row in rows) for column in columns]
    return "\n".join(aligned(lines, is_text))


def format_number(mean: float | None, std: float | None, digits: int) -> str:
    """Format a number, with its standard deviation if there is one; a dash for None and NaN."""
    if mean is None or math.isnan(mean):
        return MISSING
    return f"{mean:.{digits}f}" + ("" if std is None else f" ± {std:.{digits}f}")


def _cells(rows: Rows, digits: int, deviations: Rows | None) -> list[list[str]]:
    """Return the texts of all cells; the first line names the columns, and the first column names the rows."""
    columns = list(dict.fromkeys(column for row in rows.values() for column in row))
    lines = [["", *columns]]
    for name, row in rows.items():
        spread = {} if deviations is None else deviations.get(name, {})
        lines.append([name, *(format_number(row.get(column), spread.get(column), digits) for column in columns)])
    return lines


def _text(value: object) -> str:
    if value is None:
        return MISSING
    return f"{value:.4g}" if isinstance(value, float) else str(value)
