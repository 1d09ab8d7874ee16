"""Checkpoints that stay, whatever becomes of the run that made them."""

from __future__ import annotations

from pathlib import Path

from objectaware.data.storage import Storage
from objectaware.methods.checkpoint import copy_checkpoint


class KeptCheckpoints:
    """Keeps the checkpoint of every n-th epoch in a folder that nothing is removed from.

    Args:
        folder: Where to.
        interval: n.
    """

    def __init__(self, folder: Storage, interval: int) -> None:
        self._folder = folder
        self._interval = interval

    def is_due(self, epoch: int) -> bool:
        """Whether the checkpoint after this epoch, counted from 0, is one of them."""
        return (epoch + 1) % self._interval == 0

    def keep(self, checkpoint: Path, epoch: int) -> None:
        """Copies a checkpoint; one that is made again after a restart takes the place of its equal."""
        copy_checkpoint(checkpoint, self._folder.child(f"epoch_{epoch:04d}"))
