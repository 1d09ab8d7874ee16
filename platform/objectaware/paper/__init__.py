"""The paper as data: its tables with their numbers, and its figures.

It was read from the paper's LaTeX, without lines that are commented out, and `tests/paper` compares the two. Gains are
not stored: some printed ones are wrong, so `gains` computes them.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Annotated, Any, Literal, NamedTuple, Self

import yaml
from pydantic import BeforeValidator, Field, model_validator

from objectaware.errors import InputError
from objectaware.model import Model, Positive

Key = tuple[str, ...]
"""Name of a row or column: one part per row header or column header of the table."""
Place = tuple[Key, Key]
"""Row and column of a cell."""


class Cell(NamedTuple):
    """Hold a number of a table.

    Attributes:
        mean: Mean over the trials, in the table's unit.
        std: Standard deviation over the trials, if it is printed.
    """

    mean: float
    std: float | None = None

    @classmethod
    def over_seeds(cls, numbers: Sequence[float]) -> Cell:
        """Return the mean of one number per seed, and the standard deviation of the sample if there are several."""
        return cls(statistics.fmean(numbers), statistics.stdev(numbers) if len(numbers) > 1 else None)


def _pair(value: object) -> object:
    return (value,) if isinstance(value, int | float) else value


class Row(Model):
    """Hold a row of a table.

    Attributes:
        name: Name of the row, one part per row header.
        cells: Numbers by column; None for a dash in the paper.
    """

    name: Key
    cells: tuple[Annotated[Cell, BeforeValidator(_pair)] | None, ...]


class Misprint(Model):
    """Hold a printed gain that is not the difference of its cell from the baseline.

    Attributes:
        row: Row of the cell.
        column: Column of the cell.
        printed: The gain as printed; a loss is negative.
    """

    row: Key
    column: Key
    printed: float


class Display(Model):
    """Hold the fields that tables and figures share.

    Attributes:
        label: Name in the LaTeX, without `tab:` or `fig:`.
        caption: Short description.
        datasets: Data sets that it needs, including those of its trainings.
        trainings: Trainings that it needs: names of recipes in `jobs/recipes`, with the fields that are set on the
            command line. The recipes name the sources of their masks.
        published_networks: Networks of others that it needs.
        notes: Questions that the paper leaves open, and the assumptions made here.
    """

    label: str
    caption: str
    datasets: tuple[str, ...]
    trainings: tuple[str, ...] = ()
    published_networks: tuple[str, ...] = ()
    notes: str = ""


class Figure(Display):
    """Hold a figure.

    Attributes:
        panels: Captions of its parts; empty for a single picture.
    """

    panels: tuple[str, ...]


class Table(Display):
    """Hold a table with its numbers.

    Attributes:
        measure: Measure that the numbers give.
        unit: `%`, or `1` for plain numbers.
        num_digits: Decimals as printed.
        better: Which direction is better.
        lower_is_better: Parts of the names of rows or columns in which, unlike in the rest of the table, lower is
            better.
        num_trials: Trainings with different seeds per number.
        localizers: Localizers by the names of their rows.
        baseline: Baseline of the gains: the row (or column) with these values under these headers and the cell's own
            values under the others; empty if the paper prints no gains.
        reference: What numbers of several seeds are compared with where the paper prints no gains, in the form of
            `baseline`; empty if the table has no two trainings.
        misprinted_gains: Printed gains that are wrong by more than rounding.
        row_headers: Headers of the parts of a row's name.
        column_headers: Headers of the parts of a column's name.
        columns: Names of the columns.
        rows: The rows.
        added_rows: Names of rows that the paper does not print, and that are computed below its own.
        added_columns: Names of columns that the paper does not print, and that are computed beside its own.
    """

    measure: str
    unit: Literal["%", "1"]
    num_digits: Positive
    better: Literal["higher", "lower"]
    lower_is_better: tuple[str, ...] = ()
    num_trials: Positive
    localizers: dict[str, str] = Field(default_factory=dict)
    baseline: dict[str, str] = Field(default_factory=dict)
    reference: dict[str, str] = Field(default_factory=dict)
    misprinted_gains: tuple[Misprint, ...] = ()
    row_headers: Key
    column_headers: Key
    columns: tuple[Key, ...]
    rows: tuple[Row, ...]
    added_rows: tuple[Key, ...] = ()
    added_columns: tuple[Key, ...] = ()

    @model_validator(mode="after")
    def _is_rectangular(self) -> Self:
        """Find mistakes in the files before they become wrong numbers."""
        for row in self.rows:
            if len(row.name) != len(self.row_headers) or len(row.cells) != len(self.columns):
                raise ValueError(f"the row {row.name} has {len(row.cells)} cells for {len(self.columns)} columns")
        if any(len(column) != len(self.column_headers) for column in self.all_columns):
            raise ValueError(f"a column does not have the {len(self.column_headers)} parts of the headers")
        if any(len(row) != len(self.row_headers) for row in self.added_rows):
            raise ValueError(f"an added row does not have the {len(self.row_headers)} parts of the headers")
        if any(len(set(names)) < len(names) for names in (self.all_rows, self.all_columns)):
            raise ValueError("two rows or two columns have the same name")
        return self

    @property
    def all_rows(self) -> tuple[Key, ...]:
        """Names of the paper's rows, and of the added ones."""
        return (*(row.name for row in self.rows), *self.added_rows)

    @property
    def all_columns(self) -> tuple[Key, ...]:
        """Names of the paper's columns, and of the added ones."""
        return (*self.columns, *self.added_columns)

    def all_cells(self) -> dict[Place, Cell | None]:
        """Return the numbers by row and column, row by row, with None in added rows and columns."""
        printed = self.cells()
        return {(row, column): printed.get((row, column)) for row in self.all_rows for column in self.all_columns}

    def is_added(self, place: Place) -> bool:
        """Return whether a cell lies in a row or column that the paper does not print."""
        return place[0] in self.added_rows or place[1] in self.added_columns

    def cells(self) -> dict[Place, Cell | None]:
        """Return the paper's numbers by row and column, row by row."""
        return {
            (row.name, column): cell for row in self.rows for column, cell in zip(self.columns, row.cells, strict=True)
        }

    def compared(self, named: dict[str, str]) -> dict[Place, Place]:
        """Return the cell that each cell is compared with, if both have numbers and they are not the same.

        Args:
            named: `baseline` or `reference`.
        """
        cells = self.cells()
        found: dict[Place, Place] = {}
        for (row, column), cell in cells.items():
            start = _with(row, self.row_headers, named), _with(column, self.column_headers, named)
            if start != (row, column) and cell is not None and cells[start] is not None:
                found[row, column] = start
        return found

    def is_lower_better(self, row: Key, column: Key) -> bool:
        """Return whether a smaller number is better in a cell."""
        return self.better == "lower" or any(part in self.lower_is_better for part in (*row, *column))


