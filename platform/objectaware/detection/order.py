"""Which images are in the batch of each iteration."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class BatchPlan:
    """Batches of images, a function of seed and iteration.

    An epoch goes through the images in random order. Wide and tall images fill batches of their own, which need
    little padding; what is left of both at the end of an epoch is put together, and less than a batch is left out.

    Args:
        is_wide: Whether each image is wider than high, (N,).
        batch_size: Images a batch.
        seed: Seed of the run.

    Attributes:
        batches_per_epoch: Batches that all images give.

    Source:
        detectron2, data/common.py, `AspectRatioGroupedDataset`, whose groups go on from epoch to epoch.
    """

    def __init__(self, is_wide: NDArray[np.bool_], batch_size: int, *, seed: int) -> None:
        assert len(is_wide) >= batch_size, "fewer images than one batch takes"
        self._is_wide = is_wide
        self._batch_size = batch_size
        self._seed = seed
        self._drawn: tuple[int, NDArray[np.int64]] | None = None
        self.batches_per_epoch = len(is_wide) // batch_size

    def epoch_of(self, iteration: int) -> int:
        """Epoch that an iteration, from 0, belongs to."""
        return iteration // self.batches_per_epoch

    def batch(self, iteration: int) -> NDArray[np.int64]:
        """Images of an iteration, from 0: indices (batch size,)."""
        epoch, place = divmod(iteration, self.batches_per_epoch)
        if self._drawn is None or self._drawn[0] != epoch:
            self._drawn = epoch, self._epoch(epoch)
        batch: NDArray[np.int64] = self._drawn[1][place]
        return batch

    def _epoch(self, epoch: int) -> NDArray[np.int64]:
        generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence([self._seed, epoch])))
        waiting: dict[bool, list[int]] = {True: [], False: []}
        batches: list[list[int]] = []
        for index in generator.permutation(len(self._is_wide)).tolist():
            group = waiting[bool(self._is_wide[index])]
            group.append(index)
            if len(group) == self._batch_size:
                batches.append(list(group))
                group.clear()
        rest = waiting[True] + waiting[False]
        if len(rest) >= self._batch_size:
            batches.append(rest[: self._batch_size])
        return np.array(batches, dtype=np.int64)
