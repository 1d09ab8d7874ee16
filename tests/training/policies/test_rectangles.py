import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from objectaware.augment.background import cut_background, largest_empty_rectangle
from objectaware.training.policies.background_mixup import background_rectangles


def test_masks_of_all_sizes_are_searched_as_they_are() -> None:
    generator = np.random.default_rng(0)
    masks = [generator.integers(0, 60, (8, 9 + index % 3), dtype=np.uint8) for index in range(12)]
    rectangles = background_rectangles(masks.__getitem__, len(masks), 0.2)
    for mask, rectangle in zip(masks, rectangles, strict=True):
        assert tuple(rectangle[:4]) == largest_empty_rectangle(mask >= 51)
        assert tuple(rectangle[4:]) == mask.shape


def test_images_without_mask_or_background_have_none() -> None:
    assert not background_rectangles([None, np.full((5, 5), 255, dtype=np.uint8)].__getitem__, 2, 0.2).any()


@settings(deadline=None, max_examples=25)
@given(st.integers(225, 700), st.integers(225, 700), st.integers(0, 10**6))
def test_a_patch_found_in_a_shrunk_mask_holds_no_foreground(height: int, width: int, seed: int) -> None:
    """Masks as large as their photos; one pixel of foreground is enough to be kept clear of."""
    generator = np.random.default_rng(seed)
    mask = np.zeros((height, width), dtype=np.uint8)
    for _ in range(4):
        mask[generator.integers(height), generator.integers(width)] = 255
    top, left, rows, columns, mask_height, mask_width = (
        int(value) for value in background_rectangles([mask].__getitem__, 1, 0.2)[0]
    )
    assert max(mask_height, mask_width) == 224
    photo = np.repeat(mask[:, :, None], 3, axis=2)
    patch = cut_background(photo, (top, left, rows, columns), mask_height, mask_width)
    assert not patch.any()
    exact = largest_empty_rectangle(mask > 0)
    assert exact is not None
    assert patch.size / 3 > 0.8 * exact[2] * exact[3]
