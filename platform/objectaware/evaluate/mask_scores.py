"""Localization measures of soft masks: each alone as a function, and all of one system's masks in `MaskScores`."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import cv2
import numpy as np
from numpy.typing import NDArray

from objectaware.data.masks import region_boxes, resize_mask
from objectaware.errors import InputError
from objectaware.localize.center_box import center_box, center_box_edges
from objectaware.localize.objects import keep_large_components

Rectangle = Sequence[int]

# The tool's own grid, 0 to 0.999: the floating-point steps of its arange decide where int(τ·max) changes.
SCORE_THRESHOLDS: NDArray[np.float64] = np.arange(0, 1, 0.001)

# The tool's bins: one per step, [1, 2] for scores of 1, and an empty one that starts the curve at recall 0.
_EDGES: NDArray[np.float64] = np.append(SCORE_THRESHOLDS, [1.0, 2.0, 3.0])

MEASURES = {
    "miou": "mIoU at 0.5",
    "miou_1_255": "mIoU at 1/255",
    "max_box_acc_v2": "MaxBoxAccV2 (oracle threshold)",
    "px_ap": "PxAP",
    "corloc": "CorLoc",
    "mask_share": "mean share",
    "same_area_miou": "same-area box mIoU",
    "same_area_corloc": "same-area box CorLoc",
    "crf_miou": "CRF adds mIoU",
    "crf_corloc": "CRF adds CorLoc",
    "num_images": "images",
    "num_missing": "of them without mask",
}
"""The measures by name, and their columns' titles. mIoU lies in [0, 1]; MaxBoxAccV2, PxAP and CorLoc are per cent.

The mean share is the part of the picture, in [0, 1], that the masks at 0.5 cover. The same-area box is the centred box
of each mask's own area: masks that merely grow gain as much as it does. The scorer of masks that a CRF refined adds the
differences to the masks before it (`crf_gains`).

The paper reports mIoU in `loc-main`, `loc-cam`, `loc-iter` and `loc-batch`. In `loc-cam-transfer`, `loc-cam-full` and
`loc-saliency` it is MaxBoxAccV2, and on OpenImages, which has no boxes, PxAP under that name.
"""

OBJECT_SIZES: dict[str, tuple[float, float]] = {"small": (0.0, 0.05), "medium": (0.05, 0.4), "large": (0.4, 1.0)}
"""Sizes of the true object, as the part of the picture that it covers: from above the first bound to the second.

An object of 5% covers two or three of the 7 × 7 cells of a ResNet's map at 224 pixels, and smaller ones are at the
limit of what a soft map resolves. Where objects cover more than 40%, the full picture has an IoU above 0.4, so that no
table shows whether a method looked at the picture. Between the two, trivial answers are wrong and objects are visible.
"""

_IOU_THRESHOLDS = (30, 50, 70)
_CORLOC_IOU = 0.5
_LEVELS_PER_UPDATE = 12
# The official component filter of mIoU, 0.1% of the picture.
_MIN_REGION = 0.001
_OFFICIAL_THRESHOLD = np.float32(1 / 255)


def mask_ious(predicted: NDArray[np.bool_], truth: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return the foreground intersection over union of each image; two empty masks count as 1.

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
    """Return the mean over images of the foreground IoU, the paper's mask mIoU (section 4.1).

    Args:
        predicted: (N, H, W) boolean, N at least 1.
        truth: (N, H, W) boolean.

    Returns:
        Mean IoU in [0, 1].

    Raises:
        InputError: There is no image, or `mask_ious` refuses the masks.
    """
    if len(predicted) == 0:
        raise InputError("predicted", predicted.shape, "holds no mask", "Give at least one image.")
    return float(mask_ious(predicted, truth).mean())


def best_center_box(truths: Iterable[NDArray[np.bool_]], num_sides: int = 100) -> tuple[float, float]:
    """Return the centred box that fits a whole data set best: an oracle, chosen by the truth that it is scored on.

    Args:
        truths: Boolean masks (H, W) of possibly different sizes, at least one; an (N, H, W) array will do.
        num_sides: Number of side fractions to try: 1/num_sides, 2/num_sides, … 1.

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
    """Return the IoU of one mask with each centred box; its summed-area table makes 100 boxes as cheap as one."""
    height, width = truth.shape
    table = np.zeros((height + 1, width + 1), dtype=np.int64)
    table[1:, 1:] = truth.cumsum(axis=0).cumsum(axis=1)
    edges = np.array([center_box_edges(height, width, fraction) for fraction in fractions])
    top, left, bottom, right = edges.T
    intersection = table[bottom, right] - table[top, right] - table[bottom, left] + table[top, left]
    union = (bottom - top) * (right - left) + table[-1, -1] - intersection
    return np.asarray(intersection / union)


