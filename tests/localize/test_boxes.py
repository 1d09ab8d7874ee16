from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from objectaware.errors import InputError
from objectaware.localize import extract_boxes

GOLDEN = Path(__file__).parents[1] / "golden" / "boxes_reference.npz"


def _rectangle(x: int, y: int, width: int, height: int) -> NDArray[np.bool_]:
    mask = np.zeros((224, 224), dtype=bool)
    mask[y : y + height, x : x + width] = True
    return mask


def test_official_boxes_are_reproduced_in_their_order() -> None:
    with np.load(GOLDEN) as arrays:
        masks, expected = arrays["soft_masks_uint8"] / 255, arrays["boxes"]
    found = [(index, *box) for index, mask in enumerate(masks) for box in extract_boxes(mask, compat="official")]
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_margin_is_a_fifth_of_the_side_on_each_side() -> None:
    boxes = extract_boxes(_rectangle(50, 50, 100, 60))
    assert boxes.dtype == np.float32
    np.testing.assert_allclose(boxes * 224, [[30, 38, 170, 122]], atol=1e-4)


def test_margin_is_clipped_at_the_border_and_may_be_none() -> None:
    np.testing.assert_allclose(extract_boxes(_rectangle(0, 0, 224, 100)), [[0, 0, 1, 120 / 224]], atol=1e-6)
    exact = extract_boxes(_rectangle(10, 20, 100, 50), margin=0.0)
    np.testing.assert_allclose(exact * 224, [[10, 20, 110, 70]], atol=1e-4)


def test_boxes_are_relative_to_width_and_height_of_any_picture() -> None:
    mask = np.zeros((50, 200), dtype=bool)
    mask[10:20, 40:80] = True
    np.testing.assert_allclose(extract_boxes(mask, margin=0.0), [[0.2, 0.2, 0.4, 0.4]], atol=1e-6)


def test_hole_of_a_ring_gives_a_box_under_compat_only() -> None:
    ring = _rectangle(40, 40, 140, 140) & ~_rectangle(80, 80, 60, 60)
    assert len(extract_boxes(ring)) == 1
    assert len(extract_boxes(ring, compat="official")) == 2


def test_threshold_is_relative_to_the_maximum_and_strict() -> None:
    soft = np.zeros((100, 100))
    soft[10:60, 10:60] = 0.2
    soft[20:40, 20:40] = 0.4
    np.testing.assert_allclose(extract_boxes(soft, margin=0.0) * 100, [[20, 20, 40, 40]], atol=1e-4)
    np.testing.assert_allclose(extract_boxes(soft, threshold=0.4, margin=0.0) * 100, [[10, 10, 60, 60]], atol=1e-4)


def test_small_boxes_go_before_the_margin_is_added() -> None:
    mask = np.zeros((100, 100), dtype=bool)
    mask[5:15, 5:15] = True
    assert extract_boxes(mask).shape == (0, 4)
    mask[5:15, 15] = True
    assert len(extract_boxes(mask)) == 1
    assert len(extract_boxes(mask, min_area=0.02)) == 0


@pytest.mark.parametrize("dtype", [bool, np.float32])
def test_empty_masks_have_no_box_and_full_masks_one(dtype: type) -> None:
    empty = extract_boxes(np.zeros((30, 40), dtype=dtype))
    assert empty.shape == (0, 4)
    assert empty.dtype == np.float32
    np.testing.assert_array_equal(extract_boxes(np.ones((30, 40), dtype=dtype)), [[0, 0, 1, 1]])


@given(
    x=st.integers(0, 150), y=st.integers(0, 150), width=st.integers(25, 74), height=st.integers(25, 74),
    margin=st.floats(0, 2),
)  # fmt: skip
def test_box_lies_in_the_picture_and_holds_its_region(x: int, y: int, width: int, height: int, margin: float) -> None:
    ((left, top, right, bottom),) = extract_boxes(_rectangle(x, y, width, height), margin=margin) * 224
    tolerance = 1e-4
    assert -tolerance <= left <= x + tolerance
    assert -tolerance <= top <= y + tolerance
    assert x + width - tolerance <= right <= 224 + tolerance
    assert y + height - tolerance <= bottom <= 224 + tolerance


@pytest.mark.parametrize(
    ("field", "arguments"),
    [
        ("mask", {"mask": np.zeros((2, 4, 4))}),
        ("mask", {"mask": np.zeros((4, 4), dtype=np.uint8)}),
        ("threshold", {"threshold": 1.0}),
        ("min_area", {"min_area": -0.1}),
        ("margin", {"margin": -0.2}),
        ("compat", {"compat": "tree"}),
    ],
)
def test_wrong_arguments_are_named(field: str, arguments: dict[str, Any]) -> None:
    with pytest.raises(InputError) as refusal:
        extract_boxes(**{"mask": np.zeros((4, 4)), **arguments})
    assert refusal.value.field == field
