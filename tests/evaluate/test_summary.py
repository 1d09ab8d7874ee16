"""Mean and deviation over seeds."""

from __future__ import annotations

import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from objectaware.evaluate.summary import mean_and_std


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
