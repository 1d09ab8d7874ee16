from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from objectaware.errors import InputError
from objectaware.localize import keep_large_components


def test_specks_go_and_objects_stay() -> None:
    mask = np.zeros((100, 100), dtype=bool)
    mask[10:40, 10:40] = True
    expected = mask.copy()
    mask[70:73, 70:73] = True
    np.testing.assert_array_equal(keep_large_components(mask, min_area=0.01), expected)
    np.testing.assert_array_equal(keep_large_components(mask, min_area=0.0), mask)


def test_a_component_of_exactly_the_area_goes() -> None:
    mask = np.zeros((100, 100), dtype=bool)
    mask[:10, :10] = True
    assert not keep_large_components(mask, min_area=0.01).any()
    mask[10, 0] = True
    assert np.count_nonzero(keep_large_components(mask, min_area=0.01)) == 101


def test_touching_corners_do_not_connect() -> None:
    mask = np.zeros((10, 10), dtype=bool)
    mask[:5, :5] = True
    mask[5:8, 5:8] = True
    assert np.count_nonzero(keep_large_components(mask, min_area=0.1)) == 25


def test_masks_that_fill_the_picture_or_all_but_a_speck_stay() -> None:
    full = np.ones((64, 48), dtype=bool)
    np.testing.assert_array_equal(keep_large_components(full, min_area=0.001), full)
    nearly = full.copy()
    nearly[0, 0] = False
    np.testing.assert_array_equal(keep_large_components(nearly, min_area=0.001), nearly)
    nearly[:, 0] = False
    np.testing.assert_array_equal(keep_large_components(nearly, min_area=0.001), nearly)


def test_an_empty_mask_stays_empty() -> None:
    assert not keep_large_components(np.zeros((5, 7), dtype=bool), min_area=0.0).any()


@given(mask=arrays(bool, (9, 11)), min_area=st.sampled_from([0.0, 0.02, 0.1, 0.5]))
def test_cleaning_only_removes_and_is_idempotent(mask: np.ndarray, min_area: float) -> None:
    cleaned = keep_large_components(mask, min_area=min_area)
    assert cleaned.dtype == bool
    assert not (cleaned & ~mask).any()
    np.testing.assert_array_equal(keep_large_components(cleaned, min_area=min_area), cleaned)
    if min_area == 0:
        np.testing.assert_array_equal(cleaned, mask)


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(InputError, match="mask"):
        keep_large_components(np.zeros((4, 4), dtype=np.uint8), min_area=0.1)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="min_area"):
        keep_large_components(np.zeros((4, 4), dtype=bool), min_area=1.0)
