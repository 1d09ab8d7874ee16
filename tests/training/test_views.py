import numpy as np
import pytest
import torch

from objectaware.augment.randomness import counter_uniforms
from objectaware.config import ViewConfig
from objectaware.training import views
from objectaware.training.inputs import epoch_batches, worker_share
from objectaware.training.policies.base import PlainViews
from objectaware.training.policies.object_crop import ObjectCrop
from pictures import load_views, make_loader


def test_a_samples_views_do_not_depend_on_batch_or_threads() -> None:
    whole = load_views(make_loader(PlainViews()), 3, list(range(24)))
    single = load_views(make_loader(PlainViews(), num_threads=1), 3, [7])
    assert torch.equal(whole[:, 7:8], single)


def test_views_differ_from_each_other_and_between_epochs_and_seeds() -> None:
    """Identical views would make the loss fall while nothing is learnt."""
    indices = list(range(24))
    first = load_views(make_loader(PlainViews()), 0, indices)
    for other in (
        first.flip(0),
        load_views(make_loader(PlainViews()), 1, indices),
        load_views(make_loader(PlainViews(), 1), 0, indices),
    ):
        assert all(not torch.equal(a, b) for a, b in zip(first.flatten(0, 1), other.flatten(0, 1), strict=True))


class OnePicture:
    """The same picture again and again, so that two views are equal only where their augmentation is."""

    def __len__(self) -> int:
        return 24

    def read(self, index: int) -> np.ndarray:
        return np.random.default_rng(0).integers(0, 256, (100, 120, 3), dtype=np.uint8)


def _assert_no_augmentation_comes_twice() -> None:
    """All views of two epochs on two workers, 96 of one picture: pixels and colours all different."""
    pixels, colors = set(), set()
    for epoch in range(2):
        batches = epoch_batches(24, 12, seed=0, epoch=epoch)
        for rank in range(2):
            share = worker_share(batches, rank, 2)
            for batch in make_loader(PlainViews(), images=OnePicture()).epoch(epoch, list(share)):
                for view, color in zip(batch.views, batch.colors, strict=True):
                    pixels |= {one.numpy().tobytes() for one in view}
                    colors |= {tuple(factors) for factors in color.factors.tolist()}
    assert (len(pixels), len(colors)) == (96, 96)


def test_no_augmentation_comes_twice_in_two_epochs_or_on_two_workers() -> None:
    _assert_no_augmentation_comes_twice()


@pytest.mark.parametrize("forgotten", ["view", "epoch", "sample"])
def test_a_forgotten_source_of_the_draws_would_be_seen(monkeypatch: pytest.MonkeyPatch, forgotten: str) -> None:
    """The planted bugs: both views alike, every epoch alike, every sample alike."""

    def draws(seed: int, epoch: int, indices: np.ndarray, num_draws: int, *, stream: int = 0) -> np.ndarray:
        epoch = 0 if forgotten == "epoch" else epoch
        indices = np.zeros_like(indices) if forgotten == "sample" else indices
        if forgotten == "view" and stream == views._STREAM_VIEWS:
            return np.tile(counter_uniforms(seed, epoch, indices, num_draws // 2, stream=stream), 2)
        return counter_uniforms(seed, epoch, indices, num_draws, stream=stream)

    monkeypatch.setattr(views, "counter_uniforms", draws)
    with pytest.raises(AssertionError):
        _assert_no_augmentation_comes_twice()


def test_batches_arrive_in_order_and_complete() -> None:
    batches = [np.arange(start, start + 4) for start in range(0, 24, 4)]
    blues = [batch.views[0][:, 2, 0, 0].tolist() for batch in make_loader(PlainViews()).epoch(0, batches)]
    assert blues == [[index * 10 for index in batch] for batch in batches]


def test_an_error_in_a_thread_reaches_the_caller() -> None:
    with pytest.raises(IndexError):
        load_views(make_loader(ObjectCrop([].__getitem__)), 0, [5])


def test_both_views_of_an_object_crop_lie_in_one_box() -> None:
    boxes = [np.array([[0, 0, 0.5, 0.5], [0.5, 0.5, 1, 1]], dtype=np.float32)] * 24
    pixels = load_views(make_loader(ObjectCrop(boxes.__getitem__)), 0, list(range(24)))
    red = pixels[:, :, 0].float().mean(dim=(2, 3)) / 200  # mean column, as a share of the width
    halves = red > 0.5  # (2, N)
    assert torch.equal(halves[0], halves[1])
    assert 0 < halves[0].sum() < 24
    later = (
        load_views(make_loader(ObjectCrop(boxes.__getitem__)), 1, list(range(24)))[:, :, 0].float().mean(dim=(2, 3))
        / 200
        > 0.5
    )
    assert not torch.equal(halves, later)


def test_views_are_as_many_and_as_large_as_the_method_says() -> None:
    """The first two are those that a method of two views would be given."""
    views = [ViewConfig(32, 0.2), ViewConfig(32, 0.2), ViewConfig(16, 0.05, 0.2)]
    indices = np.arange(12)
    [batch] = make_loader(PlainViews(), views=views).epoch(0, [indices])
    assert [view.shape[1:] for view in batch.views] == [(3, 32, 32), (3, 32, 32), (3, 16, 16)]
    assert len(batch.colors) == 3
    # Red is twice the column, green twice the row: the corners tell how much of the picture a view shows.
    for view, (low, high) in zip(batch.views, ((0.2, 1.0), (0.2, 1.0), (0.05, 0.2)), strict=True):
        extents = view[:, :2].float().flatten(2).amax(2) - view[:, :2].float().flatten(2).amin(2)
        shares = extents.prod(1) / 200**2
        assert (shares > low * 0.6).all()
        assert (shares < high * 1.2).all()
