"""The cases of wsolevaluation's own `evaluation_test.py` (clovaai/wsolevaluation @6692538), asked of our functions.

Its cases on the files of CUB, ImageNet and OpenImages test its own metadata, which we do not read. Where they give
numbers (pixels in a mask, the area under the curve), a mask with as many pixels stands in for theirs. What it marks
to be ignored is left out of what our functions are given.
"""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from objectaware.errors import InputError
from objectaware.evaluate.mask_scores import (
    SCORE_THRESHOLDS,
    average_precision,
    box_hits,
    max_box_acc,
    pixel_histograms,
    whole_pixels,
)

# Pixels of foreground and background in the three masks of OpenImages; the rest of 224 × 224 is ignored.
PIXELS = [(43031, 7145), (833, 49342), (347, 13909)]
FIFTHS = np.arange(5) * 200
"""Places of 0, 0.2, … 0.8 among the thresholds."""


def _boxes_at_fifths(score_map: list[list[float]], candidates: list[list[int]]) -> list[list[int]]:
    """The candidate that the box is equal to at each of the five thresholds; one contour, the largest."""
    assert SCORE_THRESHOLDS[FIFTHS].tolist() == pytest.approx([0, 0.2, 0.4, 0.6, 0.8])
    exact = np.array(
        [
            box_hits(np.array(score_map), np.array([box]), iou_thresholds=(100,), multi_contour=False)[0, FIFTHS]
            for box in candidates
        ]
    )
    assert (exact.sum(axis=0) == 1).all(), exact
    return [candidates[place] for place in exact.argmax(axis=0)]


def test_iou_of_degenerate_boxes_is_one() -> None:
    """`calculate_multiple_iou_shape_type_degenerate_zero`: a box of one pixel, against five of the same."""
    assert box_hits(np.zeros((3, 3)), np.zeros((5, 4), dtype=int), iou_thresholds=(100,)).all()


def test_corners_the_wrong_way_round_are_refused() -> None:
    """`calculate_multiple_iou_box_convention`."""
    with pytest.raises(InputError, match="x0 y0 x1 y1"):
        box_hits(np.zeros((3, 3)), np.array([[1, 1, 0, 0]]))


def test_iou_of_two_boxes_with_each_other_is_the_identity() -> None:
    """`calculate_multiple_iou_eye_boxes`: boxes 1 1 3 3 and 4 4 5 5."""
    score_map = np.zeros((8, 8))
    score_map[1:3, 1:3] = score_map[4, 4] = 1.0
    for box, from_largest in (([1, 1, 3, 3], True), ([4, 4, 5, 5], False)):
        truth = np.array([box])
        assert box_hits(score_map, truth, iou_thresholds=(100,)).all()
        assert box_hits(score_map, truth, iou_thresholds=(1,), multi_contour=False).all() == from_largest


def test_iou_of_realistic_boxes() -> None:
    """`calculate_multiple_iou_realistic_values`: 1 2 5 6 and 3 1 4 5 share 8 of 27 pixels."""
    score_map = np.zeros((10, 10))
    score_map[2:6, 1:5] = 1.0
    found = max_box_acc([score_map], [np.array([[3, 1, 4, 5]])], iou_thresholds=(29, 30))
    assert found == {29: 100.0, 30: 0.0}


def test_boxes_are_cut_to_whole_pixels() -> None:
    """`resize_bbox_case`: 1 2 4 3 of 10 × 20 pixels is 3 1 14 1 of 35 × 10; ours are square, one axis at a time."""
    relative = np.array([[1 / 10, 2 / 20, 4 / 10, 3 / 20]])
    assert whole_pixels(relative, 35)[0, [0, 2]].tolist() == [3, 14]
    assert whole_pixels(relative, 10)[0, [1, 3]].tolist() == [1, 1]


def test_a_box_of_one_pixel_stays_one() -> None:
    """`resize_bbox_degenerate`."""
    assert whole_pixels(np.array([[1, 2, 1, 2]]) / 3, 3).tolist() == [[1, 2, 1, 2]]


