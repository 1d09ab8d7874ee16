from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from objectaware.errors import InputError
from objectaware.localize import dense_crf

GOLDEN = Path(__file__).parents[1] / "golden" / "crf_reference.npz"


def _picture(height: int, width: int, seed: int = 0) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def test_pydensecrf_is_reproduced_on_a_picture_that_is_not_square() -> None:
    with np.load(GOLDEN) as arrays:
        refined = dense_crf(arrays["image"], arrays["foreground_probability"])
        np.testing.assert_allclose(refined, arrays["q_foreground"], atol=1e-5)
    assert refined.dtype == np.float32


def test_views_that_are_not_contiguous_give_the_same() -> None:
    with np.load(GOLDEN) as arrays:
        image, foreground = arrays["image"], arrays["foreground_probability"].astype(np.float64)
    expected = dense_crf(image, foreground)
    np.testing.assert_array_equal(
        dense_crf(np.asfortranarray(image)[::-1][::-1], np.asfortranarray(foreground)), expected
    )


def test_read_only_pictures_are_taken_and_left_as_they_are() -> None:
    image, foreground = _picture(8, 12), np.full((8, 12), 0.3)
    expected, before = dense_crf(image, foreground), image.copy()
    image.setflags(write=False)
    foreground.setflags(write=False)
    np.testing.assert_array_equal(dense_crf(image, foreground), expected)
    np.testing.assert_array_equal(image, before)


@settings(max_examples=15, deadline=None)
@given(height=st.integers(1, 9), width=st.integers(1, 9), seed=st.integers(0, 99), num=st.integers(0, 3))
def test_without_pairwise_terms_the_probability_stays(height: int, width: int, seed: int, num: int) -> None:
    foreground = np.random.default_rng(seed).random((height, width))
    refined = dense_crf(_picture(height, width), foreground, num_iterations=num, gaussian_compat=0, bilateral_compat=0)
    np.testing.assert_allclose(refined, foreground, atol=1e-5)


def test_foreground_and_background_probabilities_sum_to_one() -> None:
    foreground = np.random.default_rng(3).random((12, 20)).astype(np.float32)
    image = _picture(12, 20)
    total = dense_crf(image, foreground) + dense_crf(image, 1 - foreground)
    np.testing.assert_allclose(total, 1, atol=1e-4)


def test_mask_snaps_to_the_edge_of_the_picture() -> None:
    image = np.full((40, 60, 3), 30, dtype=np.uint8)
    image[10:30, 15:45] = 220
    soft = np.full((40, 60), 0.2)
    soft[12:28, 20:40] = 0.8
    refined = dense_crf(image, soft, bilateral_sxy=20.0) > 0.5
    np.testing.assert_array_equal(refined, image[..., 0] > 128)


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_certain_masks_stay_finite(value: float) -> None:
    refined = dense_crf(_picture(8, 16), np.full((8, 16), value))
    np.testing.assert_allclose(refined, value, atol=1e-4)


@pytest.mark.parametrize(
    ("field", "arguments"),
    [
        ("image", {"image": np.zeros((4, 5), dtype=np.uint8)}),
        ("image", {"image": np.zeros((4, 5, 3), dtype=np.float32)}),
        ("image", {"image": np.zeros((0, 5, 3), dtype=np.uint8)}),
        ("foreground", {"foreground": np.zeros((5, 4))}),
        ("foreground", {"foreground": np.zeros((4, 5), dtype=np.uint8)}),
        ("foreground", {"foreground": np.full((4, 5), 1.5)}),
        ("foreground", {"foreground": np.full((4, 5), np.nan)}),
        ("num_iterations", {"num_iterations": -1}),
        ("gaussian_sxy", {"gaussian_sxy": 0.0}),
        ("bilateral_srgb", {"bilateral_srgb": -1.0}),
    ],
)
def test_wrong_arguments_are_named(field: str, arguments: dict[str, Any]) -> None:
    given_arguments = {
        "image": np.zeros((4, 5, 3), dtype=np.uint8),
        "foreground": np.zeros((4, 5)),
        **arguments,
    }
    with pytest.raises(InputError) as refusal:
        dense_crf(**given_arguments)
    assert refusal.value.field == field
