"""Nearest neighbours, distances of classes, t-SNE and the sphere, against plain loops and formulas."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from objectaware.errors import InputError
from objectaware.evaluate import features
from objectaware.evaluate.features import alignment, class_distance, feature_std, knn_accuracy, plane, uniformity


def plain_accuracy(
    bank: np.ndarray, bank_labels: np.ndarray, queries: np.ndarray, truth: np.ndarray, k: int, tau: float
) -> float:
    right = 0
    for query, label in zip(queries, truth, strict=True):
        similarities = [float(row @ query / np.linalg.norm(row) / np.linalg.norm(query)) for row in bank]
        nearest = sorted(range(len(bank)), key=lambda index: -similarities[index])[:k]
        votes: dict[int, float] = {}
        for index in nearest:
            votes[int(bank_labels[index])] = votes.get(int(bank_labels[index]), 0.0) + math.exp(
                similarities[index] / tau
            )
        right += max(sorted(votes), key=lambda name: votes[name]) == label
    return 100 * right / len(queries)


def overlapping(num_samples: int, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(4, (num_samples,), generator=generator)
    centres = torch.eye(4, 6, dtype=torch.float64)
    noise = torch.randn(num_samples, 6, generator=generator, dtype=torch.float64)
    return 1.5 * centres[labels] + noise, labels


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 1000),
    num_neighbours=st.sampled_from([1, 5, 20, 500]),
    temperature=st.sampled_from([0.07, 1.0]),
)
def test_agrees_with_a_plain_loop(seed: int, num_neighbours: int, temperature: float) -> None:
    bank, bank_labels = overlapping(40, seed)
    queries, truth = overlapping(15, seed + 1)
    found = knn_accuracy(bank, bank_labels, queries, truth, num_neighbours=num_neighbours, temperature=temperature)
    expected = plain_accuracy(
        bank.numpy(), bank_labels.numpy(), queries.numpy(), truth.numpy(), num_neighbours, temperature
    )
    assert found == pytest.approx(expected)


def test_close_neighbour_outvotes_two_far_ones_at_a_low_temperature() -> None:
    bank, bank_labels = torch.tensor([[1.0, 0.1], [0.0, 1.0], [0.0, 2.0]]), torch.tensor([0, 1, 1])
    query, truth = torch.tensor([[1.0, 0.2]]), torch.tensor([0])
    assert knn_accuracy(bank, bank_labels, query, truth, num_neighbours=3, temperature=0.07) == 100.0
    assert knn_accuracy(bank, bank_labels, query, truth, num_neighbours=3, temperature=100.0) == 0.0


def test_very_low_temperature_does_not_overflow() -> None:
    bank, bank_labels = torch.tensor([[1.0, 0.0], [1.0, 0.5]]), torch.tensor([1, 0])
    assert knn_accuracy(bank, bank_labels, bank, bank_labels, temperature=1e-4) == 100.0


def test_arrays_are_taken_like_tensors() -> None:
    bank, bank_labels = overlapping(40, 0)
    queries, truth = overlapping(30, 1)
    of_arrays = knn_accuracy(bank.numpy(), bank_labels.numpy(), queries.numpy(), truth.numpy())
    assert of_arrays == knn_accuracy(bank, bank_labels, queries, truth)


def test_length_of_features_does_not_matter() -> None:
    bank, bank_labels = overlapping(40, 0)
    queries, truth = overlapping(30, 1)
    lengths = torch.linspace(0.1, 50.0, 40, dtype=torch.float64).unsqueeze(1)
    assert knn_accuracy(bank * lengths, bank_labels, queries * 7, truth) == knn_accuracy(
        bank, bank_labels, queries, truth
    )


def test_chunks_give_the_same_as_one_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    bank, bank_labels = overlapping(40, 0)
    queries, truth = overlapping(31, 1)
    whole = knn_accuracy(bank, bank_labels, queries, truth)
    for limit in (1, 40 * 7):
        monkeypatch.setattr(features, "MAX_PAIRS", limit)
        assert knn_accuracy(bank, bank_labels, queries, truth) == whole


def test_what_does_not_fit_is_refused() -> None:
    bank, bank_labels = overlapping(10, 0)
    with pytest.raises(InputError, match="6 columns"):
        knn_accuracy(bank, bank_labels, bank[:, :5], bank_labels)
    with pytest.raises(InputError, match="train_labels"):
        knn_accuracy(bank, bank_labels[:9], bank, bank_labels)
    with pytest.raises(InputError, match="NaN"):
        knn_accuracy(bank, bank_labels, bank * float("nan"), bank_labels)


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
        patch.setattr(features, "MAX_PAIRS", chunk)
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


def _random(number: int, width: int) -> torch.Tensor:
    return F.normalize(torch.randn(number, width, generator=torch.Generator().manual_seed(0)), dim=1)


def test_an_even_spread() -> None:
    embeddings = _random(500, 128)
    assert feature_std(embeddings) == pytest.approx(1, abs=0.02)
    # At right angles all squared distances are 2.
    assert uniformity(embeddings) == pytest.approx(-4, abs=0.1)
    assert alignment(embeddings[:250], embeddings[250:]) == pytest.approx(2, abs=0.05)


def test_a_single_point() -> None:
    embeddings = _random(1, 16).expand(10, 16)
    assert feature_std(embeddings) == pytest.approx(0, abs=1e-6)
    assert uniformity(embeddings) == pytest.approx(0, abs=1e-5)
    assert alignment(embeddings, embeddings) == 0


def test_the_published_formulas() -> None:
    """Of three points on the circle, by hand."""
    points = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    expected = math.log((math.exp(-2 * 2) + math.exp(-2 * 2) + math.exp(-2 * 4)) / 3)
    assert uniformity(points) == pytest.approx(expected)
    assert alignment(points, points.roll(1, dims=0)) == pytest.approx((4 + 2 + 2) / 3)
    columns = torch.tensor([1.0, 1 / math.sqrt(3)])  # standard deviations of (1, 0, −1) and (0, 1, 0)
    assert feature_std(points) == pytest.approx(float(columns.mean()) * math.sqrt(2))
