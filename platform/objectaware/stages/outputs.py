"""The files that stages write. Their names distinguish a stage's folder from a user's, and are used to empty it."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePosixPath

from objectaware.data.storage import Storage, is_temporary
from objectaware.errors import InputError
from objectaware.stages.lease import LEASE_FILE, LEASE_FOLDER

STAGE_FILE = "stage.json"
"""Description of a folder's content. A stage writes this file first."""
RESULT_FILE = "result.json"
"""Results of a stage. A stage writes this file last."""
SWEEP = "sweep"

TRAINING_OUTPUTS = (
    *("train/epoch_*/", "train/kept/epoch_*/"),
    *("train/checkpoint_manager_snapshot.json", "train/.validate_storage_marker"),  # Ray Train's own
)
"""Patterns of the files that a training leaves in its stage's folder."""
SWEEP_OUTPUTS = ("sweep.json", "metric.png", "trials/*.json", "begun/*")

_NUM_SHOWN = 5


def require_own(folder: Storage, identity: str) -> None:
    """Refuse a folder that holds files, unless they are of the same stage.

    Args:
        folder: Folder to which a stage is to write.
        identity: Identity of the stage.

    Raises:
        InputError: The folder is another stage's, or holds files but no `stage.json`.
    """
    remedy = "Give another folder: one that does not exist yet, or is empty."
    parent, name = folder.split()
    if name and parent.is_file(name):
        raise InputError("out", folder.uri, "is a file", remedy)
    if not folder.exists(STAGE_FILE):
        foreign = [name for name in folder.list_entries() if name != LEASE_FOLDER and not is_temporary(name)]
        foreign += [name for name in folder.child(LEASE_FOLDER).list_entries() if not _is_of_lease(name)]
        if foreign:
            problem = f"holds files that no stage of ours has written ({shown_names(foreign)})"
            raise InputError("out", folder.uri, problem, remedy)
        return
    record = folder.read_json(STAGE_FILE)
    owner = record.get("identity") if isinstance(record, Mapping) else None
    if owner != identity:
        problem = f"belongs to another run ({owner}, this one is {identity})"
        raise InputError("out", folder.uri, problem, "Give another folder.")


def delete_outputs(folder: Storage, patterns: Sequence[str]) -> list[str]:
    """Delete a stage's outputs. Keep its lease and `stage.json`, which mark the folder as the stage's own.

    Args:
        folder: Folder of the stage.
        patterns: Patterns of the paths that the stage writes; see `objectaware.stages.registry.Stage.outputs`.

    Returns:
        Names of the files that are not outputs of the stage and stay.
    """
    folder.delete(RESULT_FILE)  # first: otherwise a half-deleted stage would be reused as a complete one
    names = [name for name, _, _ in folder.list_files()]
    outputs = [name for name in names if _is_output(name, patterns)]
    folder.delete_files(outputs)
    kept = {name for name in names if name == STAGE_FILE or name.startswith(f"{LEASE_FOLDER}/")}
    return sorted({*names} - {*outputs} - kept)


def shown_names(names: Iterable[str]) -> str:
    """Return the first few names, and the number of the others."""
    shown = list(names)
    more = f" and {len(shown) - _NUM_SHOWN} more" if len(shown) > _NUM_SHOWN else ""
    return ", ".join(shown[:_NUM_SHOWN]) + more


def _is_of_lease(name: str) -> bool:
    return LEASE_FILE.fullmatch(name) is not None or is_temporary(name)


def _is_output(name: str, patterns: Sequence[str]) -> bool:
    parts = PurePosixPath(name).parts
    if is_temporary(parts[-1]) or name == RESULT_FILE:
        return True
    return any(_matches(parts, pattern) for pattern in patterns)


def _matches(parts: Sequence[str], pattern: str) -> bool:
    wanted = PurePosixPath(pattern).parts
    if len(parts) != len(wanted) and not (pattern.endswith("/") and len(parts) > len(wanted)):
        return False
    return all(fnmatch.fnmatchcase(part, one) for part, one in zip(parts, wanted, strict=False))
