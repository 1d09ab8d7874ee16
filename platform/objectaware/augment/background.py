"""Background mixup: an image's object on another image's background (paper §2.3, eq. 4)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from objectaware.augment.rectangle import largest_empty_rectangle

BACKGROUND_THRESHOLD = 0.2
"""Soft masks are foreground from here on when a background is cut out (paper, common set-up)."""


def cut_background(
    image: NDArray[np.uint8], rectangle: tuple[int, int, int, int], mask_height: int, mask_width: int
) -> NDArray[np.uint8]:
    """Cuts the background patch out of an image.

    Args:
        image: Pixels, shape (H, W, 3).
        rectangle: (top, left, height, width) in pixels of the mask, which covers the whole image.
        mask_height: Height of the mask in pixels.
        mask_width: Width of the mask in pixels.

    Returns:
        The patch, shape (h, w, 3), at least one pixel a side. Edges are rounded inwards, so that no pixel that
        the mask calls foreground is in it.
    """
    top, left, height, width = rectangle
    scale_y, scale_x = image.shape[0] / mask_height, image.shape[1] / mask_width
    y0, x0 = int(np.ceil(top * scale_y)), int(np.ceil(left * scale_x))
    y1, x1 = int((top + height) * scale_y), int((left + width) * scale_x)
    y0, x0 = min(y0, image.shape[0] - 1), min(x0, image.shape[1] - 1)
    return image[y0 : max(y1, y0 + 1), x0 : max(x1, x0 + 1)]


def tile(patch: NDArray[np.uint8], rows: slice, columns: slice) -> NDArray[np.uint8]:
    """Repeats a patch over the plane and returns a window of it.

    Args:
        patch: Pixels, shape (h, w, 3).
        rows: Window's rows; the patch's top-left corner lies at (0, 0).
        columns: Window's columns.

    Returns:
        Window, shape (rows, columns, 3).
    """
    y = np.arange(rows.start, rows.stop) % patch.shape[0]
    x = np.arange(columns.start, columns.stop) % patch.shape[1]
    return patch[y[:, None], x[None, :]]


def background_only(
    image: NDArray[np.uint8], mask: NDArray[np.floating], *, threshold: float = BACKGROUND_THRESHOLD
) -> NDArray[np.uint8] | None:
    """Makes the background-only image x₂ᵇᵍ: the largest empty rectangle, tiled over the whole picture.

    Args:
        image: Pixels, shape (H, W, 3).
        mask: Soft foreground mask in [0, 1] of the whole image, shape (h, w).
        threshold: The mask is foreground where it is at least this.

    Returns:
        Picture of the image's size, or None where the mask leaves no background.

    Source:
        Paper §2.3 and its appendix on background bias.
    """
    rectangle = largest_empty_rectangle(mask >= threshold)
    if rectangle is None:
        return None
    patch = cut_background(image, rectangle, mask.shape[0], mask.shape[1])
    return tile(patch, slice(0, image.shape[0]), slice(0, image.shape[1]))


def mix_background(
    image: NDArray[np.uint8], mask: NDArray[np.uint8], background: NDArray[np.uint8]
) -> NDArray[np.uint8]:
    """Blends x₁ ← CAM(x₁) ⊙ x₁ + (1 − CAM(x₁)) ⊙ x₂ᵇᵍ (paper eq. 4).

    Args:
        image: x₁, shape (H, W, 3).
        mask: CAM(x₁) in 8 bits (255 is 1), shape (H, W).
        background: x₂ᵇᵍ, shape (H, W, 3).

    Returns:
        Mixed image, shape (H, W, 3), rounded to the nearest level.
    """
    weight = mask.astype(np.uint16)[..., None]
    # 16 bits hold 255 · 255 + 127, and integers are several times faster here than floats.
    mixed = image * weight + background * (np.uint16(255) - weight) + np.uint16(127)
    return (mixed // np.uint16(255)).astype(np.uint8)
