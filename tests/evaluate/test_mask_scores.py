"""CorLoc, and the measures of one system's soft masks together."""

from __future__ import annotations

import numpy as np
import pytest

from objectaware.data.masks import resize_mask
from objectaware.evaluate.corloc import is_correctly_localized, largest_region_box
from objectaware.evaluate.mask_scores import MEASURES, MaskScores, foreground, resize_soft_mask

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


def test_masks_of_any_size_are_compared_at_one() -> None:
    truth, boxes = _half()
    large = resize_mask(truth, 4 * SIZE, 3 * SIZE)
    scores = MaskScores(SIZE)
    scores.add(large.astype(np.float32), resize_mask(truth, SIZE, 2 * SIZE), boxes)
    assert scores.result()["miou"] == 1
    soft = np.tile(np.linspace(0, 1, 80, dtype=np.float32), (80, 1))
    assert resize_soft_mask(soft, SIZE).shape == (SIZE, SIZE)
    assert set(np.unique(resize_soft_mask(large.astype(np.float32), 33))) == {0.0, 1.0}
