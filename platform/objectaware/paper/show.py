"""The paper's tables as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from objectaware.paper.content import Cell, Display, Table, gains

MISSING = "–"
"""What stands where the paper has a dash."""


def format_list(displays: Mapping[str, Display], missing: Mapping[str, Sequence[str]]) -> str:
    """Lists tables or figures: name, what each shows, the data sets that it takes, and what of them is not here.

    Args:
        displays: Tables or figures by the name to show.
        missing: By the same names, the data sets and the networks of others that are not here.
    """
    width = max(map(len, displays))
    lines = []
    for name, display in displays.items():
        lines.append(f"{name:{width}}  {display.caption}")
        lines.append(f"{'':{width}}  data: {', '.join(display.datasets)}")
        lacking = ", ".join(missing[name])
        lines.append(f"{'':{width}}  {f'not here: {lacking}' if lacking else 'can run: all of it is here'}")
    return "\n".join(lines)


def format_table(table: Table) -> str:
    """Shows a table with its numbers, gains computed from them, what it takes, and notes."""
    lines = aligned(_lines(table), len(table.row_headers), len(table.column_headers))
    title = f"{table.label}: {table.caption}\n{table.measure}{'' if table.unit == '1' else f' ({table.unit})'}"
    return "\n".join([title, *lines, *_footnotes(table)])


def aligned(lines: Sequence[Sequence[str]], num_names: int, num_headers: int) -> list[str]:
    """Lays cells out in columns between rules.

    Args:
        lines: The texts of the cells, line by line.
        num_names: Columns from the left that are names and aligned left; the others are numbers.
        num_headers: Lines from the top that name the columns.
    """
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    text = []
    for line in lines:
        cells = [
            cell.ljust(width) if place < num_names else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        text.append("  ".join(cells).rstrip())
    rule = "-" * (sum(widths) + 2 * (len(widths) - 1))
    return [rule, *text[:num_headers], rule, *text[num_headers:], rule]


def column_lines(table: Table, *, extra: Sequence[str] = ()) -> list[list[str]]:
    """A line for each column header, the names of the row headers in the last.

    Args:
        table: The table.
        extra: Further names behind those of the row headers.
    """
    last = len(table.column_headers) - 1
    names = [*table.row_headers, *extra]
    return [
        [*(names if depth == last else [""] * len(names)), *columns]
        for depth, columns in enumerate(zip(*table.columns, strict=True))
    ]


def _lines(table: Table) -> list[list[str]]:
    """The texts of all cells: the columns' names, then a line for each row."""
    counted = gains(table)
    lines = column_lines(table)
    for row in table.rows:
        cells = zip(table.columns, row.cells, strict=True)
        texts = [format_cell(cell, counted.get((row.name, column)), table.num_digits) for column, cell in cells]
        lines.append([*row.name, *texts])
    return lines


def format_cell(cell: Cell | None, gain: float | None, digits: int) -> str:
    """A number with its deviation and its gain, so far as it has them; a dash for None."""
    if cell is None:
        return MISSING
    spread = "" if cell.std is None else f" ± {cell.std:.{digits}f}"
    return f"{cell.mean:.{digits}f}{spread}" + ("" if gain is None else f" ({gain:+.{digits}f})")


def _footnotes(table: Table) -> list[str]:
    exceptions = f"; lower in {', '.join(table.lower_is_better)}" if table.lower_is_better else ""
    lines = [f"{table.better} is better{exceptions}", f"trainings behind a number: {table.num_trials}"]
    for misprint in table.misprinted_gains:
        place = ", ".join((*misprint.row, *misprint.column))
        lines.append(f"misprinted in the paper: the gain of {place} as {misprint.printed:+.{table.num_digits}f}")
    lines.append(f"data: {', '.join(table.datasets)}")
    lines += [f"training: {training}" for training in table.trainings]
    lines += [f"published network: {network}" for network in table.published_networks]
    return lines + ([f"note: {table.notes}"] if table.notes else [])