def gains(table: Table) -> dict[tuple[Key, Key], float]:
    """Return the differences of the cells from their baseline, in the table's unit, rounded to its decimals.

    `Table.is_lower_better` says whether a positive one is an improvement. Cells of a baseline have no gain. A gain may
    differ from the printed one in the last decimal, since the paper computed its gains from more decimals.

    Returns:
        Gains by row and column; empty if the paper compares with no baseline.
    """
    means = {place: cell.mean for place, cell in table.cells().items() if cell is not None}
    return {
        place: round(means[place] - means[start], table.num_digits)
        for place, start in table.compared(table.baseline).items()
    }


def _with(key: Key, headers: Key, values: dict[str, str]) -> Key:
    return tuple(values.get(header, part) for header, part in zip(headers, key, strict=True))


def read_data(*names: str) -> Any:  # noqa: ANN401 - YAML is any value
    """Read a YAML file beside this one, by the parts of its path."""
    return yaml.safe_load(files(__name__).joinpath(*names).read_text(encoding="utf-8"))


TABLE_LABELS: tuple[str, ...] = tuple(read_data("tables.yaml"))
"""Labels of the paper's tables, without `tab:`, in its order."""


@cache
def load_table(label: str) -> Table:
    """Read a table.

    Args:
        label: One of `TABLE_LABELS`.

    Raises:
        InputError: The paper has no such table.
    """
    if label not in TABLE_LABELS:
        raise InputError("table", label, "is not a table of the paper", "objectaware reproduce list shows them all.")
    return Table.model_validate(read_data("tables", f"{label}.yaml"))


@cache
def load_figures() -> tuple[Figure, ...]:
    """Read the list of the figures, in the order of the paper."""
    return tuple(Figure.model_validate(entry) for entry in read_data("figures.yaml"))
