"""A measured table beside the paper's."""

from __future__ import annotations

from dataclasses import replace

import pytest

from objectaware.evaluate.linear import paired_difference
from objectaware.paper import Cell, load_table
from objectaware.report.tables import TableReport, format_paper_table

PLACE = (("Original",), ("MoCov2", "Baseline"))


def _report(mark: str = "") -> TableReport:
    table = load_table("bg-main")
    numbers = {PLACE: Cell.over_seeds([88.0, 89.0, 90.5])}
    measured = {place: numbers.get(place, "no GPU") for place in table.cells()}
    return TableReport(table, measured, (0, 1, 2), mark)


def test_several_seeds_give_mean_and_deviation() -> None:
    assert Cell.over_seeds([88.0, 89.0, 90.5]) == Cell(pytest.approx(89.16667), pytest.approx(1.25831, abs=1e-5))  # type: ignore[arg-type]
    assert Cell.over_seeds([3.0]) == Cell(3.0)


def test_a_row_shows_paper_measured_and_difference() -> None:
    lines = _report().text().splitlines()
    place = next(index for index, line in enumerate(lines) if line.startswith("Original"))
    assert lines[place].split()[:5] == ["Original", "paper", "89.17", "±", "0.49"]
    assert lines[place + 1].split()[:4] == ["measured", "89.17", "±", "1.26"]
    assert lines[place + 2].split() == ["difference", "-0.00"]
    assert "47 cells missing: no GPU" in lines
    assert len({len(line) for line in lines[place : place + 1]}) == 1


def test_gains_over_the_same_seeds_are_beside_the_numbers() -> None:
    mixed = (("Original",), ("MoCov2", "BG-Mixup (CAM)"))
    report = replace(_report(), gains={mixed: paired_difference([90.0, 91.5, 92.0], [88.0, 89.0, 90.5])})
    lines = report.text().splitlines()
    place = next(index for index, line in enumerate(lines) if line.startswith("Original"))
    assert lines[place + 3].split() == ["gain", "+2.00", "±", "0.50"]
    assert any(line.startswith("gain: difference from Augmentation Baseline with the same seed") for line in lines)
    first = [row for row in report.rows() if (row["Dataset"], row["Model"]) == ("Original", "MoCov2")]
    by_name = {row["Augmentation"]: row for row in first}
    row = by_name["BG-Mixup (CAM)"]
    assert (row["gain"], row["gain std"]) == (pytest.approx(2.0), pytest.approx(0.5))
    assert [row[f"gain seed {seed}"] for seed in (0, 1, 2)] == [2.0, 2.5, 1.5]
    assert by_name["Baseline"]["gain"] is None
    assert len([line for line in report.markdown().splitlines() if line.startswith("|")]) == 2 + 4 * 8
    assert "gain" not in _report().rows()[0]


def test_every_line_says_that_it_is_smoke() -> None:
    report = _report("smoke on scenes")
    assert all(line.startswith("smoke on scenes | ") for line in report.text().splitlines())
    assert all(row["scale"] == "smoke on scenes" for row in report.rows())
    assert report.markdown().startswith("# bg-main, paper protocol (smoke on scenes)")


def test_rows_hold_names_numbers_and_reasons() -> None:
    rows = _report().rows()
    assert len(rows) == 48
    first = next(row for row in rows if row["measured"] is not None)
    assert (first["Dataset"], first["Model"], first["Augmentation"]) == ("Original", "MoCov2", "Baseline")
    assert (first["paper"], first["paper std"]) == (89.17, 0.49)
    assert first["difference"] == pytest.approx(89.16667 - 89.17, abs=1e-4)
    assert {row["missing"] for row in rows} == {"", "no GPU"}


def test_a_dash_of_the_papers_stays_a_dash() -> None:
    table = load_table("multi-supervised-det")
    report = TableReport(table, {}, (0,))
    dash = (("COCO Segmentation",), ("Faster R-CNN", "-"))
    assert report.difference(dash) is None
    assert "–" in report.text()
    assert next(row for row in report.rows() if row["paper"] is None)["missing"] == "the paper has none"


def test_a_cell_that_cannot_be_compared_is_marked_and_has_no_difference() -> None:
    table = load_table("bg-main")
    other = (("Only-FG",), ("BYOL", "Baseline"))
    reasons = {other: ("ImageNet-9 train has 9 of 45,405 images", "the recipe x was changed")}
    report = TableReport(table, {PLACE: Cell(90.0), other: Cell(61.0, 0.5)}, (0,), incomparable=reasons)
    assert report.difference(other) is None
    assert report.difference(PLACE) == pytest.approx(90 - 89.17)
    lines = report.text().splitlines()
    assert sum("n/c" in line for line in lines) == 1 + 2
    place = next(index for index, line in enumerate(lines) if line.startswith("Only-FG"))
    assert "61.00 ± 0.50 n/c" in lines[place + 1]
    assert lines[place + 2].split() == ["difference"]
    assert [line for line in lines if line.startswith("1 cells")] == [
        "1 cells n/c (not comparable): ImageNet-9 train has 9 of 45,405 images",
        "1 cells n/c (not comparable): the recipe x was changed",
    ]
    rows = {row["not comparable"]: row for row in report.rows()}
    marked = rows.pop("ImageNet-9 train has 9 of 45,405 images; the recipe x was changed")
    assert (marked["paper"], marked["measured"], marked["difference"]) == (61.04, 61.0, None)
    assert list(rows) == [""]
    assert "61.00 ± 0.50 n/c" in report.markdown()


def test_rows_that_the_paper_does_not_print_are_marked_as_ours() -> None:
    table = load_table("loc-cam")
    report = TableReport(table, dict.fromkeys(table.all_cells(), Cell(0.5)), (0,))
    lines = report.text().splitlines()
    place = next(index for index, line in enumerate(lines) if "ReLU on α" in line and line.startswith("Supervised"))
    assert lines[place].split()[-6:] == ["0.500", "n/c"] * 3
    assert "3 cells n/c (not comparable): ours, the paper has no such number" in lines
    added = [row for row in report.rows() if row["Inference"] == "Classifier CAM, ReLU on α"]
    assert [(row["paper"], row["difference"], row["not comparable"]) for row in added] == [
        (None, None, "ours, the paper has no such number")
    ] * 3
    note = "not in the paper, but computed beside it: Supervised, Classifier CAM, ReLU on α"
    assert note in format_paper_table(table).splitlines()


def test_columns_that_the_paper_does_not_print_stand_beside_its_own() -> None:
    table = load_table("bg-more-datasets")
    report = TableReport(table, dict.fromkeys(table.all_cells(), Cell(50.0)), (0,))
    lines = report.text().splitlines()
    header = next(line for line in lines if "SI-Score-9: size" in line)
    assert header.index("ObjectNet-9") < header.index("SI-Score-9: size") < header.index("mean of factors")
    first = next(index for index, line in enumerate(lines) if line.startswith("MoCov2  Baseline"))
    assert lines[first].count("–") == 4
    assert lines[first + 1].count("n/c") == 4
    assert len(lines[first + 2].split()) == 1 + 2


def test_markdown_has_as_many_cells_in_each_line() -> None:
    lines = [line for line in _report().markdown().splitlines() if line.startswith("|")]
    assert len({line.count("|") for line in lines}) == 1
    assert len(lines) == 2 + 3 * 8
