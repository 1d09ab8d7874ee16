"""Colour augmentations in batches on the training device, each sample with its own parameters."""

from __future__ import annotations

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
    """The changes of colour of each of N views.

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

    def to(self, device: torch.device) -> ColorParameters:
        """Move the parameters to a device."""
        return ColorParameters(*(values.to(device) for values in self))


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
    channels = []
    for offset in (5, 3, 1):
        position = torch.remainder(hue + offset, 6)
        channels.append(maximum - chroma * torch.minimum(position, 4 - position).clamp_(0, 1))
    return torch.stack(channels, dim=1)


_ADJUSTMENTS = (adjust_brightness, adjust_contrast, adjust_saturation, adjust_hue)


def jitter_colors(images: Tensor, parameters: ColorParameters) -> Tensor:
    """Apply each sample's four colour adjustments in its own order, in place.

    Samples of one order form a group: few enough images to stay in the processor's cache through all four
    operations, which is what makes this several times faster than passing over the whole batch each time.

    Args:
        images: Images in [0, 1], shape (N, 3, H, W); changed.
        parameters: Parameters of the N images.

    Returns:
        The same tensor.
    """
    # -1 stands for samples without jitter; one transfer of the group numbers instead of one per group.
    groups = torch.where(parameters.jitter, parameters.order, -1).cpu()
    for order in sorted(set(groups.tolist()) - {-1}):
        members = torch.nonzero(groups == order).squeeze(1).to(images.device)
        group = images[members]
        factors = parameters.factors[members]  # (n, 4)
        for operation in _ORDERS[order]:
            group = _ADJUSTMENTS[operation](group, factors[:, operation].view(-1, 1, 1, 1))
        images[members] = group
    return images


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
        parameters: Parameters of the N images, on the images' device.
        blur_kernel_size: Width of the blur in pixels, odd.

    Returns:
        Augmented images in [0, 1], shape (N, 3, H, W).
    """
    images = jitter_colors(images, parameters)
    gray = torch.nonzero(parameters.grayscale).squeeze(1)
    images[gray] = to_gray(images[gray]).expand(-1, 3, -1, -1)
    blurred = torch.nonzero(parameters.sigma > 0).squeeze(1)
    if len(blurred):
        images[blurred] = gaussian_blur(images[blurred], parameters.sigma[blurred], kernel_size=blur_kernel_size)
    return images
