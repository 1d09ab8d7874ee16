"""MaxBoxAccV2 of Choe et al. (2020), as wsolevaluation measures it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

import cv2
import numpy as np
from numpy.typing import NDArray

from objectaware.errors import InputError

_LEVELS_A_LOOK = 12

Rectangle = Sequence[int]

# The tool's own grid, 0 to 0.999: the floating-point steps of its arange decide where int(τ·max) changes.
SCORE_THRESHOLDS: NDArray[np.float64] = np.arange(0, 1, 0.001)


def max_box_acc(
    score_maps: Iterable[NDArray[np.floating]],
    boxes: Iterable[NDArray[np.number]],
    *,
    iou_thresholds: Sequence[int] = (30, 50, 70),
    multi_contour: bool = True,
) -> dict[int, float]:
    """Share of images with a predicted box that meets an IoU, at the score threshold best for the whole set.

    MaxBoxAccV2 is the mean of the returned values (multi_contour=True, IoU 30, 50, 70); MaxBoxAcc is the
    value at IoU 50 with multi_contour=False. The score threshold is an oracle: it is chosen by the truth it
    is scored on.

    Args:
        score_maps: Maps (H, W) in [0, 1], an (N, H, W) array or a stream; the tool has H = W = 224.
        boxes: For each map its true boxes (n, 4), n at least 1: x0 y0 x1 y1 in pixels of the map.
        iou_thresholds: Per cent, each in 1 … 100.
        multi_contour: Every contour gives a box; False takes that of largest area alone.

    Returns:
        IoU threshold -> per cent of images.

    Raises:
        InputError: No map, not as many lists of boxes as maps, or what `box_hits` refuses.
    """
    hits = np.zeros((len(iou_thresholds), len(SCORE_THRESHOLDS)), dtype=np.int64)
    num_images = 0
    remaining_boxes = iter(boxes)
    for score_map in score_maps:
        true_boxes = next(remaining_boxes, None)
        if true_boxes is None:
            raise InputError("boxes", num_images, "fewer lists of boxes than maps", "Give one a map.")
        hits += box_hits(score_map, true_boxes, iou_thresholds=iou_thresholds, multi_contour=multi_contour)
        num_images += 1
    if next(remaining_boxes, None) is not None:
        raise InputError("boxes", f"over {num_images}", "more lists of boxes than maps", "Give one a map.")
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
    """Whether one image counts as found, at each IoU and score threshold; their sums make `max_box_acc`.

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
    # A map has at most 256 values, and a nearly binary one a few: most of the 1000 thresholds share their boxes. They
    # rise, so that no sorting is needed to tell them apart.
    num_values_up_to = np.cumsum(cv2.calcHist([grey], [0], None, [256], [0, 256]) > 0)
    is_new = np.diff(num_values_up_to[levels], prepend=-1) > 0
    distinct_levels, level_of_threshold = levels[is_new], is_new.cumsum() - 1
    rectangles = list(_rectangles(grey, distinct_levels.tolist(), multi_contour))
    # All levels' boxes at once: a call of NumPy a level would take longer than finding the contours.
    boxes = _corners(np.array(list(chain(*rectangles)), dtype=np.int64), *grey.shape)
    best_of_box = _pairwise_ious(boxes, true_boxes).max(axis=1)
    first_of_level = np.cumsum([0, *map(len, rectangles[:-1])])
    best_ious = np.maximum.reduceat(best_of_box, first_of_level)  # (levels,)
    required = np.array(iou_thresholds)[:, None] / 100
    return np.asarray(best_ious[level_of_threshold][None] >= required)


def _rectangles(grey: NDArray[np.uint8], levels: Sequence[int], multi_contour: bool) -> Iterator[list[Rectangle]]:
    """Left, top, width and height around each contour of what is above each level, holes included; never none.

    Levels rise, so that a level's pixels lie within the boxes of any level before it: nothing else is searched. Where
    that is, is looked up now and then, which is cheaper than always.
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
        if number % _LEVELS_A_LOOK == 0:
            left, top = min(x for x, _, _, _ in found), min(y for _, y, _, _ in found)
            right = max(x + width for x, _, width, _ in found)
            bottom = max(y + height for _, y, _, height in found)


def _corners(rectangles: NDArray[np.int64], height: int, width: int) -> NDArray[np.int64]:
    """Boxes x0 y0 x1 y1 (n, 4), whose far edges stop at the last pixel."""
    x, y, box_width, box_height = rectangles.T
    right, bottom = np.minimum(x + box_width, width - 1), np.minimum(y + box_height, height - 1)
    return np.stack([x, y, right, bottom], axis=1)


def _pairwise_ious(predicted: NDArray[np.int64], truth: NDArray[np.number]) -> NDArray[np.float64]:
    """IoU (p, t) of boxes whose far edges belong to them, hence the +1 of the tool."""
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
        raise InputError("score_maps", score_map.shape, "must be (H, W) each", "Give one map an image.")
    # NaN fails both comparisons, so the negation refuses it too.
    if not (score_map.min() >= 0 and score_map.max() <= 1):
        found = f"{score_map.min()} to {score_map.max()}"
        raise InputError("score_maps", found, "must lie in [0, 1]", "Normalise each map to it.")
    if true_boxes.ndim != 2 or true_boxes.shape[1] != 4 or len(true_boxes) == 0:
        raise InputError("boxes", true_boxes.shape, "must be (n, 4), n > 0", "Leave out images without box.")
    if (true_boxes[:, 2:] < true_boxes[:, :2]).any():
        raise InputError("boxes", true_boxes.tolist(), "must be x0 y0 x1 y1", "Turn widths into right edges.")
    if not iou_thresholds or not all(0 < iou <= 100 for iou in iou_thresholds):
        raise InputError("iou_thresholds", iou_thresholds, "must be per cent", "The usual are 30, 50, 70.")
