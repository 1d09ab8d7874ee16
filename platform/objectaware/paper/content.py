"""What the paper shows: its tables with their numbers, and its figures.

Everything is read off the paper's LaTeX, lines that are commented out left aside; `tests/paper` checks it against it.
Gains are not stored: some printed ones are wrong, and `gains` computes them.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Annotated, Literal, NamedTuple, Self

import yaml
from pydantic import BeforeValidator, Field, model_validator

from objectaware.errors import InputError
from objectaware.model import Model, Positive

Key = tuple[str, ...]
"""Name of a row or column: one part for each of the table's row or column headers."""


class Cell(NamedTuple):
    """A number of a table.

    Attributes:
        mean: Mean over the trials, in the table's unit.
        std: Standard deviation over the trials, where it is printed.
    """

    mean: float
    std: float | None = None


def _pair(value: object) -> object:
    return (value,) if isinstance(value, int | float) else value


class Row(Model):
    """A row of a table.

    Attributes:
        name: What stands before the numbers, by row header.
        cells: The numbers, by column; None where the paper has a dash.
    """

    name: Key
    cells: tuple[Annotated[Cell, BeforeValidator(_pair)] | None, ...]


class Misprint(Model):
    """A gain that is printed beside a cell and is not that cell less its baseline.

    Attributes:
        row: Row of the cell.
        column: Column of the cell.
        printed: The gain as printed; a loss is negative.
    """

    row: Key
    column: Key
    printed: float


class Display(Model):
    """What tables and figures have in common.

    Attributes:
        label: Name in the LaTeX, without `tab:` or `fig:`.
        caption: What it shows, in short.
        datasets: Data sets that it takes, those of its trainings included.
        trainings: What has to be trained: names of recipes in `jobs/recipes`, with the fields that are set on the
            command line. What their masks come from stands in the recipes.
        published_networks: What is taken from others.
        notes: What the paper leaves open, and what is assumed here.
    """

    label: str
    caption: str
    datasets: tuple[str, ...]
    trainings: tuple[str, ...] = ()
    published_networks: tuple[str, ...] = ()
    notes: str = ""


class Figure(Display):
    """A figure.

    Attributes:
        panels: Captions of its parts; none where it is one picture.
    """

    panels: tuple[str, ...]


class Table(Display):
    """A table with its numbers.

    Attributes:
        measure: What the numbers are.
        unit: `%`, or `1` for plain numbers.
        num_digits: Decimals as printed.
        better: Which direction is better.
        lower_is_better: Rows or columns, by any part of their name, in which lower is better although elsewhere in the
            table higher is.
        num_trials: Trainings with different seeds behind a number.
        localizers: Localizers by the names that rows have for them.
        baseline: What gains are counted from: the row (or column) with these values under these headers and its
            own under the others; empty where the paper prints no gains.
        misprinted_gains: Gains that are printed wrongly, by more than rounding.
        row_headers: What the parts of a row's name are.
        column_headers: What the parts of a column's name are.
        columns: Names of the columns.
        rows: The rows.
    """

    measure: str
    unit: Literal["%", "1"]
    num_digits: Positive
    better: Literal["higher", "lower"]
    lower_is_better: tuple[str, ...] = ()
    num_trials: Positive
    localizers: dict[str, str] = Field(default_factory=dict)
    baseline: dict[str, str] = Field(default_factory=dict)
    misprinted_gains: tuple[Misprint, ...] = ()
    row_headers: Key
    column_headers: Key
    columns: tuple[Key, ...]
    rows: tuple[Row, ...]

    @model_validator(mode="after")
    def _is_rectangular(self) -> Self:
        """Finds slips in the files before they become wrong numbers."""
        for row in self.rows:
            if len(row.name) != len(self.row_headers) or len(row.cells) != len(self.columns):
                raise ValueError(f"the row {row.name} has {len(row.cells)} cells for {len(self.columns)} columns")
        if any(len(column) != len(self.column_headers) for column in self.columns):
            raise ValueError(f"a column does not have the {len(self.column_headers)} parts of the headers")
        if len({row.name for row in self.rows}) < len(self.rows) or len(set(self.columns)) < len(self.columns):
            raise ValueError("two rows or two columns have the same name")
        return self

    def cells(self) -> dict[tuple[Key, Key], Cell | None]:
        """The numbers by row and column, row by row."""
        return {
            (row.name, column): cell for row in self.rows for column, cell in zip(self.columns, row.cells, strict=True)
        }

    def is_lower_better(self, row: Key, column: Key) -> bool:
        """Whether a smaller number is the better one in a cell."""
        return self.better == "lower" or any(part in self.lower_is_better for part in (*row, *column))


def gains(table: Table) -> dict[tuple[Key, Key], float]:
    """Differences of the cells from their baseline, in the table's unit, rounded to its decimals.

    Whether a positive one is an improvement says `Table.is_lower_better`. Cells of a baseline have none. A gain may
    differ from the printed one in the last decimal, since the paper's were computed from more decimals than it prints.

    Returns:
        Gains by row and column; none where the paper compares with no baseline.
    """
    cells = table.cells()
    found: dict[tuple[Key, Key], float] = {}
    for (row, column), cell in cells.items():
        origin = _with(row, table.row_headers, table.baseline), _with(column, table.column_headers, table.baseline)
        start = cells[origin]
        if origin != (row, column) and cell is not None and start is not None:
            found[row, column] = round(cell.mean - start.mean, table.num_digits)
    return found


def _with(key: Key, headers: Key, values: dict[str, str]) -> Key:
    return tuple(values.get(header, part) for header, part in zip(headers, key, strict=True))


# In the order of the paper.
TABLE_LABELS = (
    "loc-main",
    "loc-cam",
    "loc-cam-transfer",
    "multi-main",
    "multi-det",
    "multi-shift",
    "bg-main",
    "bg-domain",
    "loc-iter",
    "loc-batch",
    "loc-cam-full",
    "loc-saliency",
    "multi-bias",
    "multi-bias-epoch",
    "multi-supervised-lineval",
    "multi-supervised-det",
    "multi-class-wise",
    "multi-imagenet",
    "multi-second",
    "bg-soft-hard",
    "bg-probability",
    "bg-more-dist",
    "bg-more-bg",
    "bg-imagenetc",
    "bg-more-datasets",
)
"""Labels of the paper's tables, without `tab:`."""


@cache
def load_table(label: str) -> Table:
    """Reads a table.

    Args:
        label: One of `TABLE_LABELS`.

    Raises:
        InputError: The paper has no such table.
    """
    if label not in TABLE_LABELS:
        raise InputError("table", label, "is no table of the paper", "objectaware reproduce list shows them all.")
    text = files("objectaware.paper").joinpath("tables", f"{label}.yaml").read_text(encoding="utf-8")
    return Table.model_validate(yaml.safe_load(text))


@cache
def load_figures() -> tuple[Figure, ...]:
    """Reads the list of the figures, in the order of the paper."""
    text = files("objectaware.paper").joinpath("figures.yaml").read_text(encoding="utf-8")
    return tuple(Figure.model_validate(entry) for entry in yaml.safe_load(text))
