import numpy as np
import pytest

from objectaware.training.policies.background_hardmix import BackgroundHardMix
from objectaware.training.policies.background_mixup import BackgroundMixup
from pictures import Gradients

WHOLE = (0, 0, 100, 100)
DRAWS = np.array([0.0, 0.99])


def _soft_mask() -> np.ndarray:
    """From 0 on the left to 255 on the right; foreground from column 20 on, at a threshold of 0.2."""
    return np.tile(np.rint(np.linspace(0, 255, 100)).astype(np.uint8), (100, 1))


def test_the_object_is_copied_whole_and_the_rest_replaced_whole() -> None:
    policy = BackgroundHardMix(Gradients(), ([_soft_mask()] * 24).__getitem__, probability=1.0, threshold=0.2)
    picture, donor = Gradients().read(3), Gradients().read(23)
    mixed = policy.change_patch(picture, 3, WHOLE, 100, 100, DRAWS)
    assert np.array_equal(mixed[:, 20:], picture[:, 20:])
    # The donor's background, its twenty columns on the left, tiled from the left edge on.
    assert np.array_equal(mixed[:, :20], donor[:, :20])


def test_with_a_mask_of_two_values_it_is_background_mixup() -> None:
    mask = np.where(_soft_mask() >= 51, np.uint8(255), np.uint8(0))
    picture = Gradients().read(3)
    mixed = [
        kind(Gradients(), ([mask] * 24).__getitem__, probability=1.0).change_patch(picture, 3, WHOLE, 100, 100, DRAWS)
        for kind in (BackgroundHardMix, BackgroundMixup)
    ]
    assert np.array_equal(*mixed)


@pytest.mark.parametrize("kind", [BackgroundHardMix, BackgroundMixup])
def test_the_ends_of_a_mix(kind: type[BackgroundMixup]) -> None:
    """Golden check 12: a mask of ones or p = 0 changes nothing, a crop beside the object is all background."""
    picture, donor = Gradients().read(3), Gradients().read(23)
    mask = np.zeros((100, 100), dtype=np.uint8)
    mask[:, 60:] = 255
    masks = ([mask] * 24).__getitem__
    inside = (10, 60, 50, 40)
    patch = picture[10:60, 60:]
    always = kind(Gradients(), masks, probability=1.0)
    assert np.array_equal(always.change_patch(patch, 3, inside, 100, 100, DRAWS), patch)
    never = kind(Gradients(), masks, probability=0.0)
    assert never.change_patch(picture, 3, WHOLE, 100, 100, DRAWS) is picture
    beside = always.change_patch(picture[:, :30], 3, (0, 0, 100, 30), 100, 100, DRAWS)
    assert np.array_equal(beside, donor[:, :30])


def test_a_mask_that_never_reaches_the_threshold_has_no_object_to_keep() -> None:
    faint = np.full((20, 20), 50, dtype=np.uint8)
    picture = Gradients().read(0)
    policy = BackgroundHardMix(Gradients(), ([faint] * 24).__getitem__, probability=1.0)
    assert policy.change_patch(picture, 0, WHOLE, 100, 100, DRAWS) is picture