def box_count_histogram(counts: Iterable[int]) -> dict[int, int]:
    """Count the images with each number of boxes.

    Args:
        counts: Number of boxes of each image.

    Returns:
        Number of boxes -> number of images, from 0 to the largest count without gaps; empty for no image.
    """
    images_by_count = Counter(counts)
    return {count: images_by_count[count] for count in range(max(images_by_count, default=-1) + 1)}


def largest_region_box(mask: NDArray[np.bool_]) -> NDArray[np.float64] | None:
    """Return the box around the largest 4-connected region of a mask, as LOST and TokenCut predict one box per image.

    Args:
        mask: (H, W).

    Returns:
        x0 y0 x1 y1 relative to the picture, without margin; None for an empty mask.
    """
    boxes, areas = region_boxes(mask)
    return boxes[areas.argmax()] if len(boxes) else None


def is_correctly_localized(box: NDArray[np.floating] | None, true_boxes: NDArray[np.floating]) -> bool:
    """Return whether a box has an IoU of at least 0.5 with any true box; CorLoc is the share of such images.

    Source:
        Deselaers et al., 2010.

    Args:
        box: x0 y0 x1 y1; None where nothing was found.
        true_boxes: (n, 4), in the same unit.
    """
    if box is None:
        return False
    intersection = np.minimum(box[2:], true_boxes[:, 2:]) - np.maximum(box[:2], true_boxes[:, :2])
    shared = np.clip(intersection, 0, None).prod(axis=1)
    areas = (true_boxes[:, 2:] - true_boxes[:, :2]).prod(axis=1)
    return bool((shared >= _CORLOC_IOU * ((box[2:] - box[:2]).prod() + areas - shared)).any())


def max_box_acc(
    score_maps: Iterable[NDArray[np.floating]],
    boxes: Iterable[NDArray[np.number]],
    *,
    iou_thresholds: Sequence[int] = (30, 50, 70),
    multi_contour: bool = True,
) -> dict[int, float]:
    """Return the share of images with a box that meets an IoU, at the score threshold best for the whole set.

    MaxBoxAccV2 of Choe et al. (2020) is the mean of the returned values (multi_contour=True, IoU 30, 50, 70).
    MaxBoxAcc is the value at IoU 50 with multi_contour=False. The score threshold is an oracle: it is chosen by the
    truth that it is scored on.

    Args:
        score_maps: Maps (H, W) in [0, 1], an (N, H, W) array or a stream; the tool has H = W = 224.
        boxes: For each map its true boxes (n, 4), n at least 1: x0 y0 x1 y1 in pixels of the map.
        iou_thresholds: Per cent, each in 1 … 100.
        multi_contour: Every contour gives a box; False takes that of largest area alone.

    Returns:
        IoU threshold -> per cent of images.

    Raises:
        InputError: There is no map, the numbers of maps and of lists of boxes differ, or `box_hits` refuses one.
    """
    hits = np.zeros((len(iou_thresholds), len(SCORE_THRESHOLDS)), dtype=np.int64)
    num_images = 0
    for score_map, true_boxes in itertools.zip_longest(score_maps, boxes):
        if score_map is None or true_boxes is None:
            problem = "are fewer lists than maps" if true_boxes is None else "are more lists than maps"
            raise InputError("boxes", f"after {num_images}", problem, "Give one list of boxes per map.")
        hits += box_hits(score_map, true_boxes, iou_thresholds=iou_thresholds, multi_contour=multi_contour)
        num_images += 1
    if num_images == 0:
        raise InputError("score_maps", "none", "holds no map", "Give at least one image.")
    best = hits.max(axis=1) * 100 / num_images
    return {iou: float(per_cent) for iou, per_cent in zip(iou_thresholds, best, strict=True)}


