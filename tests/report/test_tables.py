"""Tables as text."""

from __future__ import annotations

from objectaware.report.tables import format_rows, format_table, report_of, to_markdown

ROWS = {
    "baseline": {"original": 60.04, "mixed_rand": 13.0},
    "background_mixup": {"original": 44.0, "mixed_rand": 18.25, "bg_gap": 33.0},
}


def test_a_table_is_aligned_and_marks_what_is_missing() -> None:
    assert format_table("Accuracy (%)", ROWS).splitlines() == [
        "Accuracy (%)",
        "----------------------------------------------",
        "                  original  mixed_rand  bg_gap",
        "----------------------------------------------",
        "baseline              60.0        13.0       –",
        "background_mixup      44.0        18.2    33.0",
        "----------------------------------------------",
    ]


def test_deviations_stand_behind_their_cells() -> None:
    text = format_table("t", ROWS, digits=2, deviations={"baseline": {"original": 0.5}})
    assert "60.04 ± 0.50" in text
    assert text.count("±") == 1


def test_nan_is_missing() -> None:
    assert format_table("t", {"row": {"cell": float("nan")}}).splitlines()[4].split() == ["row", "–"]


def test_table_without_rows_is_its_title() -> None:
    assert format_table("Nothing", {}).startswith("Nothing\n")


def test_a_table_in_markdown_escapes_bars() -> None:
    assert to_markdown({"a|b": {"x": 1.0}}, digits=3) == "|  | x |\n| :-- | --: |\n| a\\|b | 1.000 |"


def test_a_table_as_text_lines_its_cells_up() -> None:
    rows = [
        {"method": "moco", "p": 0.3, "accuracy": 61.23456},
        {"method": "b", "p": 0.5, "accuracy": None, "failed": 1},
    ]
    lines = format_rows(rows).split("\n")
    assert lines == [
        "method    p  accuracy  failed",
        "moco    0.3     61.23       –",
        "b       0.5         –       1",
    ]


def test_a_report_has_each_table_that_has_rows() -> None:
    tables = {"comparison": [{"p": 0.5, "accuracy": 61.234}, {"p": 0.7, "accuracy": None}], "changes": []}
    assert report_of("the sweep", tables) == (
        "# the sweep\n\ncomparison:\n\n| p | accuracy |\n| :-- | --: |\n| 0.5 | 61.23 |\n| 0.7 | – |\n"
    )
