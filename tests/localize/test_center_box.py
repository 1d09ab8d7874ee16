from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from objectaware.errors import InputError
from objectaware.localize.center_box import center_box


def test_center_box_has_the_fraction_of_both_sides_and_is_centred() -> None:
    mask = center_box(10, 20, 0.5)
    rows, columns = np.nonzero(mask)
    assert (rows.min(), rows.max(), columns.min(), columns.max()) == (2, 6, 5, 14)
    assert np.count_nonzero(mask) == 5 * 10


@given(height=st.integers(1, 40), width=st.integers(1, 40), fraction=st.floats(0.001, 1.0))
def test_center_box_is_never_empty_and_off_centre_by_a_pixel_at_most(height: int, width: int, fraction: float) -> None:
    mask = center_box(height, width, fraction)
    assert mask.shape == (height, width)
    for axis, side in ((1, height), (0, width)):
        (inside,) = np.nonzero(mask.any(axis=axis))
        assert abs(inside[0] - (side - 1 - inside[-1])) <= 1


def test_the_whole_picture_is_a_center_box() -> None:
    assert center_box(3, 5, 1.0).all()


@pytest.mark.parametrize("fraction", [0.0, 1.01, float("nan")])
def test_other_fractions_are_refused(fraction: float) -> None:
    with pytest.raises(InputError, match="side_fraction"):
        center_box(4, 4, fraction)
