"""MaxBoxAccV2 of Choe et al. (2020), as wsolevaluation measures it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import cv2
import numpy as np
from numpy.typing import NDArray

from objectaware.errors import InputError

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
    # A map has at most 256 values, and a nearly binary one a few: most of the 1000 thresholds share their boxes.
    values = np.append(np.unique(grey), 256)
    places, place_of_threshold = np.unique(np.searchsorted(values, levels, side="right"), return_inverse=True)
    best_ious = np.array([_best_iou(grey >= values[place], true_boxes, multi_contour) for place in places])
    required = np.array(iou_thresholds)[:, None] / 100
    return np.asarray(best_ious[place_of_threshold][None] >= required)


def _best_iou(foreground: NDArray[np.bool_], true_boxes: NDArray[np.number], multi_contour: bool) -> float:
    return float(_pairwise_ious(_predicted_boxes(foreground, multi_contour), true_boxes).max())


def _predicted_boxes(foreground: NDArray[np.bool_], multi_contour: bool) -> NDArray[np.int64]:
    """Boxes (n, 4) around the contours, holes included; their far edges stop at the last pixel."""
    height, width = foreground.shape
    contours, _ = cv2.findContours(foreground.view(np.uint8), cv2.RETR_TREE, cv2.CHAIN_APPROX_SIMPLE)
    if not contours:
        return np.zeros((1, 4), dtype=np.int64)
    if not multi_contour:
        contours = [max(contours, key=cv2.contourArea)]
    rectangles = np.array([cv2.boundingRect(contour) for contour in contours], dtype=np.int64)
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
