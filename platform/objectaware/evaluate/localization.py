"""How well predicted masks cover the objects: foreground IoU, the best centred box and box counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from objectaware.errors import InputError
from objectaware.localize.center_box import center_box_edges


def binarise(soft: NDArray[np.floating], threshold: float = 0.5) -> NDArray[np.bool_]:
    """Foreground of a soft mask: strictly above the threshold.

    Args:
        soft: Mask of any shape, values in [0, 1].
        threshold: In [0, 1), excluded. The paper's mIoU takes 0.5. The official component filter truncates to
            8 bits and keeps what is not 0, that is values from 1/255 on.

    Returns:
        Boolean mask of the same shape.
    """
    if not 0 <= threshold < 1:
        raise InputError("threshold", threshold, "must lie in [0, 1)", "The paper takes 0.5.")
    return soft > threshold


def mask_ious(predicted: NDArray[np.bool_], truth: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Foreground intersection over union of each image; two empty masks count as 1.

    Args:
        predicted: (N, H, W) boolean.
        truth: (N, H, W) boolean.

    Returns:
        (N,) in [0, 1].

    Raises:
        InputError: Masks that are not boolean, not (N, H, W) or not of one shape.
    """
    for field, masks in (("predicted", predicted), ("truth", truth)):
        if masks.dtype != np.bool_ or masks.ndim != 3:
            found = f"{masks.dtype} {masks.shape}"
            raise InputError(field, found, "must be boolean (N, H, W)", "Binarise soft masks first.")
    if predicted.shape != truth.shape:
        raise InputError("predicted", predicted.shape, f"truth has {truth.shape}", "Give masks of one size.")
    intersection = np.count_nonzero(predicted & truth, axis=(1, 2))
    union = np.count_nonzero(predicted | truth, axis=(1, 2))
    return np.where(union == 0, 1.0, intersection / np.maximum(union, 1))


def mask_miou(predicted: NDArray[np.bool_], truth: NDArray[np.bool_]) -> float:
    """Mean over images of the foreground IoU, the paper's mask mIoU (section 4.1).

    Args:
        predicted: (N, H, W) boolean, N at least 1.
        truth: (N, H, W) boolean.

    Returns:
        Mean IoU in [0, 1].

    Raises:
        InputError: No image, or what `mask_ious` refuses.
    """
    if len(predicted) == 0:
        raise InputError("predicted", predicted.shape, "holds no mask", "Give at least one image.")
    return float(mask_ious(predicted, truth).mean())


def best_center_box(truths: Iterable[NDArray[np.bool_]], num_sides: int = 100) -> tuple[float, float]:
    """The centred box that fits a whole data set best: an oracle, chosen by the truth that it is scored on.

    Args:
        truths: Boolean masks (H, W) of possibly different sizes, at least one; an (N, H, W) array will do.
        num_sides: How many side fractions 1/num_sides, 2/num_sides, … 1 are tried.

    Returns:
        Fraction of the picture's sides, and the mean IoU of that box over the set; the smallest of equal
        boxes.

    Raises:
        InputError: No mask.
    """
    fractions = [side / num_sides for side in range(1, num_sides + 1)]
    ious = [_center_box_ious(truth, fractions) for truth in truths]
    if not ious:
        raise InputError("truths", "none", "holds no mask", "Give at least one image.")
    mious = np.mean(ious, axis=0)
    best = int(np.argmax(mious))
    return fractions[best], float(mious[best])


def _center_box_ious(truth: NDArray[np.bool_], fractions: Sequence[float]) -> NDArray[np.float64]:
    """IoU of one mask with each centred box; its summed-area table makes 100 boxes as cheap as one."""
    height, width = truth.shape
    table = np.zeros((height + 1, width + 1), dtype=np.int64)
    table[1:, 1:] = truth.cumsum(axis=0).cumsum(axis=1)
    edges = np.array([center_box_edges(height, width, fraction) for fraction in fractions])
    top, left, bottom, right = edges.T
    intersection = table[bottom, right] - table[top, right] - table[bottom, left] + table[top, left]
    union = (bottom - top) * (right - left) + table[-1, -1] - intersection
    return np.asarray(intersection / union)


def box_count_histogram(counts: Iterable[int]) -> dict[int, int]:
    """How many images have each number of boxes.

    Args:
        counts: Number of boxes of each image.

    Returns:
        Number of boxes -> number of images, from 0 to the largest count without gaps; empty for no image.
    """
    images_by_count = Counter(counts)
    return {count: images_by_count[count] for count in range(max(images_by_count, default=-1) + 1)}
