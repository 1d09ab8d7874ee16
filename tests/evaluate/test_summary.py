"""Mean and deviation over seeds, and tables as text."""

from __future__ import annotations

import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from objectaware.evaluate.summary import format_table, mean_and_std, to_markdown

ROWS = {
    "baseline": {"original": 60.04, "mixed_rand": 13.0},
    "background_mixup": {"original": 44.0, "mixed_rand": 18.25, "bg_gap": 33.0},
}


class TestMeanAndStd:
    def test_nested_numbers_keep_their_shape(self) -> None:
        results = [{"a": {"b": 1, "c": 2.0}, "d": 5}, {"a": {"b": 3, "c": 2.0}, "d": 8}]
        mean, std = mean_and_std(results)
        assert mean == {"a": {"b": 2.0, "c": 2.0}, "d": 6.5}
        assert std == {"a": {"b": pytest.approx(2**0.5), "c": 0.0}, "d": pytest.approx(4.5**0.5)}

    def test_one_result_has_no_deviation(self) -> None:
        assert mean_and_std([{"a": 3}]) == ({"a": 3.0}, {"a": 0.0})

    @settings(deadline=None)
    @given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=6))
    def test_agrees_with_the_sample_statistics(self, values: list[float]) -> None:
        mean, std = mean_and_std([{"cell": value} for value in values])
        assert mean["cell"] == pytest.approx(statistics.mean(values), abs=1e-9)
        assert std["cell"] == pytest.approx(statistics.stdev(values), abs=1e-9)

    @pytest.mark.parametrize(
        "results",
        [
            [],
            [{"a": 1.0}, {"b": 1.0}],
            [{"a": 1.0}, {"a": 1.0, "b": 2.0}],
            [{"a": 1.0}, {"a": {"b": 1.0}}],
            [{"a": "text"}, {"a": "text"}],
            [{"a": {"b": 1.0}}, {"a": {"c": 1.0}}],
        ],
    )
    def test_results_of_unlike_shape_are_refused(self, results: list[dict[str, object]]) -> None:
        with pytest.raises(ValueError):
            mean_and_std(results)


class TestTables:
    def test_terminal_table_is_aligned_and_marks_what_is_missing(self) -> None:
        assert format_table("Accuracy (%)", ROWS).splitlines() == [
            "Accuracy (%)",
            "----------------------------------------------",
            "                  original  mixed_rand  bg_gap",
            "----------------------------------------------",
            "baseline              60.0        13.0       –",
            "background_mixup      44.0        18.2    33.0",
            "----------------------------------------------",
        ]

    def test_deviations_stand_behind_their_cells(self) -> None:
        text = format_table("t", ROWS, digits=2, deviations={"baseline": {"original": 0.5}})
        assert "60.04 ± 0.50" in text
        assert text.count("±") == 1

    def test_nan_is_missing(self) -> None:
        assert format_table("t", {"row": {"cell": float("nan")}}).splitlines()[4].split() == ["row", "–"]

    def test_table_without_rows_is_its_title(self) -> None:
        assert format_table("Nothing", {}).startswith("Nothing\n")

    def test_markdown(self) -> None:
        assert to_markdown({"a|b": {"x": 1.0}}, digits=3) == "|  | x |\n| :-- | --: |\n| a\\|b | 1.000 |"
