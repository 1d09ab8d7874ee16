"""Average minimum distance against the formula, and t-SNE on what it must keep apart."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from objectaware.errors import InputError
from objectaware.evaluate import class_distance as module
from objectaware.evaluate.class_distance import class_distance, plane


def by_the_formula(first: np.ndarray, second: np.ndarray) -> float:
    def one_way(rows: np.ndarray, others: np.ndarray) -> float:
        return float(np.mean([min(np.linalg.norm(row - other) for other in others) for row in rows]))

    return one_way(first, second) + one_way(second, first)


@settings(max_examples=20, deadline=None)
@given(num_first=st.integers(1, 12), num_second=st.integers(1, 12), chunk=st.sampled_from([1, 7, 1000]))
def test_it_is_the_papers_formula(num_first: int, num_second: int, chunk: int) -> None:
    generator = np.random.default_rng(num_first * 13 + num_second)
    first, second = generator.normal(size=(num_first, 6)), generator.normal(size=(num_second, 6)) + 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_MAX_DISTANCES", chunk)
        assert class_distance(first, second) == pytest.approx(by_the_formula(first, second))
        assert class_distance(second, first) == pytest.approx(by_the_formula(first, second))


def test_the_ways_are_added_up_not_averaged() -> None:
    # From 0 to {3, 5} the nearest is 3 away; back it is 3 and 5, 4 on average.
    assert class_distance(torch.tensor([[0.0]]), torch.tensor([[3.0], [5.0]])) == 7.0
    assert class_distance(torch.ones(2, 3), torch.ones(5, 3)) == 0.0


def test_small_distances_of_long_vectors_keep_their_digits() -> None:
    first = torch.full((40, 8), 1000.0, dtype=torch.float64)
    assert class_distance(first, first + 1e-6) == pytest.approx(2 * 8**0.5 * 1e-6, rel=1e-4)


def test_unequal_widths_and_bad_values_are_refused() -> None:
    with pytest.raises(InputError, match="must have the 3 columns"):
        class_distance(torch.ones(2, 3), torch.ones(2, 4))
    with pytest.raises(InputError, match="hold NaN"):
        class_distance(torch.ones(2, 3), torch.full((2, 3), torch.nan))


def test_tsne_keeps_two_groups_apart_and_repeats_itself() -> None:
    generator = np.random.default_rng(0)
    embeddings = generator.normal(size=(40, 10)).astype(np.float32)
    embeddings[20:] += 20
    points = plane(embeddings, perplexity=5, seed=0)
    assert points.shape == (40, 2)
    within = np.linalg.norm(points[:20] - points[:20].mean(axis=0), axis=1).max()
    assert np.linalg.norm(points[:20].mean(axis=0) - points[20:].mean(axis=0)) > within
    np.testing.assert_array_equal(points, plane(embeddings, perplexity=5, seed=0))


def test_a_perplexity_above_the_number_of_points_is_refused() -> None:
    with pytest.raises(InputError, match="perplexity = 30"):
        plane(np.zeros((30, 3), dtype=np.float32), perplexity=30, seed=0)
