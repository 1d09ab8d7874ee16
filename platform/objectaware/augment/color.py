"""Colour augmentations in batches on the training device, each sample with its own parameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

NUM_COLOR_DRAWS = 9
"""Uniform numbers per view for its colours."""

_ORDERS = list(permutations(range(4)))
_LUMA = (0.2989, 0.587, 0.114)


class ColorParameters(NamedTuple):
    """The changes of colour of each of N views, on the CPU.

    Attributes:
        jitter: Whether brightness, contrast, saturation and hue are changed, (N,) bool.
        order: Index of the order in which the four are changed, of 24 orders, (N,) int64.
        factors: Brightness, contrast and saturation factors and the hue shift in turns, (N, 4).
        grayscale: Whether the view is made gray, (N,) bool.
        sigma: Standard deviation of the blur in pixels, 0 for none, (N,).
    """

    jitter: Tensor
    order: Tensor
    factors: Tensor
    grayscale: Tensor
    sigma: Tensor


@dataclass(frozen=True)
class ColorDistribution:
    """The strength of changes to the colours of views; the defaults are MoCo v2's (paper, appendix B.1).

    Attributes:
        strengths: Of brightness, contrast, saturation and hue. A factor of brightness lies in [1 − strength, 1 +
            strength], as do those of contrast and saturation. A shift of the hue lies in [−strength, strength], in
            turns of the colour circle (at most 0.5).
        jitter_probability: Share of views whose colours are jittered.
        grayscale_probability: Share of views made gray.
        blur_probability: Share of views blurred.
        blur_sigma: Least and greatest standard deviation of the blur, in pixels.
    """

    strengths: tuple[float, float, float, float] = (0.4, 0.4, 0.4, 0.1)
    jitter_probability: float = 0.8
    grayscale_probability: float = 0.2
    blur_probability: float = 0.5
    blur_sigma: tuple[float, float] = (0.1, 2.0)


def sample_colors(uniforms: NDArray[np.float64], distribution: ColorDistribution) -> ColorParameters:
    """Draw colour parameters, distributed as torchvision's ColorJitter, RandomGrayscale and GaussianBlur.

    Args:
        uniforms: Numbers in [0, 1), shape (N, NUM_COLOR_DRAWS).
        distribution: The strength of the changes.

    Returns:
        Parameters of N views, on the CPU.
    """
    centres = np.array([1.0, 1.0, 1.0, 0.0])
    factors = centres + np.array(distribution.strengths) * (2 * uniforms[:, 2:6] - 1)
    low, high = distribution.blur_sigma
    sigma = np.where(uniforms[:, 7] < distribution.blur_probability, low + (high - low) * uniforms[:, 8], 0.0)
    return ColorParameters(
        jitter=torch.from_numpy(uniforms[:, 0] < distribution.jitter_probability),
        order=torch.from_numpy((uniforms[:, 1] * len(_ORDERS)).astype(np.int64)),
        factors=torch.from_numpy(factors.astype(np.float32)),
        grayscale=torch.from_numpy(uniforms[:, 6] < distribution.grayscale_probability),
        sigma=torch.from_numpy(sigma.astype(np.float32)),
    )


def to_gray(images: Tensor) -> Tensor:
    """Return the luma (N, 1, H, W) of images (N, 3, H, W), with the weights of ITU-R 601 as in torchvision."""
    red, green, blue = images.unbind(dim=1)
    return (_LUMA[0] * red + _LUMA[1] * green + _LUMA[2] * blue).unsqueeze(1)


def adjust_brightness(images: Tensor, factor: Tensor) -> Tensor:
    """Multiply images in [0, 1] by factor (N, 1, 1, 1), clamped."""
    return (images * factor).clamp_(0, 1)


def adjust_contrast(images: Tensor, factor: Tensor) -> Tensor:
    """Blend images in [0, 1] with their mean luma by factor (N, 1, 1, 1), clamped."""
    mean = to_gray(images).mean(dim=(1, 2, 3), keepdim=True)
    return torch.lerp(mean, images, factor).clamp_(0, 1)


def adjust_saturation(images: Tensor, factor: Tensor) -> Tensor:
    """Blend images in [0, 1] with their gray version by factor (N, 1, 1, 1), clamped."""
    return torch.lerp(to_gray(images), images, factor).clamp_(0, 1)


def adjust_hue(images: Tensor, shift: Tensor) -> Tensor:
    """Turn the hue of images in [0, 1] by shift (N, 1, 1, 1), in turns of the colour circle.

    The same as torchvision's way through HSV, without forming saturation: channel c of a colour of maximum M,
    chroma C and hue h (in sixths of a turn) is M − C · clamp(min(k, 4 − k), 0, 1) with k = (n_c + h) mod 6 and
    n = 5, 3, 1 for red, green, blue.
    """
    red, green, blue = images.unbind(dim=1)  # (N, H, W) each
    maximum = images.amax(dim=1)
    chroma = maximum - images.amin(dim=1)
    divisor = torch.where(chroma == 0, torch.ones_like(chroma), chroma)
    hue = torch.where(
        maximum == red,
        (green - blue) / divisor,
        torch.where(maximum == green, (blue - red) / divisor + 2, (red - green) / divisor + 4),
    )
    hue = hue + 6 * shift.squeeze(1)
    offsets = torch.arange(5, 0, -2, device=images.device).view(3, 1, 1)
    position = torch.remainder(hue.unsqueeze(1) + offsets, 6)  # (N, 3, H, W)
    return maximum.unsqueeze(1) - chroma.unsqueeze(1) * torch.minimum(position, 4 - position).clamp_(0, 1)


_ADJUSTMENTS = (adjust_brightness, adjust_contrast, adjust_saturation, adjust_hue)


def jitter_colors(images: Tensor, parameters: ColorParameters) -> Tensor:
    """Apply each sample's four colour adjustments in its own order, in place.

    In each of four rounds, the samples whose next operation is the same form a group. So a batch takes 16 operations
    on a quarter of it, however many of the 24 orders it holds, and a GPU gets few kernels.

    Args:
        images: Images in [0, 1], shape (N, 3, H, W); changed.
        parameters: Parameters of the N images, on the CPU.

    Returns:
        The same tensor.
    """
    operations = torch.tensor(_ORDERS)[parameters.order]  # (N, 4): the operation of each round
    groups = [
        (operation, torch.nonzero(parameters.jitter & (operations[:, place] == operation)).squeeze(1))
        for place in range(4)
        for operation in range(4)
    ]
    members = _sent([group for _, group in groups], images.device)
    factors = _sent([parameters.factors[group, operation] for operation, group in groups], images.device)
    for (operation, _), indices, factor in zip(groups, members, factors, strict=True):
        if len(indices):
            changed = _ADJUSTMENTS[operation](images.index_select(0, indices), factor.view(-1, 1, 1, 1))
            images.index_copy_(0, indices, changed)
    return images


def _sent(parts: Sequence[Tensor], device: torch.device) -> Sequence[Tensor]:
    """Send tensors (n,) of the CPU to a device in one transfer, for which the CPU does not wait."""
    joined = torch.cat([*parts]).to(device, non_blocking=True)
    return torch.tensor_split(joined, np.cumsum([len(part) for part in parts]).tolist()[:-1])


def gaussian_blur(images: Tensor, sigma: Tensor, *, kernel_size: int) -> Tensor:
    """Blur each image with its own standard deviation, edges reflected, as torchvision's `gaussian_blur`.

    A row or column convolution with reflected edges is a product with an H × H band matrix, so a batch with
    different kernels is two batched matrix products.

    Args:
        images: Images, shape (N, 3, H, W).
        sigma: Standard deviations in pixels, all positive, shape (N,).
        kernel_size: Width of the kernel in pixels, odd, at most 2 · min(H, W) − 1.

    Returns:
        Blurred images, shape (N, 3, H, W).
    """
    half = kernel_size // 2
    offsets = torch.arange(-half, half + 1, device=images.device, dtype=images.dtype)
    kernel = torch.exp(-0.5 * (offsets[None, :] / sigma[:, None].to(images.dtype)) ** 2)
    kernel = kernel / kernel.sum(dim=1, keepdim=True)  # (N, kernel_size)
    rows = _band_matrix(kernel, images.shape[2]).unsqueeze(1)  # (N, 1, H, H)
    columns = _band_matrix(kernel, images.shape[3]).unsqueeze(1)
    return rows @ images @ columns.transpose(2, 3)


def _band_matrix(kernel: Tensor, length: int) -> Tensor:
    """Return the matrix (N, length, length) that convolves a signal with kernel (N, kernel_size), edges reflected."""
    half = kernel.shape[1] // 2
    position = torch.arange(length, device=kernel.device)
    source = position[:, None] + torch.arange(-half, half + 1, device=kernel.device)[None, :]
    source = source.abs()
    source = torch.where(source >= length, 2 * (length - 1) - source, source)  # (length, kernel_size)
    matrix = kernel.new_zeros(kernel.shape[0], length, length)
    index = source.expand(kernel.shape[0], -1, -1)
    return matrix.scatter_add_(2, index, kernel[:, None, :].expand_as(index))


def augment_colors(images: Tensor, parameters: ColorParameters, *, blur_kernel_size: int) -> Tensor:
    """Jitter, gray and blur a batch of views.

    Args:
        images: Images in [0, 1], shape (N, 3, H, W); changed.
        parameters: Parameters of the N images, on the CPU. The host knows the groups, so it need not ask the device.
        blur_kernel_size: Width of the blur in pixels, odd.

    Returns:
        Augmented images in [0, 1], shape (N, 3, H, W).
    """
    images = jitter_colors(images, parameters)
    chosen = [torch.nonzero(parameters.grayscale).squeeze(1), torch.nonzero(parameters.sigma > 0).squeeze(1)]
    gray, blurred = _sent(chosen, images.device)
    if len(gray):
        images.index_copy_(0, gray, to_gray(images.index_select(0, gray)).expand(-1, 3, -1, -1))
    if len(blurred):
        sigma = parameters.sigma[chosen[1]].to(images.device, non_blocking=True)
        sharp = images.index_select(0, blurred)
        images.index_copy_(0, blurred, gaussian_blur(sharp, sigma, kernel_size=blur_kernel_size))
    return images
