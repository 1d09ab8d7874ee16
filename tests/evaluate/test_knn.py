"""Nearest-neighbour accuracy against a plain loop."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from objectaware.errors import InputError
from objectaware.evaluate import knn
from objectaware.evaluate.knn import knn_accuracy


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
        monkeypatch.setattr(knn, "MAX_SIMILARITIES", limit)
        assert knn_accuracy(bank, bank_labels, queries, truth) == whole


def test_what_does_not_fit_is_refused() -> None:
    bank, bank_labels = overlapping(10, 0)
    with pytest.raises(InputError, match="6 columns"):
        knn_accuracy(bank, bank_labels, bank[:, :5], bank_labels)
    with pytest.raises(InputError, match="train_labels"):
        knn_accuracy(bank, bank_labels[:9], bank, bank_labels)
    with pytest.raises(InputError, match="NaN"):
        knn_accuracy(bank, bank_labels, bank * float("nan"), bank_labels)
