"""All localization measures of one system's soft masks, an image at a time."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from objectaware.data.masks import resize_mask
from objectaware.evaluate.corloc import is_correctly_localized, largest_region_box
from objectaware.evaluate.localization import mask_ious
from objectaware.evaluate.max_box_acc import SCORE_THRESHOLDS, box_hits
from objectaware.evaluate.px_ap import average_precision, pixel_histograms
from objectaware.localize.boxes import keep_large_components

MEASURES = {
    "miou": "mIoU at 0.5",
    "miou_1_255": "mIoU at 1/255",
    "max_box_acc_v2": "MaxBoxAccV2 (oracle threshold)",
    "px_ap": "PxAP",
    "corloc": "CorLoc",
    "num_images": "images",
    "num_missing": "of them without mask",
}
"""The measures by name, and their columns' titles. mIoU lies in [0, 1]; MaxBoxAccV2, PxAP and CorLoc are per cent.

The paper reports mIoU in `loc-main`, `loc-cam`, `loc-iter` and `loc-batch`. In `loc-cam-transfer`, `loc-cam-full` and
`loc-saliency` it is MaxBoxAccV2, and on OpenImages, which has no boxes, PxAP under that name.
"""

_IOU_THRESHOLDS = (30, 50, 70)
# The official component filter of mIoU, 0.1% of the picture.
_MIN_REGION = 0.001
_OFFICIAL_THRESHOLD = np.float32(1 / 255)


def resize_soft_mask(soft: NDArray[np.float32], size: int) -> NDArray[np.float32]:
    """Brings a soft mask (H, W) to (size, size): bilinear, or by nearest neighbour where it is 0 and 1 alone."""
    if soft.shape == (size, size):
        return soft
    if ((soft == 0) | (soft == 1)).all():
        return resize_mask(soft > 0, size, size).astype(np.float32)
    return np.asarray(cv2.resize(soft, (size, size), interpolation=cv2.INTER_LINEAR)).clip(0, 1)


def foreground(soft: NDArray[np.float32], *, official: bool = False) -> NDArray[np.bool_]:
    """A soft mask's foreground, less regions of up to 0.1% of the picture.

    Args:
        soft: (H, W) in [0, 1].
        official: From 1/255 on, as the official component filter cuts, instead of above 0.5.
    """
    return keep_large_components(soft >= _OFFICIAL_THRESHOLD if official else soft > 0.5, min_area=_MIN_REGION)


def whole_pixels(boxes: NDArray[np.float64], size: int) -> NDArray[np.int64]:
    """Relative boxes (n, 4) in pixels of a square picture, cut to whole ones as wsolevaluation does (resize_bbox).

    The tool scales whole pixels before it divides. Having divided first, an edge on a whole pixel may lie a rounding
    error below it, which the small number mends: other edges are farther from one than that.
    """
    return np.minimum((boxes * size + 1e-9).astype(np.int64), size - 1)


def center_map(size: int) -> NDArray[np.float32]:
    """A soft mask (size, size) that falls off with the distance from the centre, from 1 to 0 at the corners.

    The baseline of Choe et al. (2020) that knows nothing of the pictures; theirs falls off as a Gaussian, which changes
    neither the order of the pixels nor what a threshold cuts out.
    """
    offsets = np.arange(size) - (size - 1) / 2
    distance = np.hypot(offsets[:, None], offsets)
    return (1 - distance / distance.max()).astype(np.float32)


class MaskScores:
    """Sums what each image adds to the measures; pictures are squashed to one square size, as the paper does.

    Args:
        size: Side in pixels that masks and truth are compared at.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._ious: dict[bool, list[float]] = {False: [], True: []}
        self._hits = np.zeros((len(_IOU_THRESHOLDS), len(SCORE_THRESHOLDS)), dtype=np.int64)
        self._histograms: NDArray[np.int64] | None = None
        self._is_correct: list[bool] = []
        self._num_images = 0
        self._num_missing = 0

    def add(
        self,
        soft: NDArray[np.float32] | None,
        truth: NDArray[np.bool_] | None,
        boxes: NDArray[np.float64],
        ignored: NDArray[np.bool_] | None = None,
    ) -> None:
        """Adds an image.

        Args:
            soft: Its soft mask (h, w) in [0, 1] of any size; None counts as an empty one.
            truth: Its true foreground (H, W) of any size; an image with none takes no part in mIoU and PxAP.
            boxes: Its true boxes (n, 4), relative; an image with none takes no part in MaxBoxAccV2 and CorLoc.
            ignored: Pixels (H, W) of any size that mIoU and PxAP leave out.
        """
        self._num_images += 1
        self._num_missing += soft is None
        if soft is None:
            soft = np.zeros((self._size, self._size), dtype=np.float32)
        soft = resize_soft_mask(soft, self._size)
        if truth is not None:
            self._add_pixels(soft, resize_mask(truth, self._size, self._size), self._counted(ignored))
        if len(boxes):
            self._hits += box_hits(soft, whole_pixels(boxes, self._size), iou_thresholds=_IOU_THRESHOLDS)
            self._is_correct.append(is_correctly_localized(largest_region_box(foreground(soft)), boxes))

    def _counted(self, ignored: NDArray[np.bool_] | None) -> NDArray[np.bool_]:
        if ignored is None:
            return np.ones((self._size, self._size), dtype=np.bool_)
        return ~resize_mask(ignored, self._size, self._size)

    def _add_pixels(self, soft: NDArray[np.float32], truth: NDArray[np.bool_], counted: NDArray[np.bool_]) -> None:
        for official, ious in self._ious.items():
            found = foreground(soft, official=official)
            ious.append(float(mask_ious((found & counted)[None], (truth & counted)[None])[0]))
        histograms = pixel_histograms(soft, truth, ~counted)
        self._histograms = histograms if self._histograms is None else self._histograms + histograms

    def result(self) -> dict[str, float]:
        """The measures by the names of `MEASURES`; NaN where no image has a true mask, pixel or box."""
        has_pixels = self._histograms is not None and self._histograms[0].any()
        return {
            "miou": _mean(self._ious[False]),
            "miou_1_255": _mean(self._ious[True]),
            "max_box_acc_v2": self._share(float(self._hits.max(axis=1).mean())),
            "px_ap": average_precision(self._histograms) if has_pixels and self._histograms is not None else np.nan,
            "corloc": self._share(float(sum(self._is_correct))),
            "num_images": self._num_images,
            "num_missing": self._num_missing,
        }

    def _share(self, count: float) -> float:
        return 100 * count / len(self._is_correct) if self._is_correct else np.nan


def _mean(values: list[float]) -> float:
    return float(np.mean(values)) if values else np.nan
