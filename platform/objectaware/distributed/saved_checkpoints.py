"""The checkpoints that Ray Train has on record of a run."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from pyarrow import fs
from ray import train

from objectaware.data.storage import Storage
from objectaware.distributed.records import Record
from objectaware.distributed.train_session import EPOCHS_NAME
from objectaware.errors import InputError
from objectaware.training.checkpoints import checkpoint_position

_SNAPSHOT = "checkpoint_manager_snapshot.json"


def mend_snapshot(run: Storage) -> Path | None:
    """Removes Ray Train's list of checkpoints where a kill has torn it.

    Ray Train writes the list in place, and refuses to start with half a list. Object stores replace it whole.

    Returns:
        Where the list is missing, the checkpoint to go on from: the one before the newest, since what the newest
        has finished is on record only once it is in the list.
    """
    if run.exists(_SNAPSHOT):
        try:
            run.read_json(_SNAPSHOT)
        except InputError:
            run.delete(_SNAPSHOT)
        else:
            return None
    local = run.local_path()
    if local is None:
        return None
    folders = sorted(local.glob("epoch_*"), key=lambda folder: checkpoint_position(folder.name))
    return folders[-2] if len(folders) > 1 else None


def saved_checkpoints(run: Storage) -> list[str]:
    """Names of the checkpoints that Ray Train's list holds, oldest first."""
    if not run.exists(_SNAPSHOT):
        return []
    path, filesystem = ray_storage(run)
    result = train.Result.from_path(path, storage_filesystem=filesystem)
    return [PurePosixPath(checkpoint.path).name for checkpoint, _ in result.best_checkpoints or ()]


def saved_epochs(run: Storage, checkpoint: str) -> list[Record]:
    """Records of all epochs that a checkpoint stands for, from the first one on."""
    return [{"kind": "epoch", **epoch} for epoch in run.child(checkpoint).read_json(EPOCHS_NAME)]


def ray_storage(folder: Storage) -> tuple[str, fs.FileSystem | None]:
    """A folder as Ray takes it; local ones with their file system, lest `%` or `#` be read as a URI's."""
    local = folder.local_path()
    return (folder.uri, None) if local is None else (str(local), fs.LocalFileSystem())
