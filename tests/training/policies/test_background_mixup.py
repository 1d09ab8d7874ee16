import numpy as np
import pytest
import torch

from objectaware.training.policies.background_mixup import BackgroundMixup
from objectaware.training.policies.base import PlainViews
from pictures import Gradients, load_views, make_loader


def test_background_mixup_keeps_the_object_and_replaces_the_rest() -> None:
    mask = np.zeros((100, 100), dtype=np.uint8)
    mask[:, :50] = 255
    policy = BackgroundMixup(Gradients(), ([mask] * 24).__getitem__, probability=1.0)
    draws = np.array([0.0, 0.99])
    picture = Gradients().read(3)
    mixed = policy.change_patch(picture, 3, (0, 0, 100, 100), 100, 100, draws)
    assert np.array_equal(mixed[:, :50], picture[:, :50])
    # The donor is the last image; its background, the right half, is tiled from the left edge on.
    donor = Gradients().read(23)
    assert np.array_equal(mixed[:, 50:], donor[:, 50:])


def test_mixing_a_crop_is_cropping_the_mix() -> None:
    generator = np.random.default_rng(0)
    masks = [generator.integers(0, 256, (100, 100), dtype=np.uint8) for _ in range(24)]
    for mask in masks:
        mask[:40] = 0
    policy = BackgroundMixup(Gradients(), masks.__getitem__, probability=1.0)
    draws = np.array([0.0, 0.4])
    picture = Gradients().read(3)
    whole = policy.change_patch(picture, 3, (0, 0, 100, 100), 100, 100, draws)
    crop = policy.change_patch(picture[20:70, 10:90], 3, (20, 10, 50, 80), 100, 100, draws)
    assert np.array_equal(crop, whole[20:70, 10:90])


@pytest.mark.parametrize("probability", [0.0, 0.4])
def test_views_are_mixed_independently_with_the_probability(probability: float) -> None:
    mask = np.zeros((20, 20), dtype=np.uint8)
    mask[5:15, 5:15] = 255
    policy = BackgroundMixup(Gradients(), ([mask] * 24).__getitem__, probability=probability)
    indices = list(range(24))
    mixed = []
    for seed in range(12):
        changed, plain = (load_views(make_loader(kind, seed), 0, indices) for kind in (policy, PlainViews()))
        mixed.append((changed != plain).flatten(2).any(2))
    both = torch.cat(mixed, dim=1).float()  # (2, 288)
    assert both.mean() == pytest.approx(probability, abs=0.06)
    assert (both[0] * both[1]).mean() == pytest.approx(probability**2, abs=0.06)


def test_an_image_without_mask_or_object_stays_as_it_is() -> None:
    empty = np.zeros((20, 20), dtype=np.uint8)
    policy = BackgroundMixup(Gradients(), [None, *[empty] * 23].__getitem__, probability=1.0)
    picture = Gradients().read(0)
    for index in (0, 1):
        assert policy.change_patch(picture, index, (0, 0, 100, 100), 100, 100, np.array([0.0, 0.5])) is picture


def test_masks_that_leave_no_background_give_no_donors() -> None:
    full = np.full((20, 20), 255, dtype=np.uint8)
    assert len(BackgroundMixup(Gradients(), ([full, None] * 12).__getitem__, probability=1.0).donors) == 0
