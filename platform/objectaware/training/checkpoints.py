"""The checkpoints of a training: how their folders are named, and which of them are kept."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from torch import nn

from objectaware.data.storage import Storage
from objectaware.methods.checkpoint import copy_checkpoint, save_checkpoint

KEPT_FOLDER = "kept"
"""Folder inside a run's with the checkpoints that Ray Train knows nothing of and never deletes."""

_NAME = re.compile(r"epoch_(\d+)(?:_step_(\d+))?")


def checkpoint_name(epoch: int, step: int | None = None) -> str:
    """Name the folder of the checkpoint made after an epoch, or after a step in it; both counted from 0."""
    return f"epoch_{epoch:04d}" if step is None else f"epoch_{epoch:04d}_step_{step:08d}"


def checkpoint_epoch(name: str) -> int | None:
    """Return the epoch, from 0, that the folder's name says; None if it is not that of a checkpoint after an epoch."""
    match = _NAME.fullmatch(name)
    return int(match[1]) if match is not None and match[2] is None else None


def checkpoint_position(name: str) -> tuple[float, float]:
    """Order checkpoints by their names as training makes them: (epoch, step), the step infinite after the last."""
    match = _NAME.fullmatch(name)
    assert match is not None, name
    return float(match[1]), float("inf") if match[2] is None else float(match[2])


@contextmanager
def passing_checkpoint(
    method: nn.Module, config: Mapping[str, object], state: Mapping[str, object], *, rank: int
) -> Iterator[Path | None]:
    """Give rank 0 a checkpoint in a folder that goes away afterwards, and the other workers None.

    Args:
        method: See `save_checkpoint`, as for the next two.
        config: What `config.json` beside it holds.
        state: What else training resumes from.
        rank: This worker's number, from 0.
    """
    if rank != 0:
        yield None
        return
    # The session may have moved the folder away.
    with tempfile.TemporaryDirectory(prefix="checkpoint-", ignore_cleanup_errors=True) as folder:
        save_checkpoint(Path(folder), method, config, state)
        yield Path(folder)


class KeptCheckpoints:
    """Keep the checkpoint of every n-th epoch in a folder from which nothing is removed.

    Args:
        folder: Where to.
        interval: n.
    """

    def __init__(self, folder: Storage, interval: int) -> None:
        self._folder = folder
        self._interval = interval

    def is_due(self, epoch: int) -> bool:
        """Return whether the checkpoint after this epoch, counted from 0, is to be kept."""
        return (epoch + 1) % self._interval == 0

    def keep(self, checkpoint: Path, epoch: int) -> None:
        """Copy a checkpoint. One that is made again after a restart replaces its equal."""
        copy_checkpoint(checkpoint, self._folder.child(checkpoint_name(epoch)))