def box_hits(
    score_map: NDArray[np.floating],
    true_boxes: NDArray[np.number],
    *,
    iou_thresholds: Sequence[int] = (30, 50, 70),
    multi_contour: bool = True,
) -> NDArray[np.bool_]:
    """Return whether one image counts as found, at each IoU and score threshold; `max_box_acc` sums these.

    Args:
        score_map: (H, W) in [0, 1].
        true_boxes: (n, 4), n at least 1: x0 y0 x1 y1 in pixels.
        iou_thresholds: Per cent.
        multi_contour: Every contour gives a box; False takes that of largest area alone.

    Returns:
        Boolean (len(iou_thresholds), 1000), a column for each of `SCORE_THRESHOLDS`.

    Raises:
        InputError: A map that is not (H, W) in [0, 1], boxes that are not (n, 4) corners, an IoU threshold
            out of range.
    """
    _check_arguments(score_map, true_boxes, iou_thresholds)
    grey = (score_map * 255).astype(np.uint8)
    levels = (SCORE_THRESHOLDS * grey.max()).astype(np.int64)
    # A map has at most 256 values, and a nearly binary one a few: most of the 1000 thresholds share their boxes. The
    # levels rise, so that distinct ones are found without sorting.
    num_values_up_to = np.cumsum(cv2.calcHist([grey], [0], None, [256], [0, 256]) > 0)
    is_new = np.diff(num_values_up_to[levels], prepend=-1) > 0
    distinct_levels, level_of_threshold = levels[is_new], is_new.cumsum() - 1
    rectangles = list(_rectangles(grey, distinct_levels.tolist(), multi_contour))
    # All levels' boxes at once: one call of NumPy per level would take longer than finding the contours.
    boxes = _corners(np.array(list(chain(*rectangles)), dtype=np.int64), *grey.shape)
    best_of_box = _pairwise_ious(boxes, true_boxes).max(axis=1)
    first_of_level = np.cumsum([0, *map(len, rectangles[:-1])])
    best_ious = np.maximum.reduceat(best_of_box, first_of_level)  # (levels,)
    required = np.array(iou_thresholds)[:, None] / 100
    return np.asarray(best_ious[level_of_threshold][None] >= required)


def _rectangles(grey: NDArray[np.uint8], levels: Sequence[int], multi_contour: bool) -> Iterator[list[Rectangle]]:
    """Yield left, top, width and height around each contour per level, holes included; at least one per level.

    Levels rise, so that a level's pixels lie within the boxes of any level before it. Only that part is searched. It is
    determined again every few levels, which is cheaper than at each level.
    """
    left, top, right, bottom = 0, 0, grey.shape[1], grey.shape[0]
    for number, level in enumerate(levels):
        _, foreground = cv2.threshold(grey[top:bottom, left:right], level, 1, cv2.THRESH_BINARY)
        contours, _ = cv2.findContours(foreground, cv2.RETR_TREE, cv2.CHAIN_APPROX_SIMPLE, offset=(left, top))
        found = list(map(cv2.boundingRect, contours))
        if not found:
            yield [(0, 0, 0, 0)]
            continue
        yield found if multi_contour else [found[int(np.argmax([cv2.contourArea(contour) for contour in contours]))]]
        if number % _LEVELS_PER_UPDATE == 0:
            left, top = min(x for x, _, _, _ in found), min(y for _, y, _, _ in found)
            right = max(x + width for x, _, width, _ in found)
            bottom = max(y + height for _, y, _, height in found)


def _corners(rectangles: NDArray[np.int64], height: int, width: int) -> NDArray[np.int64]:
    """Return boxes x0 y0 x1 y1 (n, 4), whose far edges stop at the last pixel."""
    x, y, box_width, box_height = rectangles.T
    right, bottom = np.minimum(x + box_width, width - 1), np.minimum(y + box_height, height - 1)
    return np.stack([x, y, right, bottom], axis=1)


