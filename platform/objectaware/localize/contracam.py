"""Localizer `contracam`: class activation maps of a contrastive score (paper eq. 2 and 3, algorithms 1 to 3)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from objectaware.config.localize import Cost
from objectaware.errors import InputError
from objectaware.localize.localizer import (
    ContrastiveLocalizer,
    Features,
    Group,
    Network,
    SoftMaps,
    activations_of,
    as_array,
    check_contrastive,
    check_finite,
    without_content,
)
from objectaware.methods.backbones import Activations
from objectaware.model import Byte, Fraction, Positive

# Below these fractions a quantity that is zero on paper is float32 rounding. Without these limits the normalisation
# to [0, 1] would turn the rounding into a map.
_TANGENT_TOLERANCE = 1e-6
_CONTRAST_TOLERANCE = 1e-5
_COVERED = 0.5
"""Value of a soft mask above which it covers a pixel, as in the tables of localization."""


class ContraCAM(ContrastiveLocalizer):
    """The paper's localizer: Iterative ContraCAM.

    Attributes:
        num_iterations: T of iterative ContraCAM.
        expansion: Resolution of a map's activations, 1, 2 or 4 times the network's.
        remove_negative_signals: Whether to apply the ReLU to α in eq. 2.
        mask_color: RGB colour that replaces masked pixels; by default the mean colour of the group.
        min_change: A picture's iterations end once its mask grows by less than this mean over the pixels; None (the
            paper) runs all T.
        max_share: A picture's iterations end before its mask exceeds 0.5 on more than this part of the picture; None
            (the paper) sets no limit.
    """

    name: Literal["contracam"] = "contracam"
    iterates: ClassVar[bool] = True

    num_iterations: Positive = 10
    expansion: Literal[1, 2, 4] = 2
    remove_negative_signals: bool = True
    mask_color: tuple[Byte, Byte, Byte] | None = None
    min_change: Fraction | None = None
    max_share: Fraction | None = None

    def build(self, network: Network) -> SoftMaps:
        """Open the network, and return the function that finds soft maps."""
        features, projector = network.features(self.expansion), network.projector()
        color = None
        if self.mask_color is not None:
            color = network.tensor(np.array(self.mask_color, dtype=np.uint8).reshape(1, 1, 1, 3)).view(3)

        def find(images: Tensor, group: Group) -> Tensor:
            return contracam(
                images,
                features,
                projector,
                num_iterations=self.num_iterations,
                remove_negative_signals=self.remove_negative_signals,
                mask_color=color,
                min_change=self.min_change,
                max_share=self.max_share,
                on_iteration=lambda maps: group.on_iteration(as_array(maps[: len(group.images)])),
                **self.arguments(group),
            )

        return self.soft_maps(network, find)

    @property
    def cost(self) -> Cost:
        """Return the cost of all iterations."""
        return Cost(self.num_iterations, self.expansion)


def contrastive_score(
    query: Tensor,
    key: Tensor,
    negatives: Sequence[Tensor],
    *,
    is_self: Tensor | None = None,
    temperature: float = 1.0,
    compat: str | None = None,
) -> Tensor:
    """Compute the contrastive score of each image against its own original and the other images (eq. 3, algorithm 2).

    With q the queries, k the keys and u^l the embeddings of iteration l, the score of image i is

        s_i = q_i·k_i / τ − log Σ_l Σ_j exp((1 − δ_ij) q_i·u^l_j / τ).

    As in the official code, the denominator leaves out the positive, and an image's similarity to itself is set to
    zero before the exponential. Each iteration therefore adds a constant e⁰ = 1, and a batch of one has a finite
    score.

    Args:
        query: Unit embeddings (N, D) of the images as they are masked now. The gradient flows only through these.
        key: Unit embeddings (N, D) of the original images.
        negatives: Unit embeddings (M, D) of every iteration so far, including this one.
        is_self: Boolean (N, M), δ_ij: whether a query and a negative are the same image. By default the negatives are
            the images of the queries, in the same order.
        temperature: τ, above 0.
        compat: None takes each image's own positive. "official" sums the positives over the batch, which from
            the second iteration on scales the positive gradient of image i by N·softmax(q·k / τ)_i.

    Returns:
        Scores (N,).
    """
    positive = (query * key).sum(dim=1) / temperature
    if compat == "official":
        positive = torch.logsumexp(positive, dim=0).expand_as(positive)
    own = torch.eye(len(query), dtype=torch.bool, device=query.device) if is_self is None else is_self
    similarities = [(query @ embeddings.T).masked_fill(own, 0.0) / temperature for embeddings in negatives]
    return positive - torch.logsumexp(torch.cat(similarities, dim=1), dim=1)


def channel_weights(pooled: Tensor, projector: Callable[[Tensor], Tensor], score: Callable[[Tensor], Tensor]) -> Tensor:
    """Compute the gradient of a score at the pooled features, without a backward pass through the trunk.

    Where the head is a global average, ∂s/∂A^k_ij is the same at every position and equals ∂s/∂(pooled)_k /
    (HW). The function differentiates only the projector and the normalisation. For another head, pass the maps
    themselves, and a projector that pools them first.

    Args:
        pooled: Globally averaged features (N, C), float32; or maps (N, C, h, w).
        projector: `pooled` -> (N, D).
        score: Unit embeddings (N, D) -> scores (N,); their sum is differentiated.

    Returns:
        ∂(Σ s)/∂(pooled), in the shape of `pooled`. A row whose gradient is only rounding (a batch of one, equal
        images) is zero.
    """
    with torch.inference_mode(False), torch.enable_grad(), torch.autocast(pooled.device.type, enabled=False):
        leaf = pooled.clone().requires_grad_()
        embedding = F.normalize(projector(leaf), dim=1)
        (gradient,) = torch.autograd.grad(score(embedding).sum(), embedding, retain_graph=True)
        unit = embedding.detach()
        # Normalisation passes on only the part tangent to the sphere. Dropping the rest here shows when it is zero.
        tangent = gradient - unit * (unit * gradient).sum(dim=1, keepdim=True)
        rounding = _TANGENT_TOLERANCE * gradient.norm(dim=1, keepdim=True)
        negligible = tangent.norm(dim=1, keepdim=True) <= rounding
        (weights,) = torch.autograd.grad(embedding, leaf, tangent.masked_fill(negligible, 0.0))
    return weights


def _map_weights(
    activations: Activations, projector: Callable[[Tensor], Tensor], score: Callable[[Tensor], Tensor]
) -> Tensor:
    """Compute α of eq. 2, (N, C): the gradient of a score at the maps, averaged over their positions."""
    maps, pool = activations.maps, activations.pool
    if pool is None:
        return channel_weights(maps.mean(dim=(2, 3)), projector, score) / (maps.shape[2] * maps.shape[3])
    return channel_weights(maps, lambda leaf: projector(pool(leaf)), score).mean(dim=(2, 3))


def class_activation_map(features: Tensor, weights: Tensor, size: tuple[int, int]) -> Tensor:
    """Compute CAM_ij = Normalize(ReLU(Σ_k α_k A^k_ij)) at image size (eq. 2, algorithm 3).

    The order is that of the official code: the ReLU, then the bicubic enlargement (corners not aligned, no
    antialiasing), then the minimum and maximum of each map become 0 and 1. Bicubic undershoot lifts the true
    background to about 0.1 beside an isolated peak.

    Args:
        features: A, (N, C, h, w), float32.
        weights: α, (N, C), up to a positive factor.
        size: (H, W) of the result.

    Returns:
        Maps (N, 1, H, W) in [0, 1]; a map without contrast is all zero.
    """
    with torch.autocast(features.device.type, enabled=False):
        cam = torch.einsum("nchw,nc->nhw", features, weights).relu().unsqueeze(1)
    # Divide by the maximum first: gradients may be so small that the contrast itself would underflow.
    cam = cam / cam.amax(dim=(2, 3), keepdim=True).clamp_min(torch.finfo(cam.dtype).tiny)
    cam = F.interpolate(cam, size=size, mode="bicubic", align_corners=False, antialias=False)
    low, high = cam.amin(dim=(2, 3), keepdim=True), cam.amax(dim=(2, 3), keepdim=True)
    contrast = high - low
    flat = contrast <= _CONTRAST_TOLERANCE
    return ((cam - low) / contrast.masked_fill(flat, 1.0)).clamp(0, 1).masked_fill(flat, 0.0)


def goes_on(before: Tensor, after: Tensor, *, min_change: float | None, max_share: float | None) -> Tensor:
    """Return for which images another iteration's mask is taken; the others keep the mask before it and end.

    The paper runs T iterations on all images. The mask is the maximum of their CAMs and can only grow. A network that
    was trained on few photos soon finds the rest of the picture instead of the rest of the object, so that masks of ten
    iterations fill most pictures. The rule ends an image's iterations when they find nothing further, or when they
    begin to fill the picture.

    Args:
        before: Masks (N, 1, H, W) in [0, 1] before the iteration; all zero before the first.
        after: Masks (N, 1, H, W) after it, at least `before` everywhere.
        min_change: Smallest mean growth over the pixels; None for any growth.
        max_share: Largest part of the picture on which a mask exceeds 0.5; None for the whole picture.

    Returns:
        Boolean (N,). The first iteration's mask is always taken.
    """
    taken = torch.ones(len(before), dtype=torch.bool, device=before.device)
    if min_change is not None:
        taken &= (after - before).mean(dim=(1, 2, 3)) >= min_change
    if max_share is not None:
        taken &= (after > _COVERED).float().mean(dim=(1, 2, 3)) <= max_share
    return taken | (before.amax(dim=(1, 2, 3)) == 0)


def contracam(
    images: Tensor,
    features: Features,
    projector: Callable[[Tensor], Tensor],
    *,
    num_iterations: int = 10,
    remove_negative_signals: bool = True,
    temperature: float = 1.0,
    mask_color: Tensor | None = None,
    num_negatives: int | None = None,
    is_self: Tensor | None = None,
    min_change: float | None = None,
    max_share: float | None = None,
    compat: str | None = None,
    on_iteration: Callable[[Tensor], None] = lambda cam: None,
) -> Tensor:
    """Find objects without labels by Iterative ContraCAM (paper section 3.2, algorithms 1 to 3).

    Iteration t masks the images softly by the mask so far, x^t = (1 − mask) ⊙ x + mask ⊙ color. It scores them
    against the original as positive and all images of all iterations so far as negatives (eq. 3). The weights of the
    channels are α_k = ReLU(∂s/∂A^k) (eq. 2). The mask is the maximum of the iterations' CAMs.

    The images of the batch are each other's negatives. To use further images only as negatives, pass them in the same
    batch and drop their rows of the result.

    Args:
        images: (N, 3, H, W), normalised as in training; the paper squashes pictures to 224×224.
        features: images -> last spatial activation A (N, C, h, w), in evaluation mode, which is averaged over the
            positions; or A with another pooling, such as a `Backbone`'s `activations`. It is called once per
            iteration, without gradients, and may compute in bfloat16. Scores and gradients are float32.
        projector: Pooled features (N, C) float32 -> projection (N, D), in evaluation mode. `nn.Identity()` compares
            the features themselves.
        num_iterations: T, at least 1.
        remove_negative_signals: Whether to keep only positive α, the trick of eq. 2; False is the paper's ablation.
        temperature: τ of the score; the official code uses 1.
        mask_color: Normalised colour (3,) that replaces masked pixels; by default the mean colour of the batch.
        num_negatives: M: the last M images are the only negatives, as in the paper's giraffe-only batch; N by default.
        is_self: Boolean (N, M): whether an image and a negative are the same picture, which is then left out. By
            default True where the negative is the image's own row.
        min_change: End an image's iterations by the growth of its mask, which is not in the paper (see `goes_on`).
        max_share: The same by the share that its mask covers. An image that has ended stays a negative of the others.
        compat: None, or "official" for the official code's positive, summed over the batch (`contrastive_score`).
        on_iteration: Function that receives the CAM (N, 1, H, W) of each iteration.

    Returns:
        Soft masks (N, 1, H, W), float32 in [0, 1]. An image without content or whose score has no gradient (a
        batch of one) gets zeros.

    Raises:
        InputError: Shapes or settings are wrong, batch normalisation is in training mode, or features are not finite.
    """
    _check_settings(num_iterations, mask_color, compat)
    check_contrastive(images, features, projector, temperature)
    own = negatives_that_are_self(len(images), num_negatives, is_self, images.device)
    original = images.detach().float()
    color = (original.mean(dim=(0, 2, 3)) if mask_color is None else mask_color.to(original)).view(1, 3, 1, 1)
    empty = without_content(original)
    mask = torch.zeros_like(original[:, :1])
    running = torch.ones(len(images), dtype=torch.bool, device=images.device)
    embeddings: list[Tensor] = []

    def score(query: Tensor) -> Tensor:
        embeddings.append(query.detach())
        negatives = [embedding[-own.shape[1] :] for embedding in embeddings]
        return contrastive_score(query, embeddings[0], negatives, is_self=own, temperature=temperature, compat=compat)

    for _ in range(num_iterations):
        with torch.no_grad():
            masked = (original * (1 - mask)).add_(color * mask)  # in place: allocating another batch costs time
            activations = activations_of(features, masked.to(images.dtype))
        weights = _map_weights(activations, projector, score)
        weights = weights.relu() if remove_negative_signals else weights
        cam = class_activation_map(activations.maps, weights, (images.shape[2], images.shape[3]))
        cam = cam.masked_fill(empty, 0.0)
        grown = torch.maximum(mask, cam)
        running &= goes_on(mask, grown, min_change=min_change, max_share=max_share)
        mask = torch.where(running.view(-1, 1, 1, 1), grown, mask)
        on_iteration(cam)
    check_finite(mask)
    return mask


def _check_settings(num_iterations: int, mask_color: Tensor | None, compat: str | None) -> None:
    if num_iterations < 1:
        raise InputError("num_iterations", num_iterations, "must be at least 1", "The paper takes 10.")
    if mask_color is not None and mask_color.shape != (3,):
        raise InputError("mask_color", tuple(mask_color.shape), "must have shape (3,)", "Give 3 values.")
    if compat not in (None, "official"):
        raise InputError("compat", compat, "is unknown", 'Give None or "official".')


def negatives_that_are_self(
    num_images: int, num_negatives: int | None, is_self: Tensor | None, device: torch.device
) -> Tensor:
    """Return which negative is the image itself, if the last images of a batch are the negatives of all images.

    Args:
        num_images: N.
        num_negatives: M, from 1 to N; None for N.
        is_self: Boolean (N, M), if the caller knows it.
        device: Device of the result.

    Returns:
        Boolean (N, M): `is_self`; by default True where the negative is the image's own row. Gradients can use it
        even if it was made in inference mode.

    Raises:
        InputError: M is out of range, or `is_self` does not fit it.
    """
    count = num_images if num_negatives is None else num_negatives
    if not 1 <= count <= num_images:
        problem = f"must lie between 1 and the number of images, {num_images}"
        raise InputError("num_negatives", count, problem, "Append the negatives to the images.")
    if is_self is not None and (is_self.shape != (num_images, count) or is_self.dtype != torch.bool):
        found = f"{is_self.dtype} {tuple(is_self.shape)}"
        raise InputError("is_self", found, f"must be boolean {(num_images, count)}", "Leave it out if unsure.")
    with torch.inference_mode(False):
        if is_self is None:
            return torch.eye(num_images, dtype=torch.bool, device=device)[:, num_images - count :]
        return is_self.to(device, copy=True)
