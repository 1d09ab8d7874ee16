"""How far the embeddings of two classes lie apart, and how they look in the plane (paper, appendix, multi-bias)."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from objectaware.errors import InputError
from objectaware.evaluate.checks import Array, check_features

_MAX_DISTANCES = 2**24  # 128 MiB in float64


def class_distance(first: Array, second: Array) -> float:
    """Average minimum ℓ2 distance: to the nearest embedding of the other class, on average, both ways added up.

        1/|X| sum_x min_y |x - y| + 1/|Y| sum_y min_x |x - y|

    Args:
        first: Embeddings of one class, (N, D) floating point, of any length; they are taken as they are.
        second: Of the other, (M, D).

    Returns:
        0 where each embedding of either class is one of the other, too.

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
    chunk = max(1, _MAX_DISTANCES // len(other))
    for begin in range(0, len(one), chunk):
        # By differences: the expansion of the square would lose the digits of small distances.
        distances = torch.cdist(one[begin : begin + chunk], other, compute_mode="donot_use_mm_for_euclid_dist")
        to_second.append(distances.amin(dim=1))
        to_first = torch.minimum(to_first, distances.amin(dim=0))
    return float(torch.cat(to_second).mean() + to_first.mean())


def plane(embeddings: NDArray[np.floating], *, perplexity: float, seed: int) -> NDArray[np.float64]:
    """Lays embeddings out in the plane by t-SNE, from their first two principal components.

    Args:
        embeddings: (N, D), N above the perplexity.
        perplexity: How many neighbours each point looks at, about.
        seed: Of what t-SNE draws.

    Returns:
        (N, 2), to be looked at; distances mean little beyond the neighbourhood.

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
