"""The paper's tables as text, alone and beside measured numbers."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from objectaware.paper.content import Cell, Display, Table, gains
from objectaware.paper.plan import Place
from objectaware.report.tables import MISSING, format_number, markdown, ruled


def format_list(displays: Mapping[str, Display], missing: Mapping[str, Sequence[str]]) -> str:
    """List tables or figures: name, caption, the data sets that each one needs, and what is missing here.

    Args:
        displays: Tables or figures by the names to show.
        missing: By the same names, the data sets and published networks that are not here.
    """
    width = max(map(len, displays))
    lines = []
    for name, display in displays.items():
        lines.append(f"{name:{width}}  {display.caption}")
        lines.append(f"{'':{width}}  data: {', '.join(display.datasets)}")
        lacking = ", ".join(missing[name])
        lines.append(f"{'':{width}}  {f'not here: {lacking}' if lacking else 'can run: all of it is here'}")
    return "\n".join(lines)


def format_paper_table(table: Table) -> str:
    """Format a table of the paper: its numbers with their gains, its data and trainings, and notes."""
    lines = ruled(_lines(table), num_names=len(table.row_headers), num_headers=len(table.column_headers))
    title = f"{table.label}: {table.caption}\n{table.measure}{'' if table.unit == '1' else f' ({table.unit})'}"
    return "\n".join([title, *lines, *_footnotes(table)])


def _column_lines(table: Table, *, extra: Sequence[str] = ()) -> list[list[str]]:
    """Return one line per column header; the last line also names the row headers.

    Args:
        table: The table.
        extra: Further names after those of the row headers.
    """
    last = len(table.column_headers) - 1
    names = [*table.row_headers, *extra]
    return [
        [*(names if depth == last else [""] * len(names)), *columns]
        for depth, columns in enumerate(zip(*table.columns, strict=True))
    ]


def _lines(table: Table) -> list[list[str]]:
    """Return the texts of all cells: the columns' names, then one line per row."""
    counted = gains(table)
    lines = _column_lines(table)
    for row in table.rows:
        cells = zip(table.columns, row.cells, strict=True)
        texts = [_format_cell(cell, counted.get((row.name, column)), table.num_digits) for column, cell in cells]
        lines.append([*row.name, *texts])
    return lines


def _format_cell(cell: Cell | None, gain: float | None, digits: int) -> str:
    """Format a number, with its deviation and gain if it has them; a dash for None."""
    if cell is None:
        return MISSING
    return format_number(cell.mean, cell.std, digits) + ("" if gain is None else f" ({gain:+.{digits}f})")


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


@dataclass(frozen=True)
class Measured:
    """A measured cell of a table, or the reason why it is missing.

    Attributes:
        cell: The number, with its standard deviation (of the sample) over several seeds; None if it is missing.
        reason: Reason why it is missing.
    """

    cell: Cell | None
    reason: str | None = None

    @classmethod
    def of(cls, numbers: Sequence[float]) -> Measured:
        """Make a cell of one number per seed: their mean and standard deviation."""
        return cls(Cell(statistics.fmean(numbers), statistics.stdev(numbers) if len(numbers) > 1 else None))


@dataclass(frozen=True)
class TableReport:
    """A table of the paper beside measured numbers.

    Attributes:
        table: The paper's table.
        measured: Measured cells by row and column; there is none where the paper has a dash.
        seeds: Seeds of the trainings behind each number.
        mark: Name of the scale, a prefix of every line; empty at full scale.
    """

    table: Table
    measured: Mapping[Place, Measured]
    seeds: tuple[int, ...]
    mark: str = ""

    def difference(self, place: Place) -> float | None:
        """Return the measured number minus the paper's, in the table's unit; None if one of them is missing."""
        printed, measured = self.table.cells()[place], self.measured.get(place)
        if printed is None or measured is None or measured.cell is None:
            return None
        return measured.cell.mean - printed.mean

    def text(self) -> str:
        """Format the table with three lines per row, each line with the mark."""
        table = self.table
        lines = ruled(self._lines(), num_names=len(table.row_headers) + 1, num_headers=len(table.column_headers))
        unit = "" if table.unit == "1" else f" ({table.unit})"
        head = [f"{table.label}: {table.caption}", f"{table.measure}{unit}; {table.better} is better"]
        start = f"{self.mark} | " if self.mark else ""
        return "\n".join(start + line for line in [*head, *lines, *self.notes()])

    def markdown(self) -> str:
        """Format the same as a Markdown page."""
        table = self.table
        body = self._lines()
        header, rows = body[: len(table.column_headers)], body[len(table.column_headers) :]
        titles = [" ".join(filter(None, column)) for column in zip(*header, strict=True)]
        cells = markdown([titles, *rows], num_names=len(table.row_headers) + 1)
        mark = f" ({self.mark})" if self.mark else ""
        notes = "\n".join(f"- {note}" for note in self.notes())
        return f"# {table.label}{mark}\n\n{table.caption}. {table.measure}.\n\n{cells}\n\n{notes}\n"

    def notes(self) -> list[str]:
        """Return the lines below the table: seeds, missing cells with their reasons, and the paper's notes."""
        seeds = ", ".join(map(str, self.seeds))
        lines = [f"seeds of the trainings: {seeds} (the paper has {self.table.num_trials})"]
        reasons = Counter(one.reason for one in self.measured.values() if one.reason is not None)
        lines += [f"{number} cells missing: {reason}" for reason, number in reasons.items()]
        if self.mark:
            lines.append("pictures made by code and a few steps of training: comparable with no published numbers")
        return lines + ([f"note: {self.table.notes}"] if self.table.notes else [])

    def rows(self) -> list[dict[str, Any]]:
        """Return one row of data per cell: its names, the paper's number, the measured one, and their difference."""
        rows = []
        for (row, column), printed in self.table.cells().items():
            measured = self.measured.get((row, column), Measured(None, "the paper has none"))
            rows.append(
                {
                    **({"scale": self.mark} if self.mark else {}),
                    **dict(zip(self.table.row_headers, row, strict=True)),
                    **dict(zip(self.table.column_headers, column, strict=True)),
                    "paper": None if printed is None else printed.mean,
                    "paper std": None if printed is None else printed.std,
                    "measured": None if measured.cell is None else measured.cell.mean,
                    "measured std": None if measured.cell is None else measured.cell.std,
                    "difference": self.difference((row, column)),
                    "missing": measured.reason or "",
                }
            )
        return rows

    def _lines(self) -> list[list[str]]:
        """Return the texts of all cells: the columns' names, then three lines per row: paper, measured, difference."""
        table, digits = self.table, self.table.num_digits
        lines = _column_lines(table, extra=("",))
        for row in table.rows:
            printed = [_format_cell(cell, None, digits) for cell in row.cells]
            measured = [self._text((row.name, column)) for column in table.columns]
            gaps = [self.difference((row.name, column)) for column in table.columns]
            differences = ["" if gap is None else f"{gap:+.{digits}f}" for gap in gaps]
            blank = [""] * len(row.name)
            lines.append([*row.name, "paper", *printed])
            lines.append([*blank, "measured", *measured])
            lines.append([*blank, "difference", *differences])
        return lines

    def _text(self, place: Place) -> str:
        measured = self.measured.get(place)
        if measured is None:
            return MISSING
        return "missing" if measured.cell is None else _format_cell(measured.cell, None, self.table.num_digits)
