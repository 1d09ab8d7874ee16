import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from torchvision.transforms import RandomResizedCrop
from torchvision.transforms import functional as tvf

from objectaware.augment.crop import (
    NUM_CROP_DRAWS,
    crop_mask,
    least_short_side,
    object_region,
    resize_patch,
    sample_crops,
    sample_flips,
)


@given(st.integers(1, 400), st.integers(1, 400), st.integers(0, 1000), st.floats(0.01, 1.0))
def test_crops_lie_inside_the_image(height: int, width: int, seed: int, min_scale: float) -> None:
    uniforms = np.random.default_rng(seed).random((16, NUM_CROP_DRAWS))
    sizes = np.full(16, height), np.full(16, width)
    top, left, crop_height, crop_width = sample_crops(uniforms, *sizes, min_scale=min_scale).T
    assert (top >= 0).all()
    assert (left >= 0).all()
    assert (crop_height >= 1).all()
    assert (crop_width >= 1).all()
    assert (top + crop_height <= height).all()
    assert (left + crop_width <= width).all()


def test_crops_are_distributed_as_torchvisions() -> None:
    number, height, width = 4000, 120, 160
    uniforms = np.random.default_rng(0).random((number, NUM_CROP_DRAWS))
    ours = sample_crops(uniforms, np.full(number, height), np.full(number, width), min_scale=0.08)
    torch.manual_seed(0)
    image = torch.empty(3, height, width)
    theirs = np.array([RandomResizedCrop.get_params(image, [0.08, 1.0], [3 / 4, 4 / 3]) for _ in range(number)])
    for column in range(4):
        quantiles = np.linspace(0.05, 0.95, 10)
        difference = np.quantile(ours[:, column], quantiles) - np.quantile(theirs[:, column], quantiles)
        assert np.abs(difference).max() <= 5, column


def test_flips_are_half_of_the_views() -> None:
    flips = sample_flips(np.random.default_rng(0).random((10_000, NUM_CROP_DRAWS)))
    assert abs(flips.mean() - 0.5) < 0.02


@pytest.mark.parametrize("flip", [False, True])
def test_a_view_equals_torchvisions_resized_crop(flip: bool) -> None:
    image = np.random.default_rng(0).integers(0, 256, (90, 120, 3), dtype=np.uint8)
    view = resize_patch(image[10:70, 20:95], 32, flip=flip)
    expected = tvf.resized_crop(Image.fromarray(image), 10, 20, 60, 75, [32, 32], antialias=True)
    if flip:
        expected = tvf.hflip(expected)
    assert np.array_equal(view, np.asarray(expected))


def test_a_mask_follows_its_image() -> None:
    """A mask stored at a quarter of the size, cut along a crop, marks the pixels that it marked in the image."""
    mask = np.zeros((32, 32), dtype=np.uint8)
    mask[8:20, 4:28] = 255
    cut = crop_mask(mask, (24, 8, 64, 96), 128, 128)
    assert cut.shape == (64, 96)
    full = np.kron(mask, np.ones((4, 4), dtype=np.uint8))[24:88, 8:104]
    assert (np.abs(cut.astype(int) - full) > 127).mean() < 0.01


def test_a_mask_of_the_images_size_is_cut_exactly() -> None:
    mask = np.random.default_rng(0).integers(0, 256, (40, 50), dtype=np.uint8)
    assert np.array_equal(crop_mask(mask, (3, 4, 20, 30), 40, 50), mask[3:23, 4:34])


def test_an_image_of_the_least_short_side_fills_every_view() -> None:
    least = least_short_side(64, min_scale=0.08)
    draws = np.random.default_rng(0).random((4000, NUM_CROP_DRAWS))
    draws[:, 0] *= 0.001  # the smallest areas
    for side, fills in ((least, True), (int(0.97 * least), False)):
        sides = np.full(len(draws), side)
        crops = sample_crops(draws, sides, sides, min_scale=0.08)
        assert (crops[:, 2:].min() >= 64) == fills


BOXES = np.array([[0.1, 0.2, 0.5, 0.6], [0.5, 0.0, 1.0, 0.3]], dtype=np.float32)


def test_without_boxes_the_whole_image() -> None:
    assert object_region(np.zeros((0, 4), dtype=np.float32), 0.7, 30, 40) == (0, 0, 30, 40)


def test_each_box_is_picked_equally_often() -> None:
    regions = [object_region(BOXES, uniform, 100, 200) for uniform in np.linspace(0, 0.999, 100)]
    assert regions.count(regions[0]) == 50
    assert regions[0] == (20, 20, 41, 80)
    assert regions[-1] == (0, 100, 31, 100)


@given(st.floats(0, 0.999), st.integers(1, 300), st.integers(1, 300))
def test_a_region_lies_in_the_image_and_covers_its_box(uniform: float, height: int, width: int) -> None:
    top, left, region_height, region_width = object_region(BOXES, uniform, height, width)
    assert 0 <= top < top + region_height <= height
    assert 0 <= left < left + region_width <= width
    x0, y0, x1, y1 = BOXES[int(uniform * 2)]
    assert left <= x0 * width
    assert top <= y0 * height
    assert left + region_width >= min(x1 * width, width) - 1e-3
    assert top + region_height >= min(y1 * height, height) - 1e-3
