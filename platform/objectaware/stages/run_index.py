"""The index of a storage's runs: one small file per run that nobody computes, so that a list takes one look at each.

A command deletes a run's entry before it begins to compute, and writes a new one when it ends, both under the run's
lease. An evaluation does so with the features that it computes, under its own lease. A run that is being computed, or
whose command was killed, thus has no entry, and neither has a run of an earlier version. `look` then reads its folder,
which takes several requests. An entry whose folder is gone counts for nothing.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from objectaware.data.storage import Storage
from objectaware.stages.identity import RESULT_FILE, STAGE_FILE, SWEEP
from objectaware.stages.lease import LeaseLostError

_FOLDER = "index"
_SUFFIX = ".json"
_TRIALS = "trials/"

Status = Literal["finished", "unfinished", "unknown"]

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Entry:
    """Describe a run as a list shows it.

    Attributes:
        stage: Kind of stage, or `sweep`.
        status: `finished`, `unfinished`, or `unknown` if the folder has no description, or a damaged description or
            result.
        num_bytes: Total size of its files.
        modified: Time at which a file in it last changed, in seconds since 1970.
        config: Its configuration.
        sources: Hashes of its inputs, and identities of the stages of its trials.
        checkpoint: Address of the checkpoint that it made.
        user: Name of the user who last began to compute it; None if that is not known, or a file is damaged.
    """

    stage: str
    status: Status
    num_bytes: int
    modified: float
    config: Mapping[str, Any] = field(default_factory=dict)
    sources: tuple[str, ...] = ()
    checkpoint: str | None = None
    user: str | None = None


def look(stage: str, folder: Storage) -> Entry | None:
    """Return the entry of a run by the files in its folder, or None if there are none."""
    files = folder.list_files()
    if not files:
        return None
    names = {name for name, _, _ in files}
    num_bytes, modified = sum(size for _, size, _ in files), max(time_ns for _, _, time_ns in files) / 1e9
    name = "sweep.json" if stage == SWEEP else STAGE_FILE
    trials = sorted(each for each in names if each.startswith(_TRIALS)) if stage == SWEEP else []
    found: dict[str, Any] = {}
    damaged = set()
    for each, text in folder.read_small(names & {name, RESULT_FILE, *trials}).items():
        try:
            found[each] = json.loads(text)
        except ValueError as error:  # must not keep the other runs from being listed
            _logger.warning("%s/%s is damaged (%s): restore it, or delete it", folder.uri, each, error)
            damaged.add(each)
    if name not in found:
        return Entry(stage, "unknown", num_bytes, modified)
    description, result = found[name], found.get(RESULT_FILE)
    of_trials = [part["identity"] for trial in trials if trial in found for part in found[trial]["stages"].values()]
    status: Status = "unknown" if RESULT_FILE in damaged else "unfinished" if result is None else "finished"
    return Entry(
        stage,
        status,
        num_bytes,
        modified,
        description["config"],
        tuple(sorted({*map(str, description.get("inputs", {}).values()), *of_trials})),
        (result or {}).get("values", {}).get("checkpoint"),
        None if RESULT_FILE in damaged else description.get("user"),  # nobody's, so that it is not pruned as unfinished
    )


@contextmanager
def indexed(stage: str, folder: Storage) -> Iterator[None]:
    """Take a run out of the index for the `with` block, and enter it as it then is, whatever ends the block.

    Args:
        stage: Kind of stage, or `sweep`.
        folder: Its folder in the storage, guarded by its lease.
    """
    drop_entry(folder)
    try:
        yield
    finally:
        write_entry(stage, folder)


def write_entry(stage: str, folder: Storage) -> None:
    """Enter a run in the index as it now is, if the store answers and the lease is not lost.

    Args:
        stage: Kind of stage, or `sweep`.
        folder: Its folder in the storage, guarded by its lease.
    """
    try:
        entry = look(stage, folder)
        if entry is not None and entry.status != "unknown":  # else the stage was refused before it began
            index, name = _place(folder)
            index.write_json(name, asdict(entry))
    except (OSError, LeaseLostError) as error:  # without an entry, the run is looked up in its folder
        _logger.info("%s is not entered in the index of runs (%s)", folder.uri, error)


def drop_entry(folder: Storage) -> None:
    """Take a run out of the index, before its files change."""
    index, name = _place(folder)
    index.delete(name)


def _place(folder: Storage) -> tuple[Storage, str]:
    of_kind, identity = folder.split()
    storage, _ = of_kind.split()
    return storage.child(_FOLDER), f"{identity}{_SUFFIX}"


def read_entries(storage: Storage) -> dict[str, Entry]:
    """Return all entries by their runs' identities."""
    index = storage.child(_FOLDER)
    entries = {}
    for name, text in index.read_small(index.list_names()).items():
        try:
            fields = json.loads(text)
            entries[name.removesuffix(_SUFFIX)] = Entry(**{**fields, "sources": tuple(fields["sources"])})
        except (KeyError, TypeError, ValueError) as error:  # of another version
            _logger.info("the entry %s of %s is left out (%s)", name, index.uri, error)
    return entries
