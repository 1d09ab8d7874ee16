"""How embeddings lie on the unit sphere: alignment, uniformity, and the spread that tells a collapse."""

from __future__ import annotations

import torch
from torch import Tensor


def alignment(first: Tensor, second: Tensor) -> float:
    """Mean squared distance of positive pairs: 0 where both views of each image coincide, 2 at right angles.

    Args:
        first: Embeddings of unit length (N, D).
        second: Those of the same images' other views.

    Source:
        Wang & Isola 2020, L_align with α = 2.
    """
    return float((first - second).square().sum(dim=1).mean())


def uniformity(embeddings: Tensor) -> float:
    """Logarithm of the mean Gaussian potential of all pairs: 0 where all coincide, about −4 where they fill the sphere.

    Args:
        embeddings: Of unit length, (N, D) with N at least 2.

    Source:
        Wang & Isola 2020, L_uniform with t = 2.
    """
    potentials = torch.pdist(embeddings).square().mul(-2)  # (N · (N − 1) / 2,)
    return float(torch.logsumexp(potentials, dim=0) - torch.tensor(float(len(potentials))).log())


def feature_std(embeddings: Tensor) -> float:
    """Standard deviation over the images, averaged over the dimensions and scaled by √D.

    Args:
        embeddings: Of unit length, (N, D) with N at least 2.

    Returns:
        0 where all embeddings coincide, about 1 where they spread evenly.

    Source:
        Chen & He 2021 (SimSiam), §4.1, whose value of an even spread is 1 / √D without the scale.
    """
    return float(embeddings.std(dim=0).mean() * embeddings.shape[1] ** 0.5)
