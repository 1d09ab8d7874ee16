"""The paper's tables as text."""

from __future__ import annotations

from objectaware.paper.content import Cell, Display, Table, gains

_MISSING = "–"


def format_list(displays: dict[str, Display]) -> str:
    """Lists tables or figures: name, what each shows, and the data sets that it takes.

    Args:
        displays: Tables or figures by the name to show.
    """
    width = max(map(len, displays))
    lines = []
    for name, display in displays.items():
        lines.append(f"{name:{width}}  {display.caption}")
        lines.append(f"{'':{width}}  data: {', '.join(display.datasets)}")
    return "\n".join(lines)


def format_table(table: Table) -> str:
    """Shows a table with its numbers, gains computed from them, what it takes, and notes."""
    lines = _lines(table)
    num_names = len(table.row_headers)
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    text = []
    for line in lines:
        cells = [
            cell.ljust(width) if place < num_names else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        text.append("  ".join(cells).rstrip())
    rule = "-" * (sum(widths) + 2 * (len(widths) - 1))
    header = len(table.column_headers)
    title = f"{table.label}: {table.caption}\n{table.measure}{'' if table.unit == '1' else f' ({table.unit})'}"
    return "\n".join([title, rule, *text[:header], rule, *text[header:], rule, *_footnotes(table)])


def _lines(table: Table) -> list[list[str]]:
    """The texts of all cells: a line for each column header, then one for each row."""
    counted = gains(table)
    last = len(table.column_headers) - 1
    lines = [
        [*(table.row_headers if depth == last else [""] * len(table.row_headers)), *names]
        for depth, names in enumerate(zip(*table.columns, strict=True))
    ]
    for row in table.rows:
        cells = zip(table.columns, row.cells, strict=True)
        texts = [_cell(cell, counted.get((row.name, column)), table.num_digits) for column, cell in cells]
        lines.append([*row.name, *texts])
    return lines


def _cell(cell: Cell | None, gain: float | None, digits: int) -> str:
    if cell is None:
        return _MISSING
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
