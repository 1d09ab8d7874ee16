"""SmoothGrad (Smilkov et al., 2017) of the contrastive score."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from objectaware.errors import InputError
from objectaware.localize.input_gradient import ContrastiveGradient, saliency_map
from objectaware.localize.inputs import Features, check_finite, check_num_gradients, without_content


def smoothgrad(
    images: Tensor,
    features: Features,
    projector: Callable[[Tensor], Tensor],
    *,
    seed: int,
    num_gradients: int = 10,
    noise_level: float = 0.15,
    temperature: float = 1.0,
    num_negatives: int | None = None,
    is_self: Tensor | None = None,
) -> Tensor:
    """Finds objects by SmoothGrad of the contrastive score (paper, appendix on saliency methods).

    Arguments not named here are those of `contracam`.

    Args:
        images: (N, 3, H, W), normalised as in training.
        features: images -> last spatial activation.
        projector: Pooled features -> projection.
        seed: Decides the noise, on every device alike.
        num_gradients: Noisy copies whose gradients are averaged; the paper takes 10.
        noise_level: Standard deviation of the noise as a share of each image's range of values. The paper does
            not say it; 0.15 is the default of the method's authors (PAIR-code/saliency).
        temperature: τ of the score.
        num_negatives: The last so many images are the only negatives.
        is_self: Where an image and a negative are the same picture.

    Returns:
        Soft masks (N, 1, H, W), float32 in [0, 1]; zeros for an image of one colour.

    Raises:
        InputError: As `contracam`; a noise level that is not positive.
    """
    check_num_gradients(num_gradients)
    if not noise_level > 0:
        raise InputError("noise_level", noise_level, "must be positive", "The method's authors take 0.15.")
    gradient = ContrastiveGradient(
        images, features, projector, temperature=temperature, num_negatives=num_negatives, is_self=is_self
    )
    generator = torch.Generator().manual_seed(seed)
    deviation = noise_level * (images.amax(dim=(1, 2, 3)) - images.amin(dim=(1, 2, 3))).view(-1, 1, 1, 1)
    total = torch.zeros_like(images, dtype=torch.float32)
    for _ in range(num_gradients):
        noise = torch.randn(images.shape, generator=generator).to(images)
        total += gradient(images + noise * deviation)
    check_finite(total)
    return saliency_map(total / num_gradients).masked_fill(without_content(images), 0.0)
