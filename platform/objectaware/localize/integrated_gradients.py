"""Localizer `integrated_gradients`: Integrated Gradients (Sundararajan et al., 2017) of the contrastive score."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from objectaware.localize.input_gradient import ContrastiveGradient, GradientLocalizer


class IntegratedGradients(GradientLocalizer):
    """Integrated Gradients of the contrastive score (paper, appendix on saliency methods)."""

    name: Literal["integrated_gradients"] = "integrated_gradients"

    def attributions(self, images: Tensor, gradient: ContrastiveGradient, seed: int = 0) -> Tensor:
        """Compute the published sum, x ⊙ (1/m) Σ_k ∂s/∂x at k x / m for k = 1 … m; nothing is random.

        The zero image is zero at the network's input, which is the data set's mean colour.

        Returns:
            Attributions (N, 3, H, W). For large m their sum over an image is its score minus the score of the zero
            image.
        """
        total = torch.zeros_like(images, dtype=torch.float32)
        for step in range(1, self.num_gradients + 1):
            total += gradient(images * (step / self.num_gradients))
        return images * total / self.num_gradients
