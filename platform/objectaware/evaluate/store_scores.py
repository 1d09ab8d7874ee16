"""Scoring a mask store against true masks, one image at a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

import cv2
import numpy as np
from numpy.typing import NDArray

from objectaware.evaluate.localization import best_center_box, mask_ious
from objectaware.localize.mask_store import MaskRow


class Truths(Protocol):
    """True masks by index."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> NDArray[np.bool_]:
        """Mask (H, W), true on any object."""
        ...


def resize_mask(mask: NDArray[np.bool_], height: int, width: int) -> NDArray[np.bool_]:
    """Brings a mask to another size by nearest neighbour; (H, W) to (height, width)."""
    if mask.shape == (height, width):
        return mask
    resized = cv2.resize(mask.astype(np.uint8), (width, height), interpolation=cv2.INTER_NEAREST_EXACT)
    return resized.astype(np.bool_)


def score_store(
    rows: Iterable[MaskRow], truths: Truths, image_ids: Mapping[str, int], *, soft_threshold: float = 0.5
) -> dict[str, float]:
    """Mean foreground IoU of a store's masks, at the network's size (paper: images squashed to 224 pixels).

    Args:
        rows: Rows of the store.
        truths: True masks of the data set.
        image_ids: Index of each image in `truths`.
        soft_threshold: The soft mask counts as foreground from here on.

    Returns:
        `mask`, the stored binary mask, and `soft`, the thresholded CAM: mIoU in [0, 1]. An image whose
        localization failed counts with an empty mask.
    """
    scores: dict[str, list[float]] = {"mask": [], "soft": []}
    for row in rows:
        truth = truths[image_ids[row.image_id]]
        if row.cam is None or row.mask is None:
            empty = np.zeros_like(truth)
            found = {"mask": empty, "soft": empty}
        else:
            height, width = row.cam.shape
            truth = resize_mask(truth, height, width)
            found = {"mask": resize_mask(row.mask, height, width), "soft": row.cam >= soft_threshold}
        for name, mask in found.items():
            scores[name].append(float(mask_ious(mask[None], truth[None])[0]))
    return {name: float(np.mean(values)) for name, values in scores.items()}


def score_trivial(truths: Truths) -> dict[str, float]:
    """Mean foreground IoU of the trivial baselines.

    Returns:
        `center_box`, the centred box whose size fits this very set best (an oracle), and `full_image`.
    """
    full = [float(truths[index].mean()) if truths[index].any() else 0.0 for index in range(len(truths))]
    _, center = best_center_box(truths[index] for index in range(len(truths)))
    return {"center_box": center, "full_image": float(np.mean(full))}
