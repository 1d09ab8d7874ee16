import numpy as np
import pytest

from objectaware.training.schedule import (
    cosine_learning_rate,
    epoch_batches,
    scaled_learning_rate,
    worker_share,
)


def test_learning_rates_of_the_papers_schedule() -> None:
    """Golden check 13: 800 epochs from 0.03 to 0.001."""
    rates = [cosine_learning_rate(epoch, 800, initial=0.03, final=0.001) for epoch in (0, 400, 799)]
    assert rates == pytest.approx([0.03, 0.0155, 0.0010001], abs=5e-8)


def test_learning_rate_scales_with_the_batch() -> None:
    assert scaled_learning_rate(0.03, 256) == pytest.approx(0.03)
    assert scaled_learning_rate(0.03, 1024) == pytest.approx(0.12)


def test_an_epoch_sees_no_sample_twice_and_each_epoch_has_its_order() -> None:
    first = epoch_batches(103, 10, seed=0, epoch=0)
    second = epoch_batches(103, 10, seed=0, epoch=1)
    assert first.shape == (10, 10)
    assert len(np.unique(first)) == 100
    assert not np.array_equal(first, second)
    assert np.array_equal(first, epoch_batches(103, 10, seed=0, epoch=0))
    assert not np.array_equal(first, epoch_batches(103, 10, seed=1, epoch=0))


def test_what_an_epoch_leaves_out_changes() -> None:
    left_out = [set(range(103)) - set(epoch_batches(103, 10, seed=0, epoch=e).ravel().tolist()) for e in range(5)]
    assert len({frozenset(rest) for rest in left_out}) == 5


@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_workers_share_every_batch(world_size: int) -> None:
    batches = epoch_batches(64, 16, seed=3, epoch=2)
    shares = [worker_share(batches, rank, world_size) for rank in range(world_size)]
    assert np.array_equal(np.concatenate(shares, axis=1), batches)
