from __future__ import annotations

import csv
from pathlib import Path

import pytest

from harness import compare, exit_status, in_turn, write_results, write_rows
from page import NO_GPU, figures


def test_pairs_are_measured_in_turn_and_the_first_alternates() -> None:
    order: list[str] = []

    def measured(name: str, value: float) -> float:
        order.append(name)
        return value

    values = in_turn(lambda: measured("ours", 1.0), lambda: measured("other", 2.0), 3)
    assert values == ([1.0, 1.0, 1.0], [2.0, 2.0, 2.0])
    assert order == ["ours", "other", "other", "ours", "ours", "other"]


def test_the_ratio_is_the_median_of_the_pairs_and_not_of_the_sides() -> None:
    result = compare("case", [1.0, 8.0, 3.0], [1.0, 4.0, 4.0], unit="s", at_most=1.0)
    assert (result.ours, result.reference, result.ratio) == (3.0, 4.0, 1.0)
    assert result.spread == pytest.approx(0.625)  # quartiles of 0.75, 1 and 2
    assert (result.limit, result.reached) == ("<= 1", "yes")


@pytest.mark.parametrize(
    ("limits", "reached", "status"),
    [({}, "", 0), ({"at_most": 1.4}, "no", 1), ({"at_least": 1.4}, "yes", 0), ({"at_least": 1.6}, "no", 1)],
)
def test_what_is_asked_decides_the_exit_status(limits: dict[str, float], reached: str, status: int) -> None:
    result = compare("case", [3.0], [2.0], unit="s", **limits)
    assert (result.ratio, result.spread, result.reached) == (1.5, 0.0, reached)
    assert exit_status([result]) == status


@pytest.mark.parametrize(("measured", "reached"), [(0.7, "no"), (0.8, "yes"), (1.2, "yes"), (1.3, "no")])
def test_a_ratio_may_be_asked_to_lie_between_two_bounds(measured: float, reached: str) -> None:
    result = compare("case", [measured], [1.0], unit="s", at_least=0.75, at_most=1.25)
    assert (result.limit, result.reached) == (">= 0.75 and <= 1.25", reached)


def test_a_negative_difference_reaches_nothing() -> None:
    assert compare("case", [1.0], [-2.0], unit="s", at_most=1.1).reached == "no"


def test_a_row_says_where_it_comes_from(tmp_path: Path) -> None:
    path = tmp_path / "results" / "one.csv"
    write_results(path, [compare("a, b", [3.0], [2.0], unit="s", at_most=2)])
    (row,) = csv.DictReader(path.open(newline=""))
    assert (row["case"], row["ours"], row["ratio"], row["limit"]) == ("a, b", "3", "1.5", "<= 2")
    assert "cores" in row["hardware"]
    assert "torch" in row["versions"]
    assert row["date"].endswith("UTC")


def test_the_page_shows_every_row_and_its_origin(tmp_path: Path) -> None:
    write_results(tmp_path / "one.csv", [compare("a case", [3.0], [2.0], unit="s", at_most=2)])
    write_results(tmp_path / "two.csv", [compare("another", [1.0], [4.0], unit="MiB")])
    page = figures(tmp_path)
    assert "| a case | 3 | 2 | s | 1.500 | 0.000 | 1 | <= 2 | yes |" in page
    assert "| another | 1 | 4 | MiB | 0.250 | 0.000 | 1 |  |  |" in page
    assert [line.split(":")[0] for line in page.splitlines() if line.startswith("- ")] == ["- `one`", "- `two`"]


FLOOR = {
    "case": "a step, fp32",
    "device": "cpu",
    "gflop": 12.0,
    "megabytes": 3.0,
    "floor_seconds": 0.25,
    "measured_seconds": 0.5,
    "share": 0.5,
    "bound_by": "operations",
    "images_per_second": 64.0,
}
FAULT = {"fault": "a full disk", "must hold": "a line", "seen": "held", "seconds": "0.3", "test": "tests/a.py::test"}


def test_the_page_shows_floors_and_faults_each_in_their_own_table(tmp_path: Path) -> None:
    write_results(tmp_path / "one.csv", [compare("a case", [3.0], [2.0], unit="s", at_most=2)])
    write_rows(tmp_path / "floors.csv", [FLOOR, {**FLOOR, "case": "no images", "images_per_second": None}])
    write_rows(tmp_path / "chaos.csv", [FAULT, FAULT | {"seconds": "0.5"}, FAULT | {"fault": "b", "seen": "not tried"}])
    page = figures(tmp_path)
    assert "| a step, fp32 | cpu | 12 | 3 | 0.25 | 0.5 | 50.0% | operations | 64 |" in page
    assert "| no images | cpu | 12 | 3 | 0.25 | 0.5 | 50.0% | operations |  |" in page
    assert "| a full disk | a line | held | 2 | 0.8 |\n| b | a line | not tried | 1 | 0.3 |" in page
    assert page.index("a case") < page.index("### Floors") < page.index("a step") < page.index("### Faults")
    origins = [line.split(":")[0] for line in page.splitlines() if line.startswith("- ")]
    assert origins == ["- `chaos`", "- `floors`", "- `one`"]


@pytest.mark.parametrize(("device", "is_said"), [("cpu", True), ("cuda, NVIDIA H200", False)])
def test_the_page_says_that_no_gpu_was_measured(device: str, is_said: bool, tmp_path: Path) -> None:
    write_rows(tmp_path / "floors.csv", [FLOOR | {"device": device}])
    assert (NO_GPU in figures(tmp_path)) == is_said
