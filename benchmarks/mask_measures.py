"""Measures of masks and boxes beside plain loops: MaxBoxAccV2, mask mIoU and boxes of masks.

MaxBoxAccV2's loop goes over all 1000 thresholds and draws the contours at each, as wsolevaluation's does; mIoU's goes
image by image through NumPy; boxes are those of SciPy's labelled regions. Results are checked to be equal. Asked:
MaxBoxAccV2 in at most a fifth of the loop's time.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import cv2
import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from harness import Result, compare, computing_in_turn, exit_status, parser, write_results
from inputs import blob_masks
from objectaware.evaluate.mask_scores import SCORE_THRESHOLDS, mask_miou, max_box_acc
from objectaware.localize.objects import extract_boxes
from objectaware.planning.measure import soft_masks

_LIMIT = 1 / 5
_IOUS = (30, 50, 70)

Call = Callable[[], object]


def main(arguments: Sequence[str]) -> int:
    """Measures and writes the result."""
    options = parser(__doc__, "mask_measures")
    options.add_argument("--masks", type=int, default=64)
    options.add_argument("--image-size", type=int, default=224)
    given = options.parse_args(arguments)
    if given.quick:
        given.masks, given.image_size, given.pairs = 2, 64, 1
    cv2.setNumThreads(1)
    results = measure(given.masks, given.image_size, given.pairs)
    write_results(given.out, results)
    return exit_status(results)


def measure(number: int, size: int, num_pairs: int) -> list[Result]:
    """Each measure on the same masks, as often as asked."""
    results = []
    for name, ours, theirs, limit in measures(number, size):
        _check_equal(ours(), theirs())
        values = computing_in_turn(ours, theirs, num_pairs)
        case = f"{name} of {number} masks of {size}, beside a plain loop"
        results.append(compare(case, *values, unit="s of one core", at_most=limit))
    return results


def measures(number: int, size: int) -> Iterator[tuple[str, Call, Call, float | None]]:
    """Name of each measure, ours, the plain loop, and what is asked."""
    maps, noise = blob_masks(number, size), soft_masks(number, size)
    corners = np.sort(np.random.default_rng(1).integers(0, size, (number, 2, 2)), axis=1)
    boxes = [np.array([[x0, y0, x1, y1]]) for (x0, y0), (x1, y1) in corners]
    predicted, truth = maps > 0.5, np.roll(maps, 9, axis=2) > 0.5

    def box_acc(scores: NDArray[np.float32]) -> tuple[Call, Call, float]:
        ours = partial(max_box_acc, scores, boxes, iou_thresholds=_IOUS)
        return ours, partial(loop_box_acc, scores, boxes), _LIMIT

    yield "MaxBoxAccV2", *box_acc(maps)
    yield "MaxBoxAccV2, maps of noise,", *box_acc(noise)
    yield "mask mIoU", partial(mask_miou, predicted, truth), partial(loop_miou, predicted, truth), None
    yield (
        "boxes of masks",
        lambda: [extract_boxes(mask, margin=0.0) for mask in predicted],
        lambda: [labelled_boxes(mask) for mask in predicted],
        None,
    )


def loop_box_acc(maps: NDArray[np.float32], boxes: Sequence[NDArray[np.int64]]) -> dict[int, float]:
    """MaxBoxAccV2's definition, threshold by threshold: contours, a box each, the best IoU with a true box."""
    hits = {iou: np.zeros(len(SCORE_THRESHOLDS)) for iou in _IOUS}
    for score_map, true_boxes in zip(maps, boxes, strict=True):
        grey = (score_map * 255).astype(np.uint8)
        for place, threshold in enumerate(SCORE_THRESHOLDS):
            _, binary = cv2.threshold(grey, int(threshold * grey.max()), 255, cv2.THRESH_BINARY)
            contours, _ = cv2.findContours(binary, cv2.RETR_TREE, cv2.CHAIN_APPROX_SIMPLE)
            best = max((_best_iou(contour, true_boxes, grey.shape) for contour in contours), default=0.0)
            for iou in _IOUS:
                hits[iou][place] += best >= iou / 100
    return {iou: float(count.max() * 100 / len(maps)) for iou, count in hits.items()}


def _best_iou(contour: cv2.typing.MatLike, true_boxes: NDArray[np.int64], shape: tuple[int, ...]) -> float:
    x, y, width, height = cv2.boundingRect(contour)
    x1, y1 = min(x + width, shape[1] - 1), min(y + height, shape[0] - 1)
    best = 0.0
    for left, top, right, bottom in true_boxes:
        inner = max(min(x1, right) - max(x, left) + 1, 0) * max(min(y1, bottom) - max(y, top) + 1, 0)
        union = (x1 - x + 1) * (y1 - y + 1) + (right - left + 1) * (bottom - top + 1) - inner
        best = max(best, inner / union)
    return float(best)


def loop_miou(predicted: NDArray[np.bool_], truth: NDArray[np.bool_]) -> float:
    """Mean over the images of intersection over union."""
    ious = []
    for one, other in zip(predicted, truth, strict=True):
        union = np.logical_or(one, other).sum()
        ious.append(np.logical_and(one, other).sum() / union if union else 1.0)
    return float(np.mean(ious))


def labelled_boxes(mask: NDArray[np.bool_]) -> NDArray[np.float32]:
    """Relative boxes of the 8-connected regions that cover more than 1% of the picture with their box."""
    labels, _ = ndimage.label(mask, structure=np.ones((3, 3)))
    boxes = []
    for rows, columns in ndimage.find_objects(labels):
        if (rows.stop - rows.start) * (columns.stop - columns.start) > 0.01 * mask.size:
            boxes.append((columns.start, rows.start, columns.stop, rows.stop))
    height, width = mask.shape
    return (np.array(boxes).reshape(-1, 4) / (width, height, width, height)).astype(np.float32)


def _check_equal(ours: object, theirs: object) -> None:
    if isinstance(ours, dict):
        assert ours == theirs, (ours, theirs)
    elif isinstance(ours, float):
        assert abs(ours - float(str(theirs))) < 1e-6, (ours, theirs)
    else:
        for one, other in zip(list(ours), list(theirs), strict=True):  # type: ignore[call-overload]
            assert np.allclose(sorted(one.tolist()), sorted(other.tolist()), atol=1e-6), (one, other)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
