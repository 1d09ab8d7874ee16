import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from objectaware.config import PretrainConfig
from objectaware.training.inputs import (
    epoch_batches,
    windowed_batches,
    worker_share,
)
from objectaware.training.pretraining import cosine_learning_rate, scaled_learning_rate


def test_learning_rates_of_the_papers_schedule() -> None:
    """Golden check 13: 800 epochs from 0.03 to 0.001."""
    rates = [cosine_learning_rate(epoch, 800, initial=0.03, final=0.001) for epoch in (0, 400, 799)]
    assert rates == pytest.approx([0.03, 0.0155, 0.0010001], abs=5e-8)


def test_learning_rate_scales_with_the_batch() -> None:
    for batch_size, expected in ((256, 0.03), (1024, 0.12)):
        config = PretrainConfig.model_validate({"data": {"root": "photos"}, "batch_size": batch_size})
        assert scaled_learning_rate(config) == pytest.approx(expected)


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


@given(
    sizes=st.lists(st.integers(1, 12), min_size=1, max_size=12),
    window=st.integers(1, 14),
    epoch=st.integers(0, 3),
)
def test_shards_are_gone_through_a_window_at_a_time_and_every_row_once(
    sizes: list[int], window: int, epoch: int
) -> None:
    order = windowed_batches(np.array(sizes), window, 1, seed=5, epoch=epoch).ravel()
    assert sorted(order.tolist()) == list(range(sum(sizes)))
    shard_of = np.repeat(np.arange(len(sizes)), sizes)[order]
    start = 0
    while start < len(order):
        # A window ends where its shards have all been used up.
        together = {int(shard_of[start])}
        end = start + 1
        while end < len(order) and end - start < sum(sizes[shard] for shard in together):
            together.add(int(shard_of[end]))
            end += 1
        assert len(together) <= window
        start = end


def test_the_order_over_shards_depends_on_seed_and_epoch_and_mixes_windows_anew() -> None:
    sizes = np.full(8, 16)
    first = windowed_batches(sizes, 2, 8, seed=0, epoch=0)
    assert first.shape == (16, 8)
    assert np.array_equal(first, windowed_batches(sizes, 2, 8, seed=0, epoch=0))
    windows = []
    for seed, epoch in ((0, 0), (0, 1), (1, 0)):
        batches = windowed_batches(sizes, 2, 8, seed=seed, epoch=epoch)
        assert (batches // 16 != batches[:, :1] // 16).any(axis=1).all()  # both shards meet in every batch
        windows.append(tuple(frozenset((part // 16).ravel().tolist()) for part in np.split(batches, 4)))
    assert len(set(windows)) == 3
