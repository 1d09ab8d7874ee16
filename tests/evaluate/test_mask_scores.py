"""CorLoc, and the measures of one system's soft masks together."""

from __future__ import annotations

import numpy as np
import pytest

from objectaware.data.masks import resize_mask
from objectaware.evaluate.corloc import is_correctly_localized, largest_region_box
from objectaware.evaluate.mask_scores import (
    MEASURES,
    MaskScores,
    center_map,
    foreground,
    resize_soft_mask,
    whole_pixels,
)

SIZE = 40


def _half() -> tuple[np.ndarray, np.ndarray]:
    """A true square, and its box."""
    truth = np.zeros((SIZE, SIZE), dtype=bool)
    truth[10:30, 10:30] = True
    return truth, np.array([[0.25, 0.25, 0.75, 0.75]])


def test_the_box_is_around_the_largest_region_without_margin() -> None:
    mask = np.zeros((20, 40), dtype=bool)
    mask[1:3, 1:30] = True
    mask[10:20, 20:30] = True
    np.testing.assert_allclose(largest_region_box(mask), [20 / 40, 10 / 20, 30 / 40, 1])
    np.testing.assert_allclose(largest_region_box(np.ones((3, 4), dtype=bool)), [0, 0, 1, 1])
    assert largest_region_box(np.zeros((3, 4), dtype=bool)) is None


def test_half_is_enough_and_any_true_box_counts() -> None:
    truth = np.array([[0.0, 0.0, 0.1, 0.1], [0.0, 0.0, 1.0, 1.0]])
    assert is_correctly_localized(np.array([0.0, 0.0, 0.5, 1.0]), truth)
    assert not is_correctly_localized(np.array([0.0, 0.0, 0.49, 1.0]), truth)
    assert not is_correctly_localized(None, truth)


def test_a_perfect_mask_has_everything() -> None:
    truth, boxes = _half()
    scores = MaskScores(SIZE)
    scores.add(truth.astype(np.float32), truth, boxes)
    result = scores.result()
    assert result.keys() == MEASURES.keys()
    assert (result["miou"], result["miou_1_255"], result["px_ap"], result["corloc"]) == (1, 1, 100, 100)
    assert result["max_box_acc_v2"] == 100
    assert (result["num_images"], result["num_missing"]) == (1, 0)


def test_both_thresholds_are_the_published_ones() -> None:
    truth, boxes = _half()
    soft = np.where(truth, 0.5, 0.0).astype(np.float32)
    soft[:10] = 1 / 255
    soft[30:] = 0.99 / 255
    scores = MaskScores(SIZE)
    scores.add(soft, truth, boxes)
    result = scores.result()
    assert result["miou"] == 0  # 0.5 is not above 0.5
    assert result["miou_1_255"] == pytest.approx(400 / 800)


def test_specks_do_not_count_and_a_full_mask_stays() -> None:
    soft = np.zeros((100, 100), dtype=np.float32)
    soft[5, 5:15], soft[50, 5:16] = 1, 1  # 0.1% of the picture, and a pixel more
    assert foreground(soft).sum() == 11
    assert foreground(soft, official=True).sum() == 11
    assert foreground(np.ones((100, 100), dtype=np.float32)).all()


def test_missing_masks_and_images_without_a_box() -> None:
    truth, boxes = _half()
    scores = MaskScores(SIZE)
    scores.add(None, truth, boxes)
    scores.add(truth.astype(np.float32), truth, boxes[:0])
    result = scores.result()
    assert (result["num_images"], result["num_missing"]) == (2, 1)
    assert result["miou"] == 0.5
    assert (result["corloc"], result["max_box_acc_v2"]) == (0, 0)  # of the one image with a box
    empty = MaskScores(SIZE)
    empty.add(None, np.zeros_like(truth), boxes[:0])
    assert np.isnan([empty.result()[name] for name in ("px_ap", "corloc", "max_box_acc_v2")]).all()
    assert empty.result()["miou"] == 1


def test_boxes_alone_have_no_measures_of_masks() -> None:
    truth, boxes = _half()
    scores = MaskScores(SIZE)
    scores.add(truth.astype(np.float32), None, boxes)
    result = scores.result()
    assert np.isnan([result[name] for name in ("miou", "miou_1_255", "px_ap")]).all()
    assert (result["max_box_acc_v2"], result["corloc"], result["num_images"]) == (100, 100, 1)


def test_ignored_pixels_count_neither_way() -> None:
    truth, boxes = _half()
    soft = truth.astype(np.float32)
    soft[:10] = 1  # 400 pixels too many
    truth[25:30, 10:30] = False  # 100 of 400 are not said to be true
    ignored = np.zeros_like(truth)
    scores = MaskScores(SIZE)
    scores.add(soft, truth, boxes, ignored)
    assert scores.result()["miou"] == pytest.approx(300 / 800)
    ignored[:10], ignored[25:30] = True, True
    scores = MaskScores(SIZE)
    scores.add(soft, truth, boxes, resize_mask(ignored, 2 * SIZE, 3 * SIZE))
    result = scores.result()
    assert (result["miou"], result["miou_1_255"], result["px_ap"]) == (1, 1, 100)


def test_edges_on_whole_pixels_stay_there() -> None:
    """wsolevaluation scales whole pixels before it divides: 51 of 102 is exactly the middle."""
    for width in range(50, 400, 7):
        pixels = np.arange(width, dtype=np.float64)
        relative = np.stack([pixels / width] * 4, axis=1)
        expected = (pixels * 224 / width).astype(int)
        np.testing.assert_array_equal(whole_pixels(relative, 224)[:, 0], expected)


def test_the_center_map_falls_off_with_the_distance_from_the_centre() -> None:
    soft = center_map(SIZE)
    assert soft.dtype == np.float32
    assert (soft.min(), soft[0, 0]) == (0, 0)
    assert soft.max() == soft[20, 20] == soft[19, 19] > 0.97
    np.testing.assert_allclose(soft, soft[::-1, ::-1].T, atol=1e-6)
    assert (np.diff(soft[20, 20:]) < 0).all()


def test_masks_of_any_size_are_compared_at_one() -> None:
    truth, boxes = _half()
    large = resize_mask(truth, 4 * SIZE, 3 * SIZE)
    scores = MaskScores(SIZE)
    scores.add(large.astype(np.float32), resize_mask(truth, SIZE, 2 * SIZE), boxes)
    assert scores.result()["miou"] == 1
    soft = np.tile(np.linspace(0, 1, 80, dtype=np.float32), (80, 1))
    assert resize_soft_mask(soft, SIZE).shape == (SIZE, SIZE)
    assert set(np.unique(resize_soft_mask(large.astype(np.float32), 33))) == {0.0, 1.0}
