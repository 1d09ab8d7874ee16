"""Figures are PNGs that show what they were given."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image

from objectaware.report.figures import box_histogram, curves, scatter


def pixels(png: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(png)).convert("RGB"))


def test_each_series_is_a_curve_of_its_own_colour() -> None:
    one = pixels(curves({"baseline": ([1, 2, 3], [7.0, 6.5, 6.0])}, x_title="epoch", y_title="loss"))
    two = pixels(
        curves(
            {"baseline": ([1, 2, 3], [7.0, 6.5, 6.0]), "crops": ([1, 2], [6.0, 5.0])}, x_title="epoch", y_title="loss"
        )
    )
    assert one.shape == two.shape
    assert len(np.unique(two.reshape(-1, 3), axis=0)) > len(np.unique(one.reshape(-1, 3), axis=0))


def test_deviations_are_drawn() -> None:
    series = {"error": ([1, 2], [5.0, 6.0])}
    with_bars = pixels(curves(series, x_title="epoch", y_title="error", deviations={"error": [1.0, 2.0]}))
    assert not np.array_equal(with_bars, pixels(curves(series, x_title="epoch", y_title="error")))


def test_points_of_each_class_are_shown() -> None:
    both = pixels(scatter({"giraffe": [(0.0, 0.0)], "zebra": [(1.0, 1.0), (2.0, 0.0)]}))
    # The first two colours of matplotlib.
    for colour in ((31, 119, 180), (255, 127, 14)):
        assert (both == colour).all(axis=2).any()


def test_the_histogram_is_a_picture_with_and_without_truth() -> None:
    for png in (box_histogram({0: 1, 1: 2, 5: 1}, {1: 2, 2: 2}), box_histogram({2: 2}), box_histogram({})):
        assert Image.open(io.BytesIO(png)).size == (600, 400)


def test_counts_change_the_histogram() -> None:
    assert box_histogram({1: 2, 2: 1}) == box_histogram({2: 1, 1: 2})
    assert box_histogram({1: 2, 2: 1}) != box_histogram({1: 1, 2: 2})
