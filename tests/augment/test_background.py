"""The official code's backgrounds, with its inaccuracies."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from objectaware.augment.background import (
    background_only,
    cut_background,
    foreground_bounds,
    largest_empty_rectangle,
    largest_empty_rectangles,
    mix_background,
    strip_background,
    tile,
)


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


def _image(seed: int, height: int = 12, width: int = 16) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def test_a_full_mask_keeps_the_image_and_an_empty_one_gives_the_background() -> None:
    image, background = _image(0), _image(1)
    assert np.array_equal(mix_background(image, np.full((12, 16), 255, dtype=np.uint8), background), image)
    assert np.array_equal(mix_background(image, np.zeros((12, 16), dtype=np.uint8), background), background)


@given(arrays(np.uint8, (12, 16)))
def test_a_mix_lies_between_its_ends_and_follows_equation_4(mask: np.ndarray) -> None:
    image, background = _image(0), _image(1)
    mixed = mix_background(image, mask, background)
    assert (mixed >= np.minimum(image, background)).all()
    assert (mixed <= np.maximum(image, background)).all()
    weight = mask[..., None] / 255
    exact = weight * image + (1 - weight) * background
    assert np.abs(mixed - exact).max() <= 0.5 + 1e-9


def test_the_background_is_the_largest_rectangle_tiled_over_the_whole_image() -> None:
    image = _image(2)
    mask = np.zeros((12, 16), dtype=np.float32)
    mask[:, 6:] = 1.0
    mask[10:, :] = 0.3
    background = background_only(image, mask, threshold=0.2)
    assert background is not None
    patch = image[:10, :6]
    assert np.array_equal(background[:10, :6], patch)
    assert np.array_equal(background, np.tile(patch, (2, 3, 1))[:12, :16])


def test_the_threshold_decides_what_is_background() -> None:
    image = _image(3)
    mask = np.full((12, 16), 0.3, dtype=np.float32)
    assert background_only(image, mask, threshold=0.2) is None
    everything = background_only(image, mask, threshold=0.5)
    assert everything is not None
    assert np.array_equal(everything, image)


def test_a_patch_cut_at_a_masks_resolution_holds_no_foreground() -> None:
    """Rounded outwards, the patch would take a row of the object along."""
    image = np.zeros((50, 50, 3), dtype=np.uint8)
    mask = np.zeros((7, 7), dtype=bool)
    mask[3:, :] = True
    truth = np.kron(mask, np.ones((50, 50), dtype=bool))[::7, ::7][:50, :50]
    image[truth] = 255
    patch = cut_background(image, (0, 0, 3, 7), 7, 7)
    assert patch.shape[0] >= 20
    assert not patch.any()


@given(st.integers(0, 40), st.integers(0, 40), st.integers(1, 30), st.integers(1, 30))
def test_a_window_of_the_tiling_is_that_part_of_the_whole(top: int, left: int, height: int, width: int) -> None:
    patch = _image(4, 5, 7)
    whole = tile(patch, slice(0, 80), slice(0, 80))
    window = tile(patch, slice(top, top + height), slice(left, left + width))
    assert np.array_equal(window, whole[top : top + height, left : left + width])


def _picture(height: int, width: int) -> torch.Tensor:
    """Channel 0 is the row, channel 1 the column."""
    rows, columns = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    return torch.stack([rows, columns, torch.zeros_like(rows)]).float()


def test_seven_of_fifteen_object_pixels_survive() -> None:
    """official-implementation §2: the paste leaves out the last row and column of the object's box."""
    foreground = torch.zeros(20, 12, dtype=torch.bool)
    foreground[12:15, 4:9] = True
    (bounds,) = foreground_bounds(foreground[None])
    assert bounds == (12, 14, 4, 8)
    picture = torch.where(foreground, 1.0, 0.0).expand(3, -1, -1)
    assert strip_background(picture, bounds)[0].sum() == 7


def test_the_strip_above_is_tiled_over_the_picture_and_seen_in_the_box() -> None:
    covered = strip_background(_picture(20, 12), (12, 14, 4, 8))
    assert covered[0, 12:14, 4:8].tolist() == [[0.0] * 4, [1.0] * 4]  # 12 rows repeat from row 12 on
    assert covered[1, 12:14, 4:8].tolist() == [[4.0, 5.0, 6.0, 7.0]] * 2


def test_the_strip_to_the_left() -> None:
    covered = strip_background(_picture(12, 20), (4, 8, 12, 14))
    assert covered[0, 4:8, 12].tolist() == [4.0, 5.0, 6.0, 7.0]
    assert covered[1, 4, 12:14].tolist() == [0.0, 1.0]


def test_the_strip_to_the_right_begins_with_the_objects_last_column() -> None:
    covered = strip_background(_picture(10, 20), (0, 9, 2, 5))
    # Columns 5 to 19, fifteen of them, from column 0 on.
    assert covered[1, 0, 2:5].tolist() == [7.0, 8.0, 9.0]
    pictured = strip_background(_picture(10, 20), (0, 9, 0, 5))
    assert pictured[1, 0, 0:5].tolist() == [5.0, 6.0, 7.0, 8.0, 9.0]


def test_the_strip_below_begins_with_the_objects_last_row() -> None:
    covered = strip_background(_picture(20, 10), (0, 5, 0, 9))
    assert covered[0, 0:5, 0].tolist() == [5.0, 6.0, 7.0, 8.0, 9.0]
    assert covered[0, 5, 0] == 5


@settings(deadline=None)
@given(st.integers(0, 9), st.integers(0, 9), st.integers(0, 11), st.integers(0, 11))
def test_outside_the_box_nothing_changes(y0: int, y1: int, x0: int, x1: int) -> None:
    foreground = torch.zeros(1, 10, 12, dtype=torch.bool)
    foreground[0, min(y0, y1), min(x0, x1)] = foreground[0, max(y0, y1), max(x0, x1)] = True
    (bounds,) = foreground_bounds(foreground)
    if {y0, y1} == {0, 9} and {x0, x1} == {0, 11}:
        assert bounds is None
        return
    assert bounds == (min(y0, y1), max(y0, y1), min(x0, x1), max(x0, x1))
    picture = _picture(10, 12)
    covered = strip_background(picture, bounds)
    inside = torch.zeros(10, 12, dtype=torch.bool)
    inside[bounds[0] : bounds[1], bounds[2] : bounds[3]] = True
    assert torch.equal(covered[:, ~inside], picture[:, ~inside])


def test_empty_and_spanning_masks_have_no_bounds() -> None:
    masks = torch.zeros(3, 6, 6, dtype=torch.bool)
    masks[1] = True
    masks[2, 1:, :] = True
    assert foreground_bounds(masks) == [None, None, (1, 5, 0, 5)]