def test_boxes_of_an_empty_map() -> None:
    """`compute_bboxes_from_scoremaps_degenerate`."""
    assert _boxes_at_fifths([[0.0] * 3] * 3, [[0, 0, 0, 0]]) == [[0, 0, 0, 0]] * 5


def test_boxes_of_a_map_with_one_peak() -> None:
    """`compute_bboxes_from_scoremaps_unimodal`."""
    score_map = [
        [0.0, 0.0, 0.0, 0.0, 0.0],
        [0.0, 0.4, 0.4, 0.4, 0.6],
        [0.0, 0.4, 1.0, 0.8, 0.6],
        [0.0, 0.4, 0.4, 0.4, 0.6],
    ]
    boxes = [[1, 1, 4, 3], [2, 1, 4, 3], [2, 2, 4, 3], [2, 2, 3, 3]]
    assert _boxes_at_fifths(score_map, boxes) == [boxes[place] for place in (0, 0, 1, 2, 3)]


def test_boxes_of_a_map_with_several_peaks() -> None:
    """`compute_bboxes_from_scoremaps_multimodal`."""
    score_map = [
        [0.4, 0.0, 0.2, 0.2, 0.2],
        [0.4, 0.4, 0.0, 0.4, 0.0],
        [0.0, 0.0, 0.0, 0.4, 0.0],
        [1.0, 0.6, 0.8, 0.2, 0.2],
    ]
    boxes = [[0, 0, 4, 3], [0, 0, 2, 2], [0, 3, 3, 3], [2, 3, 3, 3], [0, 3, 1, 3]]
    assert _boxes_at_fifths(score_map, boxes) == boxes


def test_a_map_of_nan_is_refused() -> None:
    """`compute_bboxes_from_scoremaps_nan` and `mask_evaluator_masks_nan_scoremap`."""
    score_map = np.full((3, 3), np.nan)
    with pytest.raises(InputError, match="score_maps"):
        box_hits(score_map, np.array([[0, 0, 1, 1]]))
    with pytest.raises(InputError, match="score_maps"):
        pixel_histograms(score_map, np.ones((3, 3), dtype=bool))


def _mask(pixels: tuple[int, int]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """That much foreground and background of 224 × 224, mixed, and the rest of it, which is ignored."""
    num_true, num_false = pixels
    kinds = np.repeat([1, 0, 255], [num_true, num_false, 224 * 224 - num_true - num_false])
    kinds = np.random.default_rng(0).permutation(kinds).reshape(224, 224)
    return kinds == 1, kinds == 255


@pytest.mark.parametrize("pixels", PIXELS)
@pytest.mark.parametrize("ignored_score", [0.0, 1.0])
def test_a_perfect_map_has_all_the_area(ignored_score: float, pixels: tuple[int, int]) -> None:
    """`mask_evaluator_masks_perfect_scoremap`."""
    mask, ignored = _mask(pixels)
    scores = np.where(ignored, ignored_score, mask.astype(np.float64))
    assert average_precision(pixel_histograms(scores, mask, ignored)) == 100.0


@pytest.mark.parametrize("pixels", PIXELS)
@pytest.mark.parametrize("value", [0.0, 0.5, 1.0])
def test_a_constant_map_has_the_share_of_the_foreground(value: float, pixels: tuple[int, int]) -> None:
    """`mask_evaluator_masks_{zero,half,one}_scoremap_mask{0,1,2}`."""
    mask, ignored = _mask(pixels)
    histograms = pixel_histograms(np.full(mask.shape, value), mask, ignored)
    assert average_precision(histograms) == pytest.approx(100 * pixels[0] / sum(pixels))


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_a_truth_of_one_kind_of_pixel(value: float) -> None:
    """`mask_evaluator_masks_{zero,one}_scoremap_{zero,one}_gt`."""
    scores = np.full((4, 5), value)
    with pytest.raises(InputError, match="no true pixel"):
        average_precision(pixel_histograms(scores, np.zeros((4, 5), dtype=bool)))
    assert average_precision(pixel_histograms(scores, np.ones((4, 5), dtype=bool))) == pytest.approx(100)
