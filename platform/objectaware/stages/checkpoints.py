"""Checkpoints at any address, as a local folder."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from objectaware.data.storage import Storage
from objectaware.methods.checkpoint import CONFIG_NAME, STATE_NAME


@contextmanager
def local_checkpoint(address: str) -> Iterator[Path]:
    """Gives the folder of a checkpoint: itself where it is local, else a copy that goes away afterwards."""
    storage = Storage.from_uri(address)
    local = storage.local_path()
    if local is not None:
        yield local
        return
    with tempfile.TemporaryDirectory() as folder:
        for name in (STATE_NAME, CONFIG_NAME):
            if storage.exists(name):
                (Path(folder) / name).write_bytes(storage.read_bytes(name))
        yield Path(folder)
