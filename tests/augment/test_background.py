import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from objectaware.augment.background import background_only, cut_background, mix_background, tile


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
