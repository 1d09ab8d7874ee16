"""Localizer `integrated_gradients`: Integrated Gradients (Sundararajan et al., 2017) of the contrastive score."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

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


class IntegratedGradients(GradientLocalizer):
    """Integrated Gradients of the contrastive score."""

    name: Literal["integrated_gradients"] = "integrated_gradients"

    def build(self, network: Network) -> SoftMaps:
        """Open the network, and return the function that finds soft maps."""
        features, projector = network.features(), network.projector()

        def find(group: Group) -> NDArray[np.float32]:
            batch = network.tensor(with_filler(group))
            masks = integrated_gradients(batch, features, projector, **self.arguments(group))
            return as_array(masks[: len(group.images)])

        return find


def integrated_gradients(
    images: Tensor,
    features: Features,
    projector: Callable[[Tensor], Tensor],
    *,
    num_gradients: int = 10,
    temperature: float = 1.0,
    num_negatives: int | None = None,
    is_self: Tensor | None = None,
) -> Tensor:
    """Find objects by Integrated Gradients of the contrastive score (paper, appendix on saliency methods).

    `contracam` describes the shared arguments in full.

    Args:
        images: (N, 3, H, W), normalised as in training.
        features: images -> last spatial activation.
        projector: Pooled features -> projection.
        num_gradients: Number of points on the line from the zero image; the paper uses 10.
        temperature: τ of the score.
        num_negatives: M: the last M images are the only negatives.
        is_self: Whether an image and a negative are the same picture.

    Returns:
        Soft masks (N, 1, H, W), float32 in [0, 1]; zeros for an image of one colour.

    Raises:
        InputError: As for `contracam`.
    """
    attributions = integrated_attributions(
        images,
        features,
        projector,
        num_gradients=num_gradients,
        temperature=temperature,
        num_negatives=num_negatives,
        is_self=is_self,
    )
    check_finite(attributions)
    return saliency_map(attributions).masked_fill(without_content(images), 0.0)


def integrated_attributions(
    images: Tensor,
    features: Features,
    projector: Callable[[Tensor], Tensor],
    *,
    num_gradients: int,
    temperature: float = 1.0,
    num_negatives: int | None = None,
    is_self: Tensor | None = None,
) -> Tensor:
    """Compute the published sum, x ⊙ (1/m) Σ_k ∂s/∂x at k x / m for k = 1 … m.

    The arguments are those of `integrated_gradients`. The zero image is zero at the network's input, which is the
    data set's mean colour.

    Returns:
        Attributions (N, 3, H, W). For large m their sum over an image is its score minus the score of the zero image.
    """
    check_num_gradients(num_gradients)
    gradient = ContrastiveGradient(
        images, features, projector, temperature=temperature, num_negatives=num_negatives, is_self=is_self
    )
    total = torch.zeros_like(images, dtype=torch.float32)
    for step in range(1, num_gradients + 1):
        total += gradient(images * (step / num_gradients))
    return images * total / num_gradients
