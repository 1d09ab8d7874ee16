"""How long work takes, as the median of a few times after one that is not counted."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch

_NUM_TIMES = 3


def core_seconds(work: Callable[[], object]) -> float:
    """Seconds that this process computes for, whatever else the machine does meanwhile."""
    return _median(work, time.process_time)


def wall_seconds(work: Callable[[], object], *, on_gpu: bool) -> float:
    """Seconds by the wall clock, until the GPU is done as well where there is one."""

    def finished() -> None:
        work()
        if on_gpu:
            torch.cuda.synchronize()

    return _median(finished, time.perf_counter)


def _median(work: Callable[[], object], now: Callable[[], float]) -> float:
    work()
    taken = []
    for _ in range(_NUM_TIMES):
        begun = now()
        work()
        taken.append(now() - begun)
    return statistics.median(taken)
