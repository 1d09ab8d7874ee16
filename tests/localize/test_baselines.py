"""Maps that look at no picture, or at its contrast alone, and their CRF."""

from __future__ import annotations

import numpy as np
import pytest

from objectaware.errors import InputError
from objectaware.localize.baselines import center_map, contrast_map, refined_baseline
from objectaware.localize.center_box import center_box
from objectaware.localize.objects import dense_crf

SIZE = 40


def _disc() -> tuple[np.ndarray, np.ndarray]:
    """A bright disc on dark ground, and its mask."""
    rows, columns = np.mgrid[:SIZE, :SIZE]
    mask = np.hypot(rows - 22, columns - 17) < 12
    return np.where(mask[..., None], (200, 90, 40), (20, 40, 60)).astype(np.uint8), mask


def test_the_center_map_falls_off_with_the_distance_from_the_centre() -> None:
    soft = center_map(SIZE)
    assert soft.dtype == np.float32
    assert (soft.min(), soft[0, 0]) == (0, 0)
    assert soft.max() == soft[20, 20] == soft[19, 19] > 0.97
    np.testing.assert_allclose(soft, soft[::-1, ::-1].T, atol=1e-6)
    assert (np.diff(soft[20, 20:]) < 0).all()


@pytest.mark.parametrize("window", [3, 5, 13])
def test_contrast_is_the_deviation_of_grey_around_each_pixel(window: int) -> None:
    """Pixel by pixel, with the picture mirrored at its border pixels."""
    image = np.random.default_rng(0).integers(0, 256, (9, 7, 3), dtype=np.uint8)
    grey = np.rint(image @ np.array([0.299, 0.587, 0.114]))
    half = window // 2
    mirrored = np.pad(grey, half, mode="reflect")
    expected = np.array([[mirrored[y : y + window, x : x + window].std() for x in range(7)] for y in range(9)])
    expected = (expected - expected.min()) / (expected.max() - expected.min())
    np.testing.assert_allclose(contrast_map(image, window=window), expected, atol=0.02)


def test_the_window_grows_with_the_picture() -> None:
    image = np.random.default_rng(1).integers(0, 256, (128, 140, 3), dtype=np.uint8)
    np.testing.assert_array_equal(contrast_map(image), contrast_map(image, window=25))
    np.testing.assert_array_equal(contrast_map(image[:64]), contrast_map(image[:64], window=13))
    assert not np.array_equal(contrast_map(image), contrast_map(image, window=23))


@pytest.mark.parametrize("level", [0, 77, 255])
def test_a_picture_of_one_colour_has_no_contrast(level: int) -> None:
    assert not contrast_map(np.full((30, 50, 3), level, dtype=np.uint8)).any()


@pytest.mark.parametrize("window", [0, 4, -3, 99])
def test_windows_without_a_middle_or_larger_than_the_picture_are_refused(window: int) -> None:
    with pytest.raises(InputError, match="must be odd"):
        contrast_map(np.zeros((20, 30, 3), dtype=np.uint8), window=window)


def test_other_pictures_are_refused() -> None:
    with pytest.raises(InputError, match="must be uint8"):
        contrast_map(np.zeros((20, 30, 3), dtype=np.float32))


def test_soft_baselines_go_through_the_crf_of_localization() -> None:
    image, mask = _disc()
    soft = center_map(SIZE)
    refined = refined_baseline(image, soft)
    np.testing.assert_array_equal(refined, dense_crf(image, soft))
    assert ((refined > 0.5) == mask).mean() > 0.95 > ((soft > 0.5) == mask).mean()


def test_the_crf_moves_the_edges_of_a_box() -> None:
    """At 0 and 1, as a localizer gives it, the box would stay as it is."""
    image, mask = _disc()
    box = center_box(SIZE, SIZE, 0.5)
    np.testing.assert_array_equal(dense_crf(image, box.astype(np.float32)) > 0.5, box)
    refined = refined_baseline(image, box.astype(np.float32)) > 0.5
    assert (refined == mask).mean() > 0.95 > (box == mask).mean()


def test_the_full_picture_and_the_empty_map_stay() -> None:
    image, _ = _disc()
    full = np.ones((SIZE, SIZE), dtype=np.float32)
    # Without the short cut, the CRF leaves it full, too.
    assert (dense_crf(image, 0.7 * full) > 0.5).all()
    np.testing.assert_array_equal(refined_baseline(image, full), full)
    assert not refined_baseline(image, np.zeros((SIZE, SIZE), dtype=np.float32)).any()
