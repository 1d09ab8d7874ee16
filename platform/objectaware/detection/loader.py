"""Batches of training images, loaded ahead of their use."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import count

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from objectaware.detection.data import TrainingImages
from objectaware.detection.order import BatchPlan
from objectaware.detection.regions import Target

Batch = tuple[list[Tensor], list[Target]]
_NUM_BATCHES_AHEAD = 2


class BatchLoader:
    """Loads one worker's share of each iteration's batch.

    Args:
        images: The images.
        plan: Which of them are in which batch.
        rank: This worker's number, from 0.
        world_size: Number of workers, which divides the batch.
        num_threads: Threads that decode, resize and draw.
    """

    def __init__(
        self, images: TrainingImages, plan: BatchPlan, *, rank: int, world_size: int, num_threads: int
    ) -> None:
        self._images = images
        self._plan = plan
        self._rank = rank
        self._world_size = world_size
        self._num_threads = num_threads

    def batches(self, first: int) -> Iterator[Batch]:
        """Yields this worker's images of every iteration from the first one on, without end."""
        with ThreadPoolExecutor(self._num_threads, thread_name_prefix="images") as pool:
            waiting: deque[list[Future[tuple[Tensor, Target]]]] = deque()
            for iteration in count(first):
                epoch = self._plan.epoch_of(iteration)
                waiting.append(
                    [
                        pool.submit(self._images.load, index, epoch=epoch, iteration=iteration)
                        for index in self._share(iteration).tolist()
                    ]
                )
                if len(waiting) > _NUM_BATCHES_AHEAD:
                    loaded = [future.result() for future in waiting.popleft()]
                    yield [image for image, _ in loaded], [target for _, target in loaded]

    def _share(self, iteration: int) -> NDArray[np.int64]:
        return np.split(self._plan.batch(iteration), self._world_size)[self._rank]