def _pairwise_ious(predicted: NDArray[np.int64], truth: NDArray[np.number]) -> NDArray[np.float64]:
    """Return the IoU (p, t) of boxes that include their far edges, hence the +1 of the tool."""
    top_left = np.maximum(predicted[:, None, :2], truth[None, :, :2])
    bottom_right = np.minimum(predicted[:, None, 2:], truth[None, :, 2:])
    intersection = np.clip(bottom_right - top_left + 1, 0, None).prod(axis=2)
    predicted_area = (predicted[:, 2:] - predicted[:, :2] + 1).prod(axis=1)
    true_area = (truth[:, 2:] - truth[:, :2] + 1).prod(axis=1)
    return np.asarray(intersection / (predicted_area[:, None] + true_area[None] - intersection))


def _check_arguments(
    score_map: NDArray[np.floating], true_boxes: NDArray[np.number], iou_thresholds: Sequence[int]
) -> None:
    if score_map.ndim != 2 or score_map.size == 0:
        raise InputError("score_maps", score_map.shape, "must be (H, W) each", "Give one map per image.")
    _check_range(score_map)
    if true_boxes.ndim != 2 or true_boxes.shape[1] != 4 or len(true_boxes) == 0:
        raise InputError("boxes", true_boxes.shape, "must be (n, 4), n > 0", "Leave out images without box.")
    if (true_boxes[:, 2:] < true_boxes[:, :2]).any():
        raise InputError("boxes", true_boxes.tolist(), "must be x0 y0 x1 y1", "Turn widths into right edges.")
    if not iou_thresholds or not all(0 < iou <= 100 for iou in iou_thresholds):
        raise InputError("iou_thresholds", iou_thresholds, "must be per cent", "The usual are 30, 50, 70.")


def _check_range(score_map: NDArray[np.floating]) -> None:
    # NaN fails both comparisons, so the negation refuses it too.
    if not (score_map.min() >= 0 and score_map.max() <= 1):
        found = f"{score_map.min()} to {score_map.max()}"
        raise InputError("score_maps", found, "must lie in [0, 1]", "Normalise each map to it.")


def pixel_histograms(
    score_map: NDArray[np.floating], truth: NDArray[np.bool_], ignored: NDArray[np.bool_] | None = None
) -> NDArray[np.int64]:
    """Count the true pixels (row 0) and other pixels (row 1) of one image with each score.

    Args:
        score_map: (H, W) in [0, 1].
        truth: (H, W) boolean.
        ignored: (H, W) boolean, pixels that neither row counts.

    Returns:
        (2, 1002), scores ascending.

    Raises:
        InputError: Shapes differ, a mask is not boolean, or scores lie outside [0, 1].
    """
    counted = np.ones_like(truth, dtype=np.bool_) if ignored is None else ~ignored
    for field, mask in (("truths", truth), ("ignored", counted)):
        if mask.dtype != np.bool_ or mask.shape != score_map.shape:
            found = f"{mask.dtype} {mask.shape}"
            raise InputError(field, found, f"must be boolean {score_map.shape}", "Give masks of the maps' size.")
    _check_range(score_map)
    return np.stack([np.histogram(score_map[pixels], bins=_EDGES)[0] for pixels in (truth & counted, ~truth & counted)])


def average_precision(histograms: NDArray[np.int64]) -> float:
    """Return PxAP in per cent: the area under the curve of precision over recall of all pixels of all images together.

    Precision and recall are taken at 1000 thresholds; the area is the sum of each step in recall times the precision
    after it. No threshold is chosen, so that no part of it is an oracle.

    Source:
        Choe et al., 2020, as wsolevaluation measures it.

    Args:
        histograms: Sum of the images' `pixel_histograms`.

    Raises:
        InputError: There is no true pixel.
    """
    true_positives, false_positives = histograms[:, ::-1].cumsum(axis=1)
    if true_positives[-1] == 0:
        raise InputError("truths", "no foreground", "holds no true pixel", "Give images with objects.")
    predicted = true_positives + false_positives
    precision = true_positives / np.maximum(predicted, 1)  # where nothing is predicted, recall does not step either
    recall = true_positives / true_positives[-1]
    return float((precision[1:] * np.diff(recall)).sum() * 100)


