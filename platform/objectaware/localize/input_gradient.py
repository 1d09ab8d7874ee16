"""Gradient of the contrastive score at the pixels, and the base of the localizers that make maps of it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from objectaware.config.localize import Cost
from objectaware.localize.contracam import contrastive_score, negatives_that_are_self
from objectaware.localize.localizer import (
    ContrastiveLocalizer,
    Features,
    Group,
    Network,
    SoftMaps,
    activations_of,
    check_contrastive,
    check_finite,
    without_content,
)
from objectaware.model import Positive

# Number of images to differentiate at a time. A ResNet-50's activations for a whole group would take 7 GB.
_CHUNK = 16
_SATURATED_PERCENTILE = 0.99
# A gradient at the pixels takes a forward pass and a backward pass, and the latter takes twice as long.
_PASSES_PER_GRADIENT = 3


class GradientLocalizer(ContrastiveLocalizer):
    """Base of the localizers that average the score's gradients at the pixels of changed images.

    Attributes:
        num_gradients: Number of gradients that are averaged.
    """

    num_gradients: Positive = 10

    @property
    def cost(self) -> Cost:
        """Return the cost of all gradients."""
        return Cost(_PASSES_PER_GRADIENT * self.num_gradients)

    def build(self, network: Network) -> SoftMaps:
        """Open the network, and return the function that finds soft maps."""
        features, projector = network.features(), network.projector()

        def find(images: Tensor, group: Group) -> Tensor:
            gradient = ContrastiveGradient(images, features, projector, **self.arguments(group))
            return self.maps(images, gradient, group.seed)

        return self.soft_maps(network, find)

    def maps(self, images: Tensor, gradient: ContrastiveGradient, seed: int = 0) -> Tensor:
        """Compute the soft maps of images.

        Args:
            images: (N, 3, H, W), normalised as in training.
            gradient: Gradient of these images' scores.
            seed: Seed of random changes of the images.

        Returns:
            Soft masks (N, 1, H, W), float32 in [0, 1]; zeros for an image of one colour.

        Raises:
            InputError: The network gave NaN or infinite values.
        """
        attributions = self.attributions(images, gradient, seed)
        check_finite(attributions)
        return saliency_map(attributions).masked_fill(without_content(images), 0.0)

    @abstractmethod
    def attributions(self, images: Tensor, gradient: ContrastiveGradient, seed: int) -> Tensor:
        """Compute the share of each pixel and channel in the score, (N, 3, H, W); arguments are those of `maps`."""


class ContrastiveGradient:
    """The gradient ∂s/∂x of the score of eq. 3 with one set of negatives, for images that were changed in some way.

    The original images are the keys and the negatives, as in ContraCAM's first iteration. The changed images are the
    queries. Labels, momentum network and queue are not used.

    Args:
        images: The original images (N, 3, H, W), normalised as in training.
        features: images -> last spatial activation (N, C, h, w), in evaluation mode.
        projector: Pooled features (N, C) -> projection (N, D), in evaluation mode.
        temperature: τ of the score.
        num_negatives: As in `contracam`.
        is_self: As in `contracam`.

    Raises:
        InputError: Shapes or settings are wrong, or batch normalisation is in training mode.
    """

    def __init__(
        self,
        images: Tensor,
        features: Features,
        projector: Callable[[Tensor], Tensor],
        *,
        temperature: float = 1.0,
        num_negatives: int | None = None,
        is_self: Tensor | None = None,
    ) -> None:
        check_contrastive(images, features, projector, temperature)
        self._features, self._projector, self._temperature = features, projector, temperature
        self._is_self = negatives_that_are_self(len(images), num_negatives, is_self, images.device)
        with torch.inference_mode(False), torch.no_grad():
            self._keys = torch.cat([self._embed(chunk) for chunk in torch.split(images, _CHUNK)])

    def __call__(self, changed: Tensor) -> Tensor:
        """Return the gradient (N, 3, H, W) of each changed image's own score with respect to that image alone."""
        gradients = []
        for start in range(0, len(changed), _CHUNK):
            rows = slice(start, start + _CHUNK)
            with torch.inference_mode(False), torch.enable_grad():
                leaf = changed[rows].clone().requires_grad_()
                query, keys, own = self._embed(leaf), self._keys[rows], self._is_self[rows]
                negatives = [self._keys[-self._is_self.shape[1] :]]
                score = contrastive_score(query, keys, negatives, is_self=own, temperature=self._temperature)
                (gradient,) = torch.autograd.grad(score.sum(), leaf)
            gradients.append(gradient.float())
        return torch.cat(gradients)

    def _embed(self, images: Tensor) -> Tensor:
        return F.normalize(self._projector(activations_of(self._features, images).pooled()), dim=1)


def saliency_map(attributions: Tensor) -> Tensor:
    """Turn attributions to pixels and channels into maps: sum the magnitudes over channels, and scale to [0, 1].

    The brightest per cent saturates; otherwise a few points would darken everything else. The paper leaves this open.
    SmoothGrad's authors do the same (PAIR-code/saliency, VisualizeImageGrayscale).

    Args:
        attributions: (N, 3, H, W).

    Returns:
        (N, 1, H, W) float32 in [0, 1]; a map without contrast is all zero.
    """
    magnitude = attributions.abs().sum(dim=1, keepdim=True)
    magnitude = magnitude / magnitude.amax(dim=(1, 2, 3), keepdim=True).clamp_min(torch.finfo(magnitude.dtype).tiny)
    # One image at a time: torch.quantile refuses tensors of more than 2^24 elements.
    high = torch.stack([torch.quantile(one, _SATURATED_PERCENTILE) for one in magnitude]).view(-1, 1, 1, 1)
    low = magnitude.amin(dim=(2, 3), keepdim=True)
    flat = high <= low
    return ((magnitude - low) / (high - low).masked_fill(flat, 1.0)).clamp(0, 1).masked_fill(flat, 0.0)
