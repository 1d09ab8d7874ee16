import numpy as np
import pytest
import torch

from objectaware.augment.color import ColorDistribution
from objectaware.training.policies import BackgroundMixup, ObjectCrop, PlainViews, Policy
from objectaware.training.views import ViewLoader


class Gradients:
    """Pictures whose red is the column and green the row, so that a view tells where it was cut."""

    def __len__(self) -> int:
        return 24

    def read(self, index: int) -> np.ndarray:
        rows, columns = np.mgrid[0:100, 0:100]
        return np.stack([columns * 2, rows * 2, np.full_like(rows, index * 10)], axis=2).astype(np.uint8)


def _loader(policy: Policy, seed: int = 0, num_threads: int = 2) -> ViewLoader:
    return ViewLoader(
        Gradients(),
        policy,
        size=32,
        min_crop_scale=0.2,
        colors=ColorDistribution(),
        seed=seed,
        num_threads=num_threads,
    )


def _views(loader: ViewLoader, epoch: int, indices: list[int]) -> torch.Tensor:
    batch = next(loader.epoch(epoch, [np.array(indices)]))
    return torch.stack(batch.views)  # (2, N, 3, 32, 32)


def test_a_samples_views_do_not_depend_on_batch_or_threads() -> None:
    whole = _views(_loader(PlainViews()), 3, list(range(24)))
    single = _views(_loader(PlainViews(), num_threads=1), 3, [7])
    assert torch.equal(whole[:, 7:8], single)


def test_views_differ_from_each_other_and_between_epochs_and_seeds() -> None:
    """Identical views would make the loss fall while nothing is learnt."""
    indices = list(range(24))
    first = _views(_loader(PlainViews()), 0, indices)
    for other in (
        first.flip(0),
        _views(_loader(PlainViews()), 1, indices),
        _views(_loader(PlainViews(), 1), 0, indices),
    ):
        assert all(not torch.equal(a, b) for a, b in zip(first.flatten(0, 1), other.flatten(0, 1), strict=True))


def test_batches_arrive_in_order_and_complete() -> None:
    batches = [np.arange(start, start + 4) for start in range(0, 24, 4)]
    blues = [batch.views[0][:, 2, 0, 0].tolist() for batch in _loader(PlainViews()).epoch(0, batches)]
    assert blues == [[index * 10 for index in batch] for batch in batches]


def test_an_error_in_a_thread_reaches_the_caller() -> None:
    with pytest.raises(IndexError):
        _views(_loader(ObjectCrop([])), 0, [5])


def test_both_views_of_an_object_crop_lie_in_one_box() -> None:
    boxes = [np.array([[0, 0, 0.5, 0.5], [0.5, 0.5, 1, 1]], dtype=np.float32)] * 24
    views = _views(_loader(ObjectCrop(boxes)), 0, list(range(24)))
    red = views[:, :, 0].float().mean(dim=(2, 3)) / 200  # mean column, as a share of the width
    halves = red > 0.5  # (2, N)
    assert torch.equal(halves[0], halves[1])
    assert 0 < halves[0].sum() < 24
    later = _views(_loader(ObjectCrop(boxes)), 1, list(range(24)))[:, :, 0].float().mean(dim=(2, 3)) / 200 > 0.5
    assert not torch.equal(halves, later)


def test_background_mixup_keeps_the_object_and_replaces_the_rest() -> None:
    mask = np.zeros((100, 100), dtype=np.uint8)
    mask[:, :50] = 255
    masks = [mask] * 24
    policy = BackgroundMixup(Gradients(), masks, probability=1.0)
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
    policy = BackgroundMixup(Gradients(), masks, probability=1.0)
    draws = np.array([0.0, 0.4])
    picture = Gradients().read(3)
    whole = policy.change_patch(picture, 3, (0, 0, 100, 100), 100, 100, draws)
    crop = policy.change_patch(picture[20:70, 10:90], 3, (20, 10, 50, 80), 100, 100, draws)
    assert np.array_equal(crop, whole[20:70, 10:90])


@pytest.mark.parametrize("probability", [0.0, 0.4])
def test_views_are_mixed_independently_with_the_probability(probability: float) -> None:
    mask = np.zeros((20, 20), dtype=np.uint8)
    mask[5:15, 5:15] = 255
    policy = BackgroundMixup(Gradients(), [mask] * 24, probability=probability)
    indices = list(range(24))
    mixed = [
        (_views(_loader(policy, seed), 0, indices) != _views(_loader(PlainViews(), seed), 0, indices)).flatten(2).any(2)
        for seed in range(12)
    ]
    both = torch.cat(mixed, dim=1).float()  # (2, 288)
    assert both.mean() == pytest.approx(probability, abs=0.06)
    assert (both[0] * both[1]).mean() == pytest.approx(probability**2, abs=0.06)


def test_an_image_without_mask_or_object_stays_as_it_is() -> None:
    empty = np.zeros((20, 20), dtype=np.uint8)
    policy = BackgroundMixup(Gradients(), [None, empty] + [empty] * 22, probability=1.0)
    picture = Gradients().read(0)
    for index in (0, 1):
        assert policy.change_patch(picture, index, (0, 0, 100, 100), 100, 100, np.array([0.0, 0.5])) is picture


def test_masks_that_leave_no_background_give_no_donors() -> None:
    full = np.full((20, 20), 255, dtype=np.uint8)
    assert len(BackgroundMixup(Gradients(), [full, None], probability=1.0).donors) == 0
