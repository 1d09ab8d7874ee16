"""A measured table beside the paper's: as text, as Markdown and as rows of data."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from objectaware.paper.content import Cell, Table
from objectaware.paper.plan import Place
from objectaware.paper.show import MISSING, aligned, column_lines, format_cell


@dataclass(frozen=True)
class Measured:
    """What became of a cell.

    Attributes:
        cell: The number, with its standard deviation (of the sample) over several seeds; None where there is none.
        reason: Why there is none.
    """

    cell: Cell | None
    reason: str | None = None

    @classmethod
    def of(cls, numbers: Sequence[float]) -> Measured:
        """The mean of a number a seed."""
        return cls(Cell(statistics.fmean(numbers), statistics.stdev(numbers) if len(numbers) > 1 else None))


@dataclass(frozen=True)
class TableReport:
    """A table with what was measured.

    Attributes:
        table: The paper's.
        measured: By row and column; a dash of the paper's is not among them.
        seeds: Seeds of the trainings behind each number.
        mark: What every line says of the scale; empty at full scale.
    """

    table: Table
    measured: Mapping[Place, Measured]
    seeds: tuple[int, ...]
    mark: str = ""

    def difference(self, place: Place) -> float | None:
        """Measured less printed, in the table's unit; None where one of them is missing."""
        printed, measured = self.table.cells()[place], self.measured.get(place)
        if printed is None or measured is None or measured.cell is None:
            return None
        return measured.cell.mean - printed.mean

    def text(self) -> str:
        """The table for the terminal, three lines a row, every one with the mark."""
        table = self.table
        lines = aligned(self._lines(), len(table.row_headers) + 1, len(table.column_headers))
        unit = "" if table.unit == "1" else f" ({table.unit})"
        head = [f"{table.label}: {table.caption}", f"{table.measure}{unit}; {table.better} is better"]
        start = f"{self.mark} | " if self.mark else ""
        return "\n".join(start + line for line in [*head, *lines, *self.notes()])

    def markdown(self) -> str:
        """The same as a Markdown page."""
        table = self.table
        body = self._lines()
        header, rows = body[: len(table.column_headers)], body[len(table.column_headers) :]
        num_names = len(table.row_headers) + 1
        titles = [" ".join(filter(None, column)) for column in zip(*header, strict=True)]
        rule = [":--"] * num_names + ["--:"] * (len(titles) - num_names)
        lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in (titles, rule, *rows)]
        mark = f" ({self.mark})" if self.mark else ""
        notes = "\n".join(f"- {note}" for note in self.notes())
        return f"# {table.label}{mark}\n\n{table.caption}. {table.measure}.\n\n" + "\n".join(lines) + f"\n\n{notes}\n"

    def notes(self) -> list[str]:
        """What stands below the table: seeds, what is missing and why, what the paper leaves open."""
        seeds = ", ".join(map(str, self.seeds))
        lines = [f"seeds of the trainings: {seeds} (the paper has {self.table.num_trials})"]
        reasons = Counter(one.reason for one in self.measured.values() if one.reason is not None)
        lines += [f"{number} cells missing: {reason}" for reason, number in reasons.items()]
        if self.mark:
            lines.append("pictures made by code and a few steps of training: comparable with no published numbers")
        return lines + ([f"note: {self.table.notes}"] if self.table.notes else [])

    def rows(self) -> list[dict[str, Any]]:
        """A mapping a cell, with names, paper, measured, difference and the reason for what is missing."""
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
        """The texts of all cells: the columns' names, and for each row the paper's, the measured and the difference."""
        table, digits = self.table, self.table.num_digits
        lines = column_lines(table, extra=("",))
        for row in table.rows:
            printed = [format_cell(cell, None, digits) for cell in row.cells]
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
        return "missing" if measured.cell is None else format_cell(measured.cell, None, self.table.num_digits)
