"""Mixup in its contrastive form: each view blended with its partner's (Zhang et al. 2018; Lee et al. 2021)."""

from __future__ import annotations

import torch
from torch import Tensor


def folded_weights(uniforms: Tensor) -> Tensor:
    """Weights λ ~ Beta(1, 1), folded to max(λ, 1 − λ) so that a view stays more itself than its partner.

    Args:
        uniforms: Numbers in [0, 1), any shape. Beta(1, 1) is the uniform distribution.

    Returns:
        λ in [0.5, 1], of the same shape.

    Source:
        official-implementation §2 (Mixup/CutMix), after i-Mix (Lee et al. 2021).
    """
    return torch.maximum(uniforms, 1 - uniforms)


def neighbours(number: int) -> Tensor:
    """Partners within a batch: places 0 and 1, 2 and 3 and so on of each other.

    An epoch's order is a random permutation, so each sample's partner is a uniformly random other one, drawn anew
    every epoch; and workers that hold an even number of neighbouring places pair the same samples however many
    they are, without exchanging pictures.

    Args:
        number: Size of the batch, even.

    Returns:
        The partner's place of each place, shape (number,) int64.
    """
    assert number % 2 == 0, f"a batch of {number} does not fall into pairs"
    return torch.arange(number) ^ 1


def mixup(images: Tensor, partner: Tensor, weight: Tensor) -> Tensor:
    """Blends λ x + (1 − λ) x_partner.

    Args:
        images: Views, shape (N, C, H, W).
        partner: Place of each view's partner, shape (N,).
        weight: λ in [0, 1], shape (N,); 1 leaves a view as it is.

    Returns:
        Mixed views, shape (N, C, H, W).
    """
    return torch.lerp(images[partner], images, weight.to(images.dtype).view(-1, 1, 1, 1))
