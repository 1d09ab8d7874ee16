"""Figures are PNGs that show what they were given."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image

from objectaware.report.figures import Tile, box_histogram, curves, iteration_panel, scatter, tiles_png


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


def test_a_tile_shows_its_picture_with_heat_and_boxes() -> None:
    grey = np.full((40, 60), 128, np.uint8)
    plain = pixels(tiles_png([[Tile(grey)]]))
    assert (plain == 128).all(axis=2).mean() > 0.3
    left = np.zeros((4, 6), np.float32)
    left[:, :3] = 1
    heated = pixels(tiles_png([[Tile(grey, heat=left)]])).astype(int)
    hot, cold = np.split(heated[:, 10:-10], 2, axis=1)
    assert hot[..., 0].mean() > cold[..., 0].mean()
    assert hot[..., 2].mean() < cold[..., 2].mean()
    boxed = pixels(tiles_png([[Tile(grey, boxes=np.array([[0.5, 0.25, 0.9, 0.75]]))]]))
    is_red = (boxed == (255, 0, 0)).all(axis=2)
    assert is_red.sum() > 50
    assert not is_red[:, : boxed.shape[1] // 2 - 5].any()


def test_rows_of_tiles_may_differ_in_their_number() -> None:
    black = Tile(np.zeros((8, 8), np.uint8))
    picture = pixels(tiles_png([[black, black], [black]]))
    upper, lower = np.split(picture[: picture.shape[0] // 2 * 2], 2)
    assert (upper == 0).all(axis=2).sum() == 2 * (lower == 0).all(axis=2).sum()


def test_the_iterations_stand_between_the_photo_and_their_maximum() -> None:
    cams = np.zeros((2, 1, 8, 8), np.uint8)
    cams[0, :, :4], cams[1, :, 4:] = 255, 255
    panel = pixels(iteration_panel([np.full((16, 16, 3), 255, np.uint8)], cams, ["a.png"])).astype(int)
    photo, first, second, mask = np.array_split(panel[30:], 4, axis=1)
    assert (photo == 255).all(axis=2).mean() > 0.9
    # Blue is cold, red is hot.
    blue = [int((cell[..., 2] > cell[..., 0] + 50).sum()) for cell in (photo, first, second, mask)]
    assert blue[0] == blue[3] == 0
    assert min(blue[1:3]) > 1000
