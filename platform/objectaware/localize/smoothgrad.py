"""Localizer `smoothgrad`: SmoothGrad (Smilkov et al., 2017) of the contrastive score."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from objectaware.errors import InputError
from objectaware.localize.input_gradient import (
    ContrastiveGradient,
    GradientLocalizer,
    check_num_gradients,
    saliency_map,
)
from objectaware.localize.localizer import (
    Features,
    Group,
    Network,
    SoftMaps,
    as_array,
    check_finite,
    with_filler,
    without_content,
)


class SmoothGrad(GradientLocalizer):
    """SmoothGrad of the contrastive score.

    Attributes:
        noise_level: Standard deviation of the noise as a fraction of each image's range of values.
    """

    name: Literal["smoothgrad"] = "smoothgrad"

    noise_level: Annotated[float, Field(gt=0)] = 0.15

    def build(self, network: Network) -> SoftMaps:
        """Open the network, and return the function that finds soft maps."""
        features, projector = network.features(), network.projector()

        def find(group: Group) -> NDArray[np.float32]:
            masks = smoothgrad(
                network.tensor(with_filler(group)),
                features,
                projector,
                seed=group.seed,
                noise_level=self.noise_level,
                **self.arguments(group),
            )
            return as_array(masks[: len(group.images)])

        return find


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
    """Find objects by SmoothGrad of the contrastive score (paper, appendix on saliency methods).

    `contracam` describes the shared arguments in full.

    Args:
        images: (N, 3, H, W), normalised as in training.
        features: images -> last spatial activation.
        projector: Pooled features -> projection.
        seed: Seed of the noise, which is the same on every device.
        num_gradients: Number of noisy copies whose gradients are averaged; the paper uses 10.
        noise_level: Standard deviation of the noise as a fraction of each image's range of values. The paper does
            not give it; 0.15 is the default of the method's authors (PAIR-code/saliency).
        temperature: τ of the score.
        num_negatives: M: the last M images are the only negatives.
        is_self: Whether an image and a negative are the same picture.

    Returns:
        Soft masks (N, 1, H, W), float32 in [0, 1]; zeros for an image of one colour.

    Raises:
        InputError: As for `contracam`; or the noise level is not positive.
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
