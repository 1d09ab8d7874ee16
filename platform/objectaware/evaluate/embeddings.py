"""Measures of embeddings without a trained classifier: neighbours, distances of classes, spread on the sphere."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import normalize

from objectaware.errors import InputError
from objectaware.evaluate.features import Array, as_checked, check_features

# Pairs whose similarities or distances are held at a time: 64 MiB in float32, 128 MiB in float64.
MAX_PAIRS = 2**24


def knn_accuracy(
    train_features: Array,
    train_labels: Array,
    features: Array,
    labels: Array,
    *,
    num_neighbours: int = 20,
    temperature: float = 0.07,
) -> float:
    """Return the accuracy of weighted nearest-neighbour classification, in per cent.

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
    bank, bank_labels = as_checked(train_features, train_labels, "train_")
    queries, truth = as_checked(features, labels)
    if queries.shape[1] != bank.shape[1]:
        problem = f"must have the {bank.shape[1]} columns of the training features"
        raise InputError("features", tuple(queries.shape), problem, "Compute both with the same backbone.")
    bank, bank_labels = normalize(bank, dim=1), bank_labels.to(bank.device, torch.int64)
    queries, truth = normalize(queries.to(bank), dim=1), truth.to(bank.device)
    num_right = 0
    chunk = max(1, MAX_PAIRS // len(bank))
    for begin in range(0, len(queries), chunk):
        part = slice(begin, begin + chunk)
        predicted = _vote(bank, bank_labels, queries[part], num_neighbours, temperature)
        num_right += int((predicted == truth[part]).sum())
    return 100.0 * num_right / len(queries)


def _vote(bank: Tensor, bank_labels: Tensor, queries: Tensor, num_neighbours: int, temperature: float) -> Tensor:
    """Return the class (M,) with most votes among the neighbours of each unit-length query (M, D)."""
    similarities, indices = (queries @ bank.T).topk(min(num_neighbours, len(bank)), dim=1)
    # Relative to the best neighbour, so that a low temperature does not overflow; the election is the same.
    weights = ((similarities - similarities[:, :1]) / temperature).exp()
    votes = weights.new_zeros(len(queries), int(bank_labels.max()) + 1)
    return votes.scatter_add_(1, bank_labels[indices], weights).argmax(dim=1)


def class_distance(first: Array, second: Array) -> float:
    """Return the average minimum ℓ2 distance of two classes.

    It is the mean distance to the nearest embedding of the other class, summed over both directions:

        1/|X| sum_x min_y |x - y| + 1/|Y| sum_y min_x |x - y|

    Args:
        first: Embeddings of one class, (N, D) floating point, of any length; not normalised.
        second: Embeddings of the other class, (M, D).

    Returns:
        0 if each embedding of either class is also an embedding of the other.

    Raises:
        InputError: Embeddings are empty, not finite or of unequal width.

    Source:
        Paper, appendix "Analysis on the contextual bias", the formula above table multi-bias.
    """
    one, other = torch.as_tensor(first), torch.as_tensor(second)
    check_features("first", one)
    check_features("second", other)
    if one.shape[1] != other.shape[1]:
        problem = f"must have the {one.shape[1]} columns of the first"
        raise InputError("second", tuple(other.shape), problem, "Compute both with the same backbone.")
    one, other = one.double(), other.to(one.device).double()
    to_first = torch.full((len(other),), torch.inf, dtype=torch.float64, device=one.device)
    to_second = []
    chunk = max(1, MAX_PAIRS // len(other))
    for begin in range(0, len(one), chunk):
        # By differences: the expansion of the square would lose the digits of small distances.
        distances = torch.cdist(one[begin : begin + chunk], other, compute_mode="donot_use_mm_for_euclid_dist")
        to_second.append(distances.amin(dim=1))
        to_first = torch.minimum(to_first, distances.amin(dim=0))
    return float(torch.cat(to_second).mean() + to_first.mean())


def plane(embeddings: NDArray[np.floating], *, perplexity: float, seed: int) -> NDArray[np.float64]:
    """Lay embeddings out in the plane by t-SNE, from their first two principal components.

    Args:
        embeddings: (N, D), N above the perplexity.
        perplexity: About how many neighbours each point takes into account.
        seed: Seed of t-SNE's random numbers.

    Returns:
        Points (N, 2) for a picture; distances mean little beyond the neighbourhood.

    Raises:
        InputError: There are too few embeddings for the perplexity.

    Source:
        van der Maaten & Hinton 2008; scikit-learn's implementation.
    """
    from sklearn.manifold import TSNE  # here, since its import takes a second

    if len(embeddings) <= perplexity:
        problem = f"must be below the number of points, {len(embeddings)}"
        raise InputError("perplexity", perplexity, problem, "Lower it, or give more images.")
    points = TSNE(init="pca", perplexity=perplexity, random_state=seed).fit_transform(
        np.asarray(embeddings, np.float32)
    )
    return np.asarray(points, dtype=np.float64)


def alignment(first: Tensor, second: Tensor) -> float:
    """Return the mean squared distance of positive pairs: 0 where both views of each image coincide, 2 at right angles.

    Args:
        first: Embeddings of unit length (N, D).
        second: Embeddings of the same images' other views, (N, D).

    Source:
        Wang & Isola 2020, L_align with α = 2.
    """
    return float((first - second).square().sum(dim=1).mean())


def uniformity(embeddings: Tensor) -> float:
    """Return the logarithm of the mean Gaussian potential of all pairs.

    It is 0 if all embeddings coincide, and about −4 if they fill the sphere.

    Args:
        embeddings: Of unit length, (N, D) with N at least 2.

    Source:
        Wang & Isola 2020, L_uniform with t = 2.
    """
    potentials = torch.pdist(embeddings).square().mul(-2)  # (N · (N − 1) / 2,)
    return float(torch.logsumexp(potentials, dim=0) - torch.tensor(float(len(potentials))).log())


def feature_std(embeddings: Tensor) -> float:
    """Return the standard deviation over the images, averaged over the dimensions and scaled by √D.

    Args:
        embeddings: Of unit length, (N, D) with N at least 2.

    Returns:
        0 where all embeddings coincide, about 1 where they spread evenly.

    Source:
        Chen & He 2021 (SimSiam), §4.1, whose value of an even spread is 1 / √D without the scale.
    """
    return float(embeddings.std(dim=0).mean() * embeddings.shape[1] ** 0.5)
