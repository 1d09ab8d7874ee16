import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from objectaware.augment.rectangle import largest_empty_rectangle, largest_empty_rectangles


def _brute_force_area(mask: np.ndarray) -> int:
    height, width = mask.shape
    best = 0
    for top in range(height):
        for bottom in range(top + 1, height + 1):
            for left in range(width):
                for right in range(left + 1, width + 1):
                    area = (bottom - top) * (right - left)
                    if area > best and not mask[top:bottom, left:right].any():
                        best = area
    return best


@settings(deadline=None, max_examples=80)
@given(arrays(np.bool_, st.tuples(st.integers(1, 7), st.integers(1, 7))))
def test_as_large_as_brute_force_finds_and_empty(mask: np.ndarray) -> None:
    rectangle = largest_empty_rectangle(mask)
    expected = _brute_force_area(mask)
    if rectangle is None:
        assert expected == 0
        return
    top, left, height, width = rectangle
    assert height * width == expected
    assert not mask[top : top + height, left : left + width].any()
    assert top >= 0
    assert left >= 0
    assert top + height <= mask.shape[0]
    assert left + width <= mask.shape[1]


def test_a_batch_finds_what_each_mask_alone_does() -> None:
    masks = np.random.default_rng(0).random((40, 13, 17)) < 0.15
    together = largest_empty_rectangles(masks)
    for mask, rectangle in zip(masks, together, strict=True):
        assert largest_empty_rectangle(mask) == tuple(rectangle)


def test_empty_and_full_masks() -> None:
    assert largest_empty_rectangle(np.zeros((5, 8), dtype=bool)) == (0, 0, 5, 8)
    assert largest_empty_rectangle(np.ones((5, 8), dtype=bool)) is None
