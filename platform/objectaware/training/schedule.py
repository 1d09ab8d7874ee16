"""Order of samples as a function of seed and epoch."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def epoch_batches(num_samples: int, batch_size: int, *, seed: int, epoch: int) -> NDArray[np.int64]:
    """Order of an epoch's samples, cut into batches of all workers together.

    Args:
        num_samples: Size of the data set, at least `batch_size`.
        batch_size: Samples a step over all workers.
        seed: Seed of the run.
        epoch: Epoch, from 0.

    Returns:
        Sample indices, shape (num_samples // batch_size, batch_size). The rest of the last batch is left out, as
        in MoCo's code: batch statistics of a handful of samples would disturb the network. Another epoch leaves
        out others.
    """
    assert num_samples >= batch_size > 0, f"{num_samples} samples do not fill a batch of {batch_size}"
    return _cut(_generator(seed, epoch).permutation(num_samples), batch_size)


def windowed_batches(
    shard_sizes: NDArray[np.int64], window: int, batch_size: int, *, seed: int, epoch: int
) -> NDArray[np.int64]:
    """Order of an epoch over shards, of which a few at a time fit into memory, cut into batches.

    The shards are permuted and taken `window` at a time; the rows of a window are permuted among themselves. Rows
    that meet in a batch thus come from one window or, where one ends, from two that follow each other.

    Args:
        shard_sizes: Samples of each shard, (number of shards,); indices run through the shards in order.
        window: Shards that are mixed; from the number of shards on, all orders are equally likely.
        batch_size: Samples a step over all workers.
        seed: Seed of the run.
        epoch: Epoch, from 0.

    Returns:
        As `epoch_batches`.
    """
    num_samples = int(shard_sizes.sum())
    assert num_samples >= batch_size > 0, f"{num_samples} samples do not fill a batch of {batch_size}"
    generator = _generator(seed, epoch)
    starts = np.cumsum(shard_sizes) - shard_sizes
    shards = generator.permutation(len(shard_sizes))
    windows = [shards[first : first + window] for first in range(0, len(shards), window)]
    rows = [
        generator.permutation(np.concatenate([starts[shard] + np.arange(shard_sizes[shard]) for shard in together]))
        for together in windows
    ]
    return _cut(np.concatenate(rows), batch_size)


def _generator(seed: int, epoch: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, epoch])))


def _cut(order: NDArray[np.int64], batch_size: int) -> NDArray[np.int64]:
    num_batches = len(order) // batch_size
    return order[: num_batches * batch_size].reshape(num_batches, batch_size)


def worker_share(batches: NDArray[np.int64], rank: int, world_size: int) -> NDArray[np.int64]:
    """A worker's columns of the batches: (num_batches, B) to (num_batches, B / world size)."""
    assert batches.shape[1] % world_size == 0, "the batch size must be a multiple of the number of workers"
    return np.split(batches, world_size, axis=1)[rank]
