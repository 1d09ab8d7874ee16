"""Weighted k-nearest-neighbour classification of features by cosine similarity."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import normalize

from objectaware.errors import InputError
from objectaware.evaluate.checks import Array, check_features, check_labels

# Similarities held at a time: 64 MiB in float32.
MAX_SIMILARITIES = 2**24


def knn_accuracy(
    train_features: Array,
    train_labels: Array,
    features: Array,
    labels: Array,
    *,
    num_neighbours: int = 20,
    temperature: float = 0.07,
) -> float:
    """Returns the accuracy of weighted nearest-neighbour classification, in per cent.

    Each of the k most similar training samples votes for its class with weight exp(cosine similarity / τ), as
    in Wu et al., 2018 (instance discrimination), and in lightly and solo-learn. Of classes with equal votes
    the lowest number wins.

    Args:
        train_features: (N, D) floating point, of any length; tensor or array. Computation is on its device.
        train_labels: (N,) integers from 0.
        features: (M, D) floating point.
        labels: (M,) integers.
        num_neighbours: k, at least 1; all training samples where there are fewer.
        temperature: τ, positive.

    Raises:
        InputError: Features are empty, not finite or of unequal width, or labels do not fit them.
    """
    assert num_neighbours >= 1, num_neighbours
    assert temperature > 0, temperature
    bank, bank_labels = _checked("train_features", train_features, "train_labels", train_labels)
    queries, truth = _checked("features", features, "labels", labels)
    if queries.shape[1] != bank.shape[1]:
        problem = f"must have the {bank.shape[1]} columns of the training features"
        raise InputError("features", tuple(queries.shape), problem, "Compute both with the same backbone.")
    bank, bank_labels = normalize(bank, dim=1), bank_labels.to(bank.device, torch.int64)
    queries, truth = normalize(queries.to(bank), dim=1), truth.to(bank.device)
    num_right = 0
    chunk = max(1, MAX_SIMILARITIES // len(bank))
    for begin in range(0, len(queries), chunk):
        part = slice(begin, begin + chunk)
        predicted = _vote(bank, bank_labels, queries[part], num_neighbours, temperature)
        num_right += int((predicted == truth[part]).sum())
    return 100.0 * num_right / len(queries)


def _checked(field: str, features: Array, labels_field: str, labels: Array) -> tuple[Tensor, Tensor]:
    rows, classes = torch.as_tensor(features), torch.as_tensor(labels)
    check_features(field, rows)
    check_labels(labels_field, classes, rows)
    return rows, classes


def _vote(bank: Tensor, bank_labels: Tensor, queries: Tensor, num_neighbours: int, temperature: float) -> Tensor:
    """Returns the class (M,) that the neighbours of each unit-length query (M, D) elect."""
    similarities, indices = (queries @ bank.T).topk(min(num_neighbours, len(bank)), dim=1)
    # Relative to the best neighbour, so that a low temperature does not overflow; the election is the same.
    weights = ((similarities - similarities[:, :1]) / temperature).exp()
    votes = weights.new_zeros(len(queries), int(bank_labels.max()) + 1)
    return votes.scatter_add_(1, bank_labels[indices], weights).argmax(dim=1)
