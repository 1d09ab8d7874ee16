import numpy as np
import pytest
import torch

from objectaware.training.policies import ObjectCrop, PlainViews
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


def test_batches_arrive_in_order_and_complete() -> None:
    batches = [np.arange(start, start + 4) for start in range(0, 24, 4)]
    blues = [batch.views[0][:, 2, 0, 0].tolist() for batch in make_loader(PlainViews()).epoch(0, batches)]
    assert blues == [[index * 10 for index in batch] for batch in batches]


def test_an_error_in_a_thread_reaches_the_caller() -> None:
    with pytest.raises(IndexError):
        load_views(make_loader(ObjectCrop([])), 0, [5])


def test_both_views_of_an_object_crop_lie_in_one_box() -> None:
    boxes = [np.array([[0, 0, 0.5, 0.5], [0.5, 0.5, 1, 1]], dtype=np.float32)] * 24
    views = load_views(make_loader(ObjectCrop(boxes)), 0, list(range(24)))
    red = views[:, :, 0].float().mean(dim=(2, 3)) / 200  # mean column, as a share of the width
    halves = red > 0.5  # (2, N)
    assert torch.equal(halves[0], halves[1])
    assert 0 < halves[0].sum() < 24
    later = load_views(make_loader(ObjectCrop(boxes)), 1, list(range(24)))[:, :, 0].float().mean(dim=(2, 3)) / 200 > 0.5
    assert not torch.equal(halves, later)
