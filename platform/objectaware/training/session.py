"""What a training loop needs of the machinery around it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import torch

from objectaware.data.storage import Storage
from objectaware.training.preemption import is_terminated

if TYPE_CHECKING:
    from objectaware.config import PretrainConfig
    from objectaware.training.views import ViewLoader, ViewSource


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
        ...

    def restored(self) -> Path | None:
        """Return the folder of the checkpoint to resume from, or None at the start."""
        ...

    def report(self, metrics: Mapping[str, float], *, epoch: int, checkpoint: Path | None) -> None:
        """Report an epoch's metrics and, from rank 0, a checkpoint folder. Every worker must call it."""
        ...

    def save(self, checkpoint: Path | None, *, epoch: int, step: int) -> None:
        """Save a checkpoint made inside an epoch, from rank 0. Return once a restart would find it.

        Every worker must call it.
        """
        ...

    def should_stop(self) -> bool:
        """Return whether this worker was asked to end. Cheap, and never waits."""
        ...

    def progress(self, state: Mapping[str, float]) -> None:
        """Report how far an epoch has come. Cheap, and never waits."""
        ...


class LocalSession:
    """Run in this process alone, and keep the newest checkpoint in a folder.

    Args:
        folder: Where checkpoints go. Its folders `cache` and `kept` are the session's.
        device: Device to train on.
    """

    def __init__(self, folder: Path, device: torch.device | None = None) -> None:
        self.rank = 0
        self.world_size = 1
        self.device = device or torch.device("cpu")
        self.cache_folder = folder / "cache"
        self.kept_folder = Storage.from_uri(folder / "kept")
        self.history: list[dict[str, float]] = []
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
        if checkpoint is not None:
            self._keep(checkpoint, f"checkpoint-{epoch:05d}")

    def save(self, checkpoint: Path | None, *, epoch: int, step: int) -> None:
        """Replace the newest checkpoint."""
        if checkpoint is not None:
            self._keep(checkpoint, f"checkpoint-{epoch:05d}-{step:08d}")

    def should_stop(self) -> bool:
        """Return whether this process was sent SIGTERM since `honour_termination`."""
        return is_terminated()

    def _keep(self, checkpoint: Path, name: str) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        link = self._folder / name
        checkpoint.rename(link)
        temporary = self._folder / "checkpoint.new"
        temporary.symlink_to(link.name)
        temporary.replace(self._folder / "checkpoint")

    def progress(self, state: Mapping[str, float]) -> None:
        """Ignore progress: nobody is watching."""
