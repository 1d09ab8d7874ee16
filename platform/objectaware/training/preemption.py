"""Ending early without losing work: a worker that is asked to end saves at the next step, and all end with it."""

from __future__ import annotations

import signal
from types import FrameType

import torch
import torch.distributed as dist

from objectaware.methods.workers import num_workers


class StoppedError(RuntimeError):
    """Training was told to end and has saved where it stood; the same call goes on from there."""


class _Termination:
    """Whether this process was sent SIGTERM. A plain attribute: a signal's handler must not wait for a lock."""

    is_asked = False


def honour_termination() -> None:
    """Let the first SIGTERM be a request that `is_terminated` reports. The second one does what it did before.

    Clusters send it some seconds before they take a machine away. Must be called in the main thread.
    """

    def note(number: int, frame: FrameType | None) -> None:
        _Termination.is_asked = True
        signal.signal(signal.SIGTERM, before)

    _Termination.is_asked = False
    before = signal.signal(signal.SIGTERM, note)


def is_terminated() -> bool:
    """Return whether SIGTERM has come since `honour_termination`."""
    return _Termination.is_asked


def any_worker(wish: bool, device: torch.device) -> bool:
    """Return whether any worker has the wish. All workers call it in the same step and get the same answer.

    Costs one reduction of four bytes; none where there is one worker.
    """
    if num_workers() == 1:
        return wish
    wishes = torch.tensor([wish], dtype=torch.int32, device=device)
    dist.all_reduce(wishes, dist.ReduceOp.MAX)
    return bool(wishes.item())
