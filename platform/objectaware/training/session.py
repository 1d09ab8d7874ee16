"""The connection of a training loop to the machinery around it: its place among workers, and requests to end.

A worker that is asked to end saves after its step, and all workers end with it. A worker that makes no step for too
long reports where it stands and ends itself.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Protocol

import torch

from objectaware.data.storage import Storage
from objectaware.errors import ExplainedError
from objectaware.process import Background

if TYPE_CHECKING:
    from objectaware.config import PretrainConfig
    from objectaware.training.views import ViewLoader, ViewSource


EXIT_STATUS = 75
"""Status of a process that ended itself; sysexits.h's "temporary failure"."""
_NUM_FRAMES = 3
_SECONDS_FOR_OTHERS = 30.0
_LOOKS_PER_LIMIT = 100


def _folder_of(package: str) -> str:
    """Return the folder of an installed package, with a separator at its end, without importing the package."""
    found = find_spec(package)
    assert found is not None
    assert found.origin is not None
    return f"{Path(found.origin).parent}{os.sep}"


_OURS = _folder_of("objectaware")
# Where a worker waits for the others. By their whole paths, since a Ray job's own files lie below /tmp/ray.
_LIBRARIES_THAT_WAIT = (_folder_of("torch"), _folder_of("ray"))


class Session(Protocol):
    """One worker's place among the others, and the way to and from storage.

    Ray Train implements it for users (`objectaware.distributed.train_session`), `LocalSession` for one process.

    Attributes:
        rank: This worker's number, from 0.
        world_size: Number of workers.
        device: Device to train on.
        cache_folder: Local folder that the workers of a node share, for the copy of the mask store.
        kept_folder: Folder of checkpoints that are never deleted.
    """

    rank: int
    world_size: int
    device: torch.device
    cache_folder: Path
    kept_folder: Storage

    def view_source(self, loader: ViewLoader, config: PretrainConfig) -> ViewSource:
        """Return the source of this worker's views: the loader itself, or other processes that decode for it."""

    def restored(self) -> Path | None:
        """Return the folder of the checkpoint to resume from, or None at the start."""

    def report(self, metrics: Mapping[str, float], *, epoch: int, checkpoint: Path | None) -> None:
        """Report an epoch's metrics and, from rank 0, a checkpoint folder. Every worker must call it."""

    def save(self, checkpoint: Path | None, *, epoch: int, step: int, wait: bool) -> None:
        """Save a checkpoint made inside an epoch, from rank 0. Every worker must call it.

        Args:
            checkpoint: The folder, which may be gone afterwards; None from other ranks.
            epoch: Epoch, from 0.
            step: Number of steps of the epoch that are done.
            wait: Return only once a restart would find it. Otherwise training continues while it is uploaded.
        """

    def should_stop(self) -> bool:
        """Return whether this worker was asked to end. Cheap, and never waits."""

    def progress(self, state: Mapping[str, float]) -> None:
        """Report how far an epoch has come. Cheap, and never waits."""

    def record(self, metrics: Mapping[str, float], *, step: int) -> None:
        """Report metrics of the last steps, up to a step of the whole training. Cheap, and never waits."""


class LocalSession:
    """Run in this process alone, and keep the newest checkpoint in a folder.

    Args:
        folder: Where checkpoints go. Its folders `cache` and `kept` are the session's.
        device: Device to train on.
    """

    def __init__(self, folder: Path, device: torch.device | None = None) -> None:
        self.rank, self.world_size = 0, 1
        self.device = device or torch.device("cpu")
        self.cache_folder = folder / "cache"
        self.kept_folder = Storage.from_uri(folder / "kept")
        self.history: list[dict[str, float]] = []
        self.records: list[dict[str, float]] = []
        self._folder = folder

    def view_source(self, loader: ViewLoader, config: PretrainConfig) -> ViewSource:
        """Return the loader, whose threads decode in this process."""
        return loader

    def restored(self) -> Path | None:
        """Return the newest checkpoint, if there is one."""
        checkpoint = self._folder / "checkpoint"
        return checkpoint if checkpoint.exists() else None

    def report(self, metrics: Mapping[str, float], *, epoch: int, checkpoint: Path | None) -> None:
        """Append the metrics to `history`, and replace the newest checkpoint in one step."""
        self.history.append({"epoch": epoch, **metrics})
        self._keep(checkpoint, f"checkpoint-{epoch:05d}")

    def save(self, checkpoint: Path | None, *, epoch: int, step: int, wait: bool) -> None:
        """Replace the newest checkpoint, which takes no time."""
        self._keep(checkpoint, f"checkpoint-{epoch:05d}-{step:08d}")

    def should_stop(self) -> bool:
        """Return whether this process was sent SIGTERM since `honour_termination`."""
        return is_terminated()

    def _keep(self, checkpoint: Path | None, name: str) -> None:
        if checkpoint is None:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        link = self._folder / name
        checkpoint.rename(link)
        temporary = self._folder / "checkpoint.new"
        temporary.symlink_to(link.name)
        temporary.replace(self._folder / "checkpoint")

    def progress(self, state: Mapping[str, float]) -> None:
        """Ignore progress: nobody is watching."""

    def record(self, metrics: Mapping[str, float], *, step: int) -> None:
        """Append the metrics to `records`."""
        self.records.append({"step": step, **metrics})


