from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from objectaware.errors import InputError
from objectaware.evaluate import mask_miou
from objectaware.evaluate.localization import best_center_box, binarise, box_count_histogram, mask_ious
from objectaware.localize.center_box import center_box

BATCH = arrays(bool, (3, 5, 4))


def _four_cases() -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Identical, disjoint, both empty, half overlapping."""
    predicted, truth = np.zeros((4, 6, 8), dtype=bool), np.zeros((4, 6, 8), dtype=bool)
    predicted[0, 1:4, 2:5] = truth[0, 1:4, 2:5] = True
    predicted[1, :, :4] = truth[1, :, 4:] = True
    predicted[3, :, 0:4] = truth[3, :, 2:6] = True
    return predicted, truth


def test_iou_identities() -> None:
    predicted, truth = _four_cases()
    np.testing.assert_allclose(mask_ious(predicted, truth), [1, 0, 1, 1 / 3])


def test_miou_is_the_mean_of_the_images_not_of_the_pixels() -> None:
    predicted, truth = _four_cases()
    assert mask_miou(predicted, truth) == pytest.approx((1 + 0 + 1 + 1 / 3) / 4)


def test_background_does_not_count() -> None:
    predicted, truth = np.zeros((1, 50, 50), dtype=bool), np.zeros((1, 50, 50), dtype=bool)
    predicted[0, 0, 0] = truth[0, 0, 1] = True
    assert mask_miou(predicted, truth) == 0
    assert mask_miou(np.zeros_like(truth), truth) == 0


@given(predicted=BATCH, truth=BATCH)
def test_iou_is_symmetric_and_in_the_unit_interval(predicted: NDArray[np.bool_], truth: NDArray[np.bool_]) -> None:
    ious = mask_ious(predicted, truth)
    assert ious.shape == (3,)
    assert ((ious >= 0) & (ious <= 1)).all()
    np.testing.assert_array_equal(ious, mask_ious(truth, predicted))
    np.testing.assert_array_equal(mask_ious(truth, truth), 1)


def test_binarise_is_strict_and_half_by_default() -> None:
    soft = np.array([0.0, 1 / 255, 0.5, 0.51, 1.0])
    assert binarise(soft).tolist() == [False, False, False, True, True]
    assert binarise(soft, 0.0).tolist() == [False, True, True, True, True]
    with pytest.raises(InputError, match="threshold"):
        binarise(soft, 1.0)


@settings(max_examples=25, deadline=None)
@given(truth=arrays(bool, (3, 7, 9)), num_sides=st.integers(1, 12))
def test_best_center_box_equals_trying_each(truth: NDArray[np.bool_], num_sides: int) -> None:
    fraction, miou = best_center_box(truth, num_sides)
    tried = {
        side / num_sides: mask_miou(np.stack([center_box(7, 9, side / num_sides)] * 3), truth)
        for side in range(1, num_sides + 1)
    }
    assert miou == pytest.approx(max(tried.values()))
    assert tried[fraction] == pytest.approx(miou)


def test_best_center_box_recovers_the_box_in_pictures_of_several_sizes() -> None:
    fraction, miou = best_center_box([center_box(100, 50, 0.4), center_box(20, 80, 0.4)])
    assert fraction == pytest.approx(0.4)
    assert miou == 1


def test_box_counts_are_listed_without_gaps() -> None:
    assert box_count_histogram([0, 3, 1, 3]) == {0: 1, 1: 1, 2: 0, 3: 2}
    assert box_count_histogram([2]) == {0: 0, 1: 0, 2: 1}
    assert box_count_histogram([]) == {}


def test_wrong_masks_are_refused() -> None:
    boolean = np.zeros((2, 4, 4), dtype=bool)
    with pytest.raises(InputError, match="predicted"):
        mask_miou(boolean.astype(np.float32), boolean)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="truth"):
        mask_miou(boolean, boolean[0])
    with pytest.raises(InputError, match="one size"):
        mask_miou(boolean, boolean[:, :3])
    with pytest.raises(InputError, match="no mask"):
        mask_miou(boolean[:0], boolean[:0])
    with pytest.raises(InputError, match="no mask"):
        best_center_box([])