def resize_soft_mask(soft: NDArray[np.float32], size: int) -> NDArray[np.float32]:
    """Resize a soft mask (H, W) to (size, size): bilinear, or by nearest neighbour if it holds only 0 and 1."""
    if soft.shape == (size, size):
        return soft
    if ((soft == 0) | (soft == 1)).all():
        return resize_mask(soft > 0, size, size).astype(np.float32)
    return np.asarray(cv2.resize(soft, (size, size), interpolation=cv2.INTER_LINEAR)).clip(0, 1)


def foreground(soft: NDArray[np.float32], *, official: bool = False) -> NDArray[np.bool_]:
    """Return a soft mask's foreground without regions of up to 0.1% of the picture.

    Args:
        soft: (H, W) in [0, 1].
        official: From 1/255 on, as the official component filter cuts, instead of above 0.5.
    """
    return keep_large_components(soft >= _OFFICIAL_THRESHOLD if official else soft > 0.5, min_area=_MIN_REGION)


def whole_pixels(boxes: NDArray[np.float64], size: int) -> NDArray[np.int64]:
    """Return relative boxes (n, 4) in whole pixels of a square picture, cut as in wsolevaluation (resize_bbox).

    The tool multiplies before it divides. Relative boxes are divided first, so that an edge on a whole pixel may lie a
    rounding error below it. The small number corrects that; other edges are farther from a whole pixel.
    """
    return np.minimum((boxes * size + 1e-9).astype(np.int64), size - 1)


@dataclass(frozen=True, eq=False)
class _ImageScores:
    """The measures of one image's mask; None where its truth does not allow them.

    Attributes:
        is_missing: Whether there is no mask.
        share: Part of the picture that the mask covers.
        ious: IoU at 0.5, at 1/255, and of the same-area box.
        histograms: `pixel_histograms`.
        hits: `box_hits`.
        is_correct: Whether the largest region's box, and the same-area box, are correct in the sense of CorLoc.
    """

    is_missing: bool
    share: float
    ious: tuple[float, float, float] | None = None
    histograms: NDArray[np.int64] | None = None
    hits: NDArray[np.bool_] | None = None
    is_correct: tuple[bool, bool] | None = None


class _Sums:
    """Sums of `_ImageScores` over some images."""

    def __init__(self) -> None:
        self.shares: list[float] = []
        self._ious: list[tuple[float, float, float]] = []
        self._is_correct: list[tuple[bool, bool]] = []
        self._hits = np.zeros((len(_IOU_THRESHOLDS), len(SCORE_THRESHOLDS)), dtype=np.int64)
        self._histograms = np.zeros((2, len(_EDGES) - 1), dtype=np.int64)
        self._num_missing = 0

    def add(self, one: _ImageScores) -> None:
        self._num_missing += one.is_missing
        self.shares.append(one.share)
        if one.ious is not None and one.histograms is not None:
            self._ious.append(one.ious)
            self._histograms += one.histograms
        if one.is_correct is not None and one.hits is not None:
            self._is_correct.append(one.is_correct)
            self._hits += one.hits

    def result(self) -> dict[str, float]:
        mious = np.mean(self._ious, axis=0) if self._ious else np.full(3, np.nan)
        corlocs = 100 * np.mean(self._is_correct, axis=0) if self._is_correct else np.full(2, np.nan)
        best_hits = float(self._hits.max(axis=1).mean())
        return {
            "miou": float(mious[0]),
            "miou_1_255": float(mious[1]),
            "max_box_acc_v2": 100 * best_hits / len(self._is_correct) if self._is_correct else np.nan,
            "px_ap": average_precision(self._histograms) if self._histograms[0].any() else np.nan,
            "corloc": float(corlocs[0]),
            "mask_share": float(np.mean(self.shares)) if self.shares else np.nan,
            "same_area_miou": float(mious[2]),
            "same_area_corloc": float(corlocs[1]),
            "num_images": len(self.shares),
            "num_missing": self._num_missing,
        }


