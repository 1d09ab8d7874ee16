"""Random resized crops: where they lie, how images and masks are cut along them, and crops around an object."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from objectaware.data.masks import pixel_region

NUM_CROP_DRAWS = 23
"""Uniform numbers per crop: ten attempts of (area, ratio), a position (2) and a flip."""

_NUM_ATTEMPTS = 10
_RATIO = (3 / 4, 4 / 3)


def sample_crops(
    uniforms: NDArray[np.float64],
    heights: NDArray[np.int64],
    widths: NDArray[np.int64],
    *,
    min_scale: float,
    max_scale: float = 1.0,
) -> NDArray[np.int64]:
    """Place one random crop in each image, distributed as torchvision's `RandomResizedCrop`.

    Args:
        uniforms: Numbers in [0, 1), shape (N, NUM_CROP_DRAWS).
        heights: Image heights in pixels, shape (N,).
        widths: Image widths in pixels, shape (N,).
        min_scale: Smallest share of the image's area that a crop covers, in (0, 1].
        max_scale: Largest share.

    Returns:
        Crops as (top, left, height, width) in pixels, shape (N, 4).
    """
    areas = (heights * widths).astype(np.float64)[:, None]
    pairs = uniforms[:, : 2 * _NUM_ATTEMPTS].reshape(-1, _NUM_ATTEMPTS, 2)
    target_area = areas * (min_scale + (max_scale - min_scale) * pairs[..., 0])  # (N, attempts)
    low, high = math.log(_RATIO[0]), math.log(_RATIO[1])
    ratio = np.exp(low + (high - low) * pairs[..., 1])
    crop_widths = np.rint(np.sqrt(target_area * ratio)).astype(np.int64)
    crop_heights = np.rint(np.sqrt(target_area / ratio)).astype(np.int64)
    fits = (crop_widths > 0) & (crop_widths <= widths[:, None])
    fits &= (crop_heights > 0) & (crop_heights <= heights[:, None])

    first = np.argmax(fits, axis=1)
    rows = np.arange(len(first))
    # The largest central crop of an allowed ratio, for images too narrow for ten attempts to succeed.
    shape = widths / heights
    fallback_heights = np.where(shape > _RATIO[1], heights, np.rint(widths / np.maximum(shape, _RATIO[0])))
    fallback_heights = np.clip(fallback_heights.astype(np.int64), 1, heights)
    fallback_widths = np.where(shape < _RATIO[0], widths, np.rint(heights * np.minimum(shape, _RATIO[1])))
    fallback_widths = np.clip(fallback_widths.astype(np.int64), 1, widths)
    any_fits = fits[rows, first]
    height = np.where(any_fits, crop_heights[rows, first], fallback_heights)
    width = np.where(any_fits, crop_widths[rows, first], fallback_widths)
    position = uniforms[:, 2 * _NUM_ATTEMPTS : 2 * _NUM_ATTEMPTS + 2]
    top = np.where(any_fits, np.floor(position[:, 0] * (heights - height + 1)), (heights - height) // 2)
    left = np.where(any_fits, np.floor(position[:, 1] * (widths - width + 1)), (widths - width) // 2)
    return np.stack([top.astype(np.int64), left.astype(np.int64), height, width], axis=1)


def least_short_side(size: int, *, min_scale: float) -> int:
    """Return the short side in pixels from which on no random crop of a whole image has a side below `size`.

    The smallest crop of an n × n image has an area of min_scale · n² and sides as 3 : 4. An image that is kept
    smaller than this loses detail that views of `size` pixels would show.

    Args:
        size: Side of the views in pixels.
        min_scale: Smallest share of the image's area that a crop covers, in (0, 1].
    """
    return math.ceil(size / math.sqrt(min_scale * _RATIO[0]))


def sample_flips(uniforms: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Decide with probability one half whether each view is mirrored; shape (N, NUM_CROP_DRAWS) to (N,)."""
    return uniforms[:, 2 * _NUM_ATTEMPTS + 2] < 0.5


def resize_patch(patch: NDArray[np.uint8], size: int, *, flip: bool) -> NDArray[np.uint8]:
    """Resize a cut-out patch to a square view, antialiased as PIL and torchvision do, and mirror it.

    Masks are resized in the same way as their pictures.

    Args:
        patch: Pixels, shape (h, w, 3), or a mask's in 8 bits, (h, w).
        size: Side of the view in pixels.
        flip: Whether to mirror left and right.

    Returns:
        View, shape (size, size, 3) or (size, size).
    """
    if patch.shape[0] == size and patch.shape[1] == size:
        view = patch
    else:
        image = Image.fromarray(np.ascontiguousarray(patch))
        view = np.asarray(image.resize((size, size), Image.Resampling.BILINEAR))
    return view[:, ::-1] if flip else view


def crop_mask(
    mask: NDArray[np.uint8], crop: tuple[int, int, int, int], image_height: int, image_width: int
) -> NDArray[np.uint8]:
    """Cut the part under a crop from a mask of the whole image, at the crop's own resolution.

    The mask may be stored at another size than the image (it is computed at the network's); the crop is carried
    over in real numbers, so mask and pixels stay aligned to the fraction of a pixel.

    Args:
        mask: Soft mask of the whole image in 8 bits, shape (h, w).
        crop: (top, left, height, width) in image pixels.
        image_height: Height of the image in pixels.
        image_width: Width of the image in pixels.

    Returns:
        Mask under the crop, shape (height, width).
    """
    top, left, height, width = crop
    if mask.shape == (image_height, image_width):
        return mask[top : top + height, left : left + width]
    scale_y, scale_x = mask.shape[0] / image_height, mask.shape[1] / image_width
    box = (left * scale_x, top * scale_y, (left + width) * scale_x, (top + height) * scale_y)
    return np.asarray(Image.fromarray(mask).resize((width, height), Image.Resampling.BILINEAR, box=box))


def object_region(
    boxes: NDArray[np.float32], uniform: float, image_height: int, image_width: int
) -> tuple[int, int, int, int]:
    """Pick one of an image's boxes and return it as the region that the crops are drawn from.

    Args:
        boxes: Relative x0 y0 x1 y1, shape (n, 4); n may be 0.
        uniform: A number in [0, 1) that decides which.
        image_height: Height of the image in pixels.
        image_width: Width of the image in pixels.

    Returns:
        (top, left, height, width) in pixels; the whole image where there is no box, as in the paper's listing.
    """
    if len(boxes) == 0:
        return 0, 0, image_height, image_width
    return pixel_region(boxes[int(uniform * len(boxes))], image_height, image_width)
