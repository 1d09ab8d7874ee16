"""The paper's tables and figures as data, against its LaTeX, in both directions."""

from __future__ import annotations

from pathlib import Path

import pytest

from latex_tables import LatexCell, LatexTable, plain, read_cell, read_figures, read_tables
from objectaware.paper import TABLE_LABELS, Cell, Key, Table, gains, load_figures, load_table


@pytest.fixture
def source(shared_dir: Path) -> str:
    return (shared_dir / "paper" / "object-aware-contrastive.tex").read_text()


@pytest.fixture
def printed(source: str) -> dict[str, LatexTable]:
    return read_tables(source)


def test_all_tables_are_there_in_order(printed: dict[str, LatexTable]) -> None:
    assert tuple(printed) == TABLE_LABELS
    assert len(TABLE_LABELS) == 25


def test_all_figures_are_there_in_order_with_their_parts(source: str) -> None:
    assert {figure.label: list(figure.panels) for figure in load_figures()} == read_figures(source)
    assert [figure.label for figure in load_figures()] == list(read_figures(source))
    assert len(load_figures()) == 14


@pytest.mark.parametrize("label", TABLE_LABELS)
def test_every_number_stands_where_the_paper_prints_it(label: str, printed: dict[str, LatexTable]) -> None:
    """`read_cell` refuses what it cannot account for, so that equality holds both ways."""
    latex = printed_cells(load_table(label), printed[label])
    assert {place: None if cell is None else Cell(cell.mean, cell.std) for place, cell in latex.items()} == load_table(
        label
    ).cells()
    assert list(latex) == list(load_table(label).cells())


@pytest.mark.parametrize("label", TABLE_LABELS)
def test_decimals_are_those_printed(label: str, printed: dict[str, LatexTable]) -> None:
    table = load_table(label)
    texts = [text for line in printed[label].body for text in line[len(table.row_headers) :] if text != "-"]
    longest = max(len(text.split("\\")[0].rstrip().partition(".")[2]) for text in texts)
    assert table.num_digits == longest


@pytest.mark.parametrize("label", TABLE_LABELS)
def test_gains_are_the_printed_ones_but_for_the_listed_misprints(label: str, printed: dict[str, LatexTable]) -> None:
    table = load_table(label)
    latex = {place: cell.gain for place, cell in printed_cells(table, printed[label]).items() if cell is not None}
    shown = {place: gain for place, gain in latex.items() if gain is not None}
    computed = gains(table)
    assert shown.keys() == computed.keys()
    # The paper subtracts before it rounds: the last decimal may differ.
    rounding = 1.5 * 10**-table.num_digits
    wrong = {place: gain for place, gain in shown.items() if abs(gain - computed[place]) > rounding}
    assert wrong == {(misprint.row, misprint.column): misprint.printed for misprint in table.misprinted_gains}


@pytest.mark.parametrize("label", TABLE_LABELS)
def test_directions_are_those_of_the_arrows(label: str, printed: dict[str, LatexTable]) -> None:
    table, latex = load_table(label), printed[label]
    names = [plain(text) for line in [*latex.header, *latex.body] for text in line]
    falling = {name.removesuffix("↓").strip() for name in names if name.endswith("↓")}
    assert falling == set(table.lower_is_better)
    assert not falling or table.better == "higher"


def printed_cells(table: Table, latex: LatexTable) -> dict[tuple[Key, Key], LatexCell | None]:
    """The cells of a printed table by the names of their row and column; the names' titles must be the table's own."""
    num_names = len(table.row_headers)
    for place, title in enumerate(table.row_headers):
        # Two tables print nothing over the names of their rows, one the title of its columns.
        assert {line[place] for line in latex.header} <= {title, "", *table.column_headers}
    columns = _column_names(latex, num_names)
    cells = {}
    for line in latex.body:
        row = tuple(_name(plain(text)) for text in line[:num_names])
        for column, text in zip(columns, line[num_names:], strict=True):
            assert (row, column) not in cells
            cells[row, column] = read_cell(text)
    return cells


def _column_names(latex: LatexTable, num_names: int) -> list[Key]:
    """What stands above each column, from the top, but for the line that says `Test dataset` above them all."""
    width = max(map(len, latex.header))
    lines = [[*line, *[""] * (width - len(line))][num_names:] for line in latex.header]
    lines = [line for line in lines if not set(line) <= {"Test dataset", ""}]
    return [tuple(_name(line[place]) for line in lines) for place in range(len(lines[0]))]


def _name(text: str) -> str:
    return text.rstrip("↑↓ ") or "-"