class StoppedError(RuntimeError):
    """Training was asked to end and is saved; the same call resumes."""


class _Termination:
    """Hold whether this process was sent SIGTERM, without a lock, for which a signal's handler must not wait."""

    is_asked = False


def honour_termination() -> None:
    """Make the first SIGTERM a request that `is_terminated` reports. The second one does what SIGTERM did before.

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


class NoProgressError(ExplainedError):
    """Training made no step within the limit, and starting it again did not help."""


class NoProgressWatch(Background):
    """End this process if the thread that enters this context manager makes no step for too long.

    A thread that hangs in a library, or while it reads from a lost file system, cannot be given an exception. Ray Train
    sees that the process died, and starts training again from the newest checkpoint.

    All workers of a training stand still when one hangs. The workers that wait for the others in PyTorch or Ray have a
    longer limit, so that the worker that hangs is the one that reports.

    Args:
        seconds: The limit.
        report: Called at the limit, before the end, with the innermost calls of the thread that does not move, and of
            those that work for it.
        seconds_to_start: The limit before the first step; by default the same.
        seconds_for_others: Time by which the limit is longer for a process that waits for others.

    Attributes:
        seconds: The limit in force.
    """

    def __init__(
        self,
        seconds: float,
        report: Callable[[str], None],
        *,
        seconds_to_start: float | None = None,
        seconds_for_others: float = _SECONDS_FOR_OTHERS,
    ) -> None:
        super().__init__("no progress")
        self.seconds = seconds if seconds_to_start is None else seconds_to_start
        self._seconds_between_steps = seconds
        self._seconds_for_others = seconds_for_others
        self._report = report
        self._watched = threading.get_ident()
        self._moved_at = time.monotonic()
        self._is_paused = False

    def moved(self) -> None:
        """Start the limit again: the thread is alive."""
        self._moved_at = time.monotonic()

    def stepped(self) -> None:
        """Start the limit between steps: the thread has made one."""
        self.moved()
        self.seconds = self._seconds_between_steps

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Stop the clock for the `with` block, in which the thread waits for room on the cluster."""
        self._is_paused = True
        try:
            yield
        finally:
            self.moved()
            self._is_paused = False

    def _run(self) -> None:
        while (left := self._seconds_left()) > 0:
            # The first step makes the limit shorter.
            if self._stop.wait(min(left, self._seconds_between_steps / _LOOKS_PER_LIMIT)):
                return
        try:
            self._report(self._place())
        finally:
            os._exit(EXIT_STATUS)

    def _seconds_left(self) -> float:
        if self._is_paused:
            self.moved()
        return self._moved_at + self._limit() - time.monotonic()

    def _limit(self) -> float:
        """Return the current limit. It becomes longer once it is over, if the thread waits for others."""
        if time.monotonic() - self._moved_at < self.seconds:
            return self.seconds
        *_, innermost = traceback.extract_stack(sys._current_frames()[self._watched])
        waits = innermost.filename.startswith(_LIBRARIES_THAT_WAIT)
        return self.seconds + (self._seconds_for_others if waits else 0)

    def _place(self) -> str:
        frames = sys._current_frames()
        places = [_innermost(traceback.extract_stack(frames.pop(self._watched)))]
        frames.pop(threading.get_ident())
        for number, frame in frames.items():
            stack = traceback.extract_stack(frame)
            # Idle threads of a pool are in none of our functions.
            if any(call.filename.startswith(_OURS) for call in stack):
                name = next((thread.name for thread in threading.enumerate() if thread.ident == number), "another")
                places.append(f"and in thread {name}\n{_innermost(stack)}")
        return "".join(places)


def _innermost(stack: traceback.StackSummary) -> str:
    return "".join(traceback.StackSummary.from_list(stack[-_NUM_FRAMES:]).format())
