"""Mixup and CutMix in their contrastive forms, which combine each view with its partner's.

Source:
    Mixup: Zhang et al. 2018. CutMix: Yun et al. 2019. The contrastive forms: Lee et al. 2021.
"""

from __future__ import annotations

import torch
from torch import Tensor


def folded_weights(uniforms: Tensor) -> Tensor:
    """Return weights λ ~ Beta(1, 1), folded to max(λ, 1 − λ) so that a view outweighs its partner.

    Args:
        uniforms: Numbers in [0, 1), any shape. Beta(1, 1) is the uniform distribution.

    Returns:
        λ in [0.5, 1], of the same shape.

    Source:
        official-implementation §2 (Mixup/CutMix), after i-Mix (Lee et al. 2021).
    """
    return torch.maximum(uniforms, 1 - uniforms)


def neighbours(number: int) -> Tensor:
    """Pair places within a batch: 0 with 1, 2 with 3 and so on.

    An epoch's order is a random permutation, so each sample's partner is a uniformly random other one, drawn again
    every epoch. Workers that hold an even number of neighbouring places pair the same samples, whatever the number
    of workers, without exchanging pictures.

    Args:
        number: Size of the batch, even.

    Returns:
        The partner's place of each place, shape (number,) int64.
    """
    assert number % 2 == 0, f"a batch of {number} does not fall into pairs"
    return torch.arange(number) ^ 1


def mixup(images: Tensor, partner: Tensor, weight: Tensor) -> Tensor:
    """Blend λ x + (1 − λ) x_partner.

    Args:
        images: Views, shape (N, C, H, W).
        partner: Place of each view's partner, shape (N,).
        weight: λ in [0, 1], shape (N,); 1 leaves a view as it is.

    Returns:
        Mixed views, shape (N, C, H, W).
    """
    return torch.lerp(images[partner], images, weight.to(images.dtype).view(-1, 1, 1, 1))


def cut_boxes(weight: Tensor, centers: Tensor, height: int, width: int) -> tuple[Tensor, Tensor]:
    """Place one box of about the share 1 − λ of the view, cut off at its border.

    Args:
        weight: The wanted λ, in [0, 1], shape (N,).
        centers: Where the boxes' centres lie, rows and columns as uniform numbers in [0, 1), shape (N, 2).
        height: Of the views in pixels.
        width: Of the views in pixels.

    Returns:
        Boxes (N, 4) as top, bottom, left, right in pixels, ends excluded; and λ (N,) as the share of pixels that
        stay, in [0, 1].

    Source:
        Yun et al. 2019, as in the official code: sides of √(1 − λ), halves rounded down, λ corrected to the
        area that the border leaves.
    """
    size = torch.tensor([height, width], device=weight.device)
    side = (size * (1 - weight).sqrt()[:, None]).long()  # (N, 2)
    center = (size * centers).long()
    low, high = center - side // 2, torch.minimum(center + side // 2, size)
    low = low.clamp_min(0)
    area = (high - low).prod(dim=1)
    boxes = torch.stack([low[:, 0], high[:, 0], low[:, 1], high[:, 1]], dim=1)
    return boxes, 1 - area / (height * width)


def cutmix(images: Tensor, partner: Tensor, boxes: Tensor) -> Tensor:
    """Put the partner's pixels into each view's box.

    Args:
        images: Views, shape (N, C, H, W).
        partner: Place of each view's partner, shape (N,).
        boxes: Top, bottom, left, right in pixels, ends excluded, shape (N, 4).

    Returns:
        Mixed views, shape (N, C, H, W).
    """
    sides = boxes.to(images.device, non_blocking=True).view(-1, 4, 1, 1, 1)
    top, bottom, left, right = sides.unbind(dim=1)  # (N, 1, 1, 1) each
    row = torch.arange(images.shape[2], device=images.device).view(1, 1, -1, 1)
    column = torch.arange(images.shape[3], device=images.device).view(1, 1, 1, -1)
    inside = (row >= top) & (row < bottom) & (column >= left) & (column < right)  # (N, 1, H, W)
    return torch.where(inside, images[partner], images)
