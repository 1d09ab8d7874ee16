"""Mean and deviation over seeds, the BG-Gap, and the cells of a table of shifts."""

from __future__ import annotations

import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from objectaware.data.sets import backgrounds_challenge
from objectaware.errors import InputError
from objectaware.evaluate.linear import (
    CORRUPTIONS,
    VARIANTS,
    bg_gap,
    mean_and_std,
    paired_difference,
    shift_over_seeds,
    shift_result,
)


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


def test_gap_of_the_papers_baseline() -> None:
    assert bg_gap({"original": 89.17, "mixed_same": 80.98, "mixed_rand": 60.34}) == pytest.approx(20.64)


@pytest.mark.parametrize("missing", ["mixed_same", "mixed_rand"])
def test_missing_variant_is_named(missing: str) -> None:
    accuracies = {"mixed_same": 80.0, "mixed_rand": 60.0}
    del accuracies[missing]
    with pytest.raises(InputError, match=f"lack {missing}"):
        bg_gap(accuracies)


def test_variants_are_those_of_the_data_set_in_the_order_of_the_paper() -> None:
    assert sorted(VARIANTS) == sorted(backgrounds_challenge.VARIANTS)
    assert VARIANTS[:3] == ("original", "only_bg_b", "only_bg_t")
    assert VARIANTS[-3:] == ("mixed_same", "mixed_rand", "mixed_next")


def corrupted(corruption: str, *values: float) -> dict[str, float]:
    return {f"{corruption}-{severity}": value for severity, value in enumerate(values, start=1)}


def test_severities_become_one_number_and_corruptions_another() -> None:
    result = shift_result({**corrupted("fog", 50, 40, 30, 20, 10), **corrupted("gaussian_noise", 9, 7, 5, 3, 1)})
    assert result == {"gaussian_noise": 5.0, "fog": 30.0, "corruption_mean": 17.5}
    assert list(result) == ["gaussian_noise", "fog", "corruption_mean"]  # the paper's order


def test_the_gap_is_taken_where_both_of_its_variants_are() -> None:
    # Paper, table bg-main, MoCov2, Baseline; the table prints the mean of three seeds' gaps.
    result = shift_result({"original": 89.17, "mixed_same": 80.98, "mixed_rand": 60.34, "bg_gap": 1.0})
    assert result["bg_gap"] == pytest.approx(20.64)
    assert list(result) == ["original", "mixed_same", "mixed_rand", "bg_gap"]
    assert shift_result({"mixed_same": 80.98}) == {"mixed_same": 80.98}


def test_other_names_with_a_dash_are_test_sets() -> None:
    accuracies = {"ImageNet-R-9": 40.0, "CIFAR-10": 1.0, "fog-6": 2.0}
    assert shift_result(accuracies) == accuracies


def test_unlike_severities_are_refused() -> None:
    with pytest.raises(InputError, match="different severities"):
        shift_result({**corrupted("fog", 50, 40, 30, 20, 10), **corrupted("snow", 9, 7)})


def test_paired_draws_give_a_small_deviation_and_unpaired_ones_of_equal_spread_a_large_one() -> None:
    before = [50.0, 56.0, 62.0]
    paired = paired_difference([53.0, 59.5, 65.0], before)
    unpaired = paired_difference([65.0, 53.0, 59.5], before)
    assert paired.by_seed == (3.0, 3.5, 3.0)
    assert paired.mean == pytest.approx(unpaired.mean) == pytest.approx(19 / 6)
    assert paired.std == pytest.approx(0.5 / 3**0.5)
    assert unpaired.std > 30 * paired.std
    assert paired_difference([1.0], [3.0]) == ((-2.0,), -2.0, 0.0)
    with pytest.raises(ValueError, match="argument 2 is shorter"):
        paired_difference([1.0, 2.0], [1.0])


def test_seeds_are_averaged_after_each_has_its_gap_and_means() -> None:
    seeds = [
        {"mixed_same": 80.0, "mixed_rand": 60.0, **corrupted("snow", 10, 20)},
        {"mixed_same": 84.0, "mixed_rand": 70.0, **corrupted("snow", 30, 40)},
    ]
    mean, std = shift_over_seeds(seeds)
    assert mean == {
        "mixed_same": 82.0, "mixed_rand": 65.0, "bg_gap": 17.0, "snow": 25.0, "corruption_mean": 25.0
    }  # fmt: skip
    # Two values 6 apart have 6 / √2; the sets' own deviations would give another gap.
    assert std["bg_gap"] == pytest.approx(6 / 2**0.5)
    assert std["snow"] == pytest.approx(20 / 2**0.5)
    assert shift_over_seeds(seeds[:1])[1]["bg_gap"] == 0.0


def test_seeds_on_unlike_test_sets_are_refused() -> None:
    with pytest.raises(InputError, match=r"\['b'\]"):
        shift_over_seeds([{"a": 1.0}, {"a": 1.0, "b": 2.0}])


def test_the_corruptions_are_imagenet_cs_fifteen() -> None:
    assert len(CORRUPTIONS) == 15