class MaskScores:
    """All localization measures of one system's masks, summed one image at a time: of all images, and by object size.

    Pictures are squashed to one square size, as in the paper.

    Args:
        size: Side in pixels that masks and truth are compared at.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._all = _Sums()
        self._by_size = {name: _Sums() for name in OBJECT_SIZES}

    def add(
        self,
        soft: NDArray[np.float32] | None,
        truth: NDArray[np.bool_] | None,
        boxes: NDArray[np.float64],
        ignored: NDArray[np.bool_] | None = None,
    ) -> None:
        """Add an image.

        Args:
            soft: Its soft mask (h, w) in [0, 1] of any size; None counts as an empty one.
            truth: Its true foreground (H, W) of any size; an image without it takes no part in mIoU and PxAP.
            boxes: Its true boxes (n, 4), relative; an image without boxes takes no part in MaxBoxAccV2 and CorLoc.
            ignored: Pixels (H, W) of any size that mIoU and PxAP leave out.
        """
        shape = (self._size, self._size)
        counted = np.ones(shape, np.bool_) if ignored is None else ~resize_mask(ignored, *shape)
        truth = None if truth is None else resize_mask(truth, *shape) & counted
        one = self._measured(soft, truth, boxes, counted)
        self._all.add(one)
        object_size = size_of(float((self._filled(boxes) if truth is None else truth).mean()))
        if object_size is not None:
            self._by_size[object_size].add(one)

    def result(self) -> dict[str, float]:
        """Return the measures by the names of `MEASURES`; NaN if no image has a true mask, pixel or box.

        The differences that a CRF makes are not among them; they are of two systems (`crf_gains`).
        """
        return self._all.result()

    def result_by_size(self) -> dict[str, dict[str, float]]:
        """Return the same for the images with objects of each of `OBJECT_SIZES`; sizes without an image are absent."""
        return {name: sums.result() for name, sums in self._by_size.items() if sums.shares}

    def _measured(
        self,
        soft: NDArray[np.float32] | None,
        truth: NDArray[np.bool_] | None,
        boxes: NDArray[np.float64],
        counted: NDArray[np.bool_],
    ) -> _ImageScores:
        is_missing = soft is None
        if soft is None:
            soft = np.zeros((self._size, self._size), dtype=np.float32)
        soft = resize_soft_mask(soft, self._size)
        found = foreground(soft)
        same_area = center_box_of_share(self._size, float(found.mean()))
        ious = histograms = hits = is_correct = None
        if truth is not None:
            masks = np.stack([found, foreground(soft, official=True), same_area]) & counted
            at_half, official, of_box = mask_ious(masks, np.stack([truth] * 3)).tolist()
            ious = (at_half, official, of_box)
            histograms = pixel_histograms(soft, truth, ~counted)
        if len(boxes):
            hits = box_hits(soft, whole_pixels(boxes, self._size), iou_thresholds=_IOU_THRESHOLDS)
            predicted = (largest_region_box(found), largest_region_box(same_area))
            is_correct = (is_correctly_localized(predicted[0], boxes), is_correctly_localized(predicted[1], boxes))
        return _ImageScores(is_missing, float(found.mean()), ious, histograms, hits, is_correct)

    def _filled(self, boxes: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Return the mask that boxes cover together."""
        mask = np.zeros((self._size, self._size), dtype=np.bool_)
        for x0, y0, x1, y1 in np.rint(boxes * self._size).astype(np.int64):
            mask[y0:y1, x0:x1] = True
        return mask


def size_of(share: float) -> str | None:
    """Return the name in `OBJECT_SIZES` of an object that covers a part of the picture; None if there is no object."""
    return next((name for name, (above, up_to) in OBJECT_SIZES.items() if above < share <= up_to), None)


def center_box_of_share(size: int, share: float) -> NDArray[np.bool_]:
    """Return the centred square (size, size) that covers a part of the picture in [0, 1], up to whole pixels."""
    if share == 0:
        return np.zeros((size, size), dtype=np.bool_)
    return center_box(size, size, min(1.0, math.sqrt(share)))


def crf_gains(refined: Mapping[str, float], soft: Mapping[str, float]) -> dict[str, float]:
    """Return the measures of refined masks minus those of the same masks before the CRF, by the names of `MEASURES`."""
    return {
        f"crf_{name}": refined[name] - soft[name] for name in ("miou", "corloc") if name in refined and name in soft
    }
