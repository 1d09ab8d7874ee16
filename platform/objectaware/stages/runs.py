"""The runs of stages and sweeps in a storage: their sources, their tables, and which of them can be deleted."""

from __future__ import annotations

import logging
import math
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from objectaware.data.storage import Storage
from objectaware.errors import InputError
from objectaware.process import user_name
from objectaware.stages.identity import RESULT_FILE, STAGE_FILE, SWEEP, SWEEP_OUTPUTS, delete_outputs
from objectaware.stages.lease import LEASE_FOLDER, Lease, current_holder
from objectaware.stages.registry import all_stages
from objectaware.stages.run_index import Entry, drop_entry, look, read_entries
from objectaware.tracking.store import RecordedRun

RunStatus = Literal["finished", "running", "unfinished", "unknown"]

_SECONDS_A_DAY = 86400.0
_LEAST_PREFIX = 4
_FEATURES = "features"
_NUM_LOOKS_AT_ONCE = 32
_IDENTITY = re.compile("[0-9a-f]{20}")
_SHOWN_DIGITS = 8
_MOST_SOURCES = 3
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class StoredRun:
    """A run's folder in the storage.

    Attributes:
        stage: Kind of stage, or `sweep`.
        identity: The run's identity, which is the name of its folder.
        status: `finished`, `running` right now, `unfinished`, or `unknown` if the folder has no description, or a
            damaged description or result.
        folder: The folder.
        num_bytes: Total size of its files.
        modified: Time at which a file in it last changed, in seconds since 1970.
        config: Its configuration.
        checkpoint: Path, inside the folder, of the checkpoint that it made.
        made_from: Identities of the runs in the same storage whose outcome it used.
        user: Name of the user who last began to compute it; None if that is not known.
    """

    stage: str
    identity: str
    status: RunStatus
    folder: Storage
    num_bytes: int
    modified: float
    config: Mapping[str, Any] = field(default_factory=dict)
    checkpoint: str | None = None
    made_from: frozenset[str] = frozenset()
    user: str | None = None

    @property
    def dataset(self) -> str | None:
        """Return the images that the run worked on."""
        for name in ("data", "train"):
            data = self.config.get(name)
            if isinstance(data, Mapping):
                return str(data.get("root"))
        return None

    @property
    def values(self) -> Mapping[str, Any]:
        """Read its results; empty if it is not finished.

        Raises:
            InputError: The file is damaged.
        """
        try:
            return dict(self.folder.read_json(RESULT_FILE).get("values", {}))
        except FileNotFoundError:
            return {}


def stored_runs(storage: Storage) -> list[StoredRun]:
    """Return all runs in a storage, the oldest first. Mask stores outside of it (`--out`) are not included."""
    kinds = (*_kinds(), SWEEP)
    entries = read_entries(storage)  # before the folders: an entry whose run was deleted since then finds none
    with ThreadPoolExecutor(_NUM_LOOKS_AT_ONCE) as pool:
        of_kinds = [storage.child(kind) for kind in kinds]
        listed_names = zip(kinds, of_kinds, pool.map(Storage.list_folders, of_kinds), strict=True)
        folders = [
            (kind, name, of_kind.child(name))
            for kind, of_kind, names in listed_names
            for name in names
            if _IDENTITY.fullmatch(name) is not None  # otherwise a user's folder
        ]
        looks = pool.map(lambda one: _run_in(one[0], one[1], one[2], entries.get(one[1])), folders)
        found = [run for run in looks if run is not None]
    known = {run.identity for run in found}
    linked = [replace(run, made_from=run.made_from & known - {run.identity}) for run in found]
    return sorted(linked, key=lambda run: run.modified)


def _kinds() -> dict[str, tuple[str, ...]]:
    """Return the kinds of stages that have folders, each with the patterns of its outputs."""
    return {kind: one.outputs for kind, one in all_stages().items() if one.version is not None}


def _run_in(stage: str, identity: str, folder: Storage, entry: Entry | None) -> StoredRun | None:
    """Return the run of a folder, by its entry in the index or else by its files; None if it has none."""
    is_running = False
    if entry is None or entry.stage != stage:
        entry = look(stage, folder)
        if entry is None:
            return None
        is_running = entry.status != "unknown" and current_holder(folder) is not None
    return StoredRun(
        stage,
        identity,
        "running" if is_running else entry.status,
        folder,
        entry.num_bytes,
        entry.modified,
        entry.config,
        None if entry.checkpoint is None else entry.checkpoint.rpartition(f"/{identity}/")[2],
        # The hash of a mask store is the identity of the run that made it, even if it lies in a user's own folder.
        frozenset({*_identities(entry.config), *entry.sources}),
        entry.user,
    )


def _identities(value: object) -> Iterator[str]:
    """Yield the identities in a configuration's addresses, which still hold if the storage has been moved."""
    if isinstance(value, str):
        yield from re.findall(rf"/(?:{'|'.join(_kinds())})/({_IDENTITY.pattern})(?:/|$)", value)
    elif isinstance(value, Mapping | list | tuple):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _identities(item)


def find_run(runs: Sequence[StoredRun], name: str) -> StoredRun:
    """Return the run whose identity begins with `name`.

    Raises:
        InputError: No run or several runs match, or the name is too short to identify one.
    """
    found = [run for run in runs if run.identity.startswith(name)]
    if len(name) < _LEAST_PREFIX or len(found) != 1:
        problem = "is not the beginning of one run's identity" + (f" but of {len(found)}" if len(found) > 1 else "")
        raise InputError("run", name, problem, "objectaware runs list shows them; four digits or more are enough.")
    return found[0]


def ancestors(runs: Sequence[StoredRun], run: StoredRun) -> list[StoredRun]:
    """Return all runs that a run was made from, directly or not, the oldest first."""
    by_identity = {each.identity: each for each in runs}
    found: set[str] = set()
    waiting = set(run.made_from)
    while waiting:
        found |= waiting
        waiting = {source for identity in waiting for source in by_identity[identity].made_from} - found
    return [each for each in runs if each.identity in found]


def descendants(runs: Sequence[StoredRun], run: StoredRun) -> list[StoredRun]:
    """Return all runs that were made from a run, directly or not, the oldest first."""
    return [each for each in runs if run in ancestors(runs, each)]


def prunable(
    runs: Sequence[StoredRun],
    *,
    older_than_days: float | None = None,
    all_users: bool = False,
    now: float | None = None,
) -> list[StoredRun]:
    """Return this user's runs that can be deleted: unfinished runs and, on request, old ones.

    Runs that are being computed right now and sources of runs that stay are never returned. Evaluations compute
    features without a lease in their folder. Unfinished features are therefore returned only after a day without a
    change.

    Args:
        runs: All runs.
        older_than_days: Include finished runs whose files have not changed for this many days.
        all_users: Include runs of other users and runs, or folders without a description, whose user is not known.
        now: The present, in seconds since 1970.
    """
    days = math.inf if older_than_days is None else older_than_days
    now = time.time() if now is None else now
    oldest = now - days * _SECONDS_A_DAY
    user = user_name()
    leaving = {
        run.identity
        for run in runs
        if (all_users or (user is not None and run.user == user))
        and (run.status in ("unfinished", "unknown") or (run.status == "finished" and run.modified < oldest))
        and (run.stage != _FEATURES or run.status == "finished" or run.modified < now - _SECONDS_A_DAY)
    }
    needed = {each.identity for run in runs if run.identity not in leaving for each in ancestors(runs, run)}
    return [run for run in runs if run.identity in leaving - needed]


def prune(runs: Sequence[StoredRun]) -> tuple[int, int, dict[str, list[str]]]:
    """Delete the files of runs, and those of their folders that are then empty.

    A run that was finished or begun by a command after it was listed stays, and a warning names it.

    Returns:
        Number of runs that were deleted; number of bytes that were freed; and the files that no stage of this project
        wrote and that stay, by folder.

    Raises:
        LeaseHeldError: Another command has started to compute one of the runs.
    """
    num_runs, num_bytes, kept = 0, 0, dict[str, list[str]]()
    outputs = {**_kinds(), SWEEP: SWEEP_OUTPUTS}
    for run in runs:
        with Lease(run.folder) as lease:
            folder = run.folder.guarded(lease.claim)
            drop_entry(folder)  # even if the run stays, since a wrong entry may be why it was listed
            files = folder.list_files()
            if not _is_as_listed(run, files):
                _logger.warning("%s stays: it was finished or begun again after it was listed", folder.uri)
                continue
            lease.for_good = True
            num_runs += 1
            num_bytes += sum(size for _, size, _ in files)
            names = delete_outputs(folder, outputs[run.stage])
            if not names:
                folder.delete(STAGE_FILE)
        num_bytes -= sum(size for _, size, _ in run.folder.list_files())
        if names:
            kept[run.folder.uri] = names
    return num_runs, num_bytes, kept


def _is_as_listed(run: StoredRun, files: Sequence[tuple[str, int, int]]) -> bool:
    """Return whether no command has begun or finished a run since it was listed.

    Args:
        run: The run as it was listed.
        files: Its files now, from `Storage.list_files`. Those of the lease that is held now count for nothing.
    """
    if all(name.startswith(f"{LEASE_FOLDER}/") for name, _, _ in files):
        return True  # nothing is left that could be lost
    # Each command that takes a run up writes its description again.
    begun = max((time_ns / 1e9 for name, _, time_ns in files if name in (STAGE_FILE, "sweep.json")), default=0.0)
    found = look(run.stage, run.folder)
    return found is not None and (found.status, found.user) == (run.status, run.user) and begun <= run.modified


def listed(stored: Sequence[StoredRun], recorded: Sequence[RecordedRun]) -> list[dict[str, Any]]:
    """Return one row per run, the oldest first: the runs in the storage with their state in MLflow, then studies.

    Studies exist in MLflow alone. Trials are not listed, since they have a row in their sweep's own tables.
    """
    newest = {run.identity: run for run in recorded}
    rows: list[dict[str, Any]] = []
    for run in stored:
        record = newest.pop(run.identity, None)
        sources = " ".join(sorted(identity[:_SHOWN_DIGITS] for identity in run.made_from))
        rows.append(
            {
                "run": run.identity[:_SHOWN_DIGITS],
                "stage": run.stage,
                "status": run.status,
                "user": run.user,
                "MLflow": None if record is None else record.status,
                "changed": _moment(run.modified),
                "size": format_bytes(run.num_bytes),
                "dataset": run.dataset or (None if record is None else record.dataset),
                "checkpoint": run.checkpoint,
                "made from": f"{len(run.made_from)} runs" if len(run.made_from) > _MOST_SOURCES else sources or None,
                "name": None if record is None else record.name,
            }
        )
    return rows + [
        {
            "run": record.identity[:_SHOWN_DIGITS],
            "stage": record.kind,
            "status": "not stored",
            "MLflow": record.status,
            "changed": _moment(record.started / 1000),
            "dataset": record.dataset,
            "name": record.name,
        }
        for record in newest.values()
        if record.kind != "trial"
    ]


def shown(runs: Sequence[StoredRun], run: StoredRun, recorded: Sequence[RecordedRun]) -> dict[str, Any]:
    """Return all that is known of a run: its row in the list, configuration, values, metrics and lineage."""
    same = [each for each in recorded if each.identity == run.identity]

    def lines(found: Sequence[StoredRun]) -> list[str]:
        return [f"{each.identity[:_SHOWN_DIGITS]} {each.stage} ({each.status})" for each in found]

    return {
        "identity": run.identity,
        "stage": run.stage,
        "status": run.status,
        "user": run.user,
        "folder": run.folder.uri,
        "bytes": run.num_bytes,
        "changed": _moment(run.modified),
        "config": dict(run.config),
        "values": dict(run.values),
        "MLflow": [{"run_id": each.run_id, "name": each.name, "status": each.status} for each in same],
        "metrics": dict(same[-1].metrics) if same else {},
        "made from": lines(ancestors(runs, run)),
        "made into": lines(descendants(runs, run)),
    }


def compared(runs: Sequence[StoredRun], recorded: Sequence[RecordedRun]) -> list[dict[str, Any]]:
    """Compare runs side by side: one row per field of the configuration that differs, and one per number.

    Args:
        runs: The runs, one per column.
        recorded: Runs in MLflow, for their metrics.
    """
    metrics = {run.identity: run.metrics for run in recorded}
    columns = [run.identity[:_SHOWN_DIGITS] for run in runs]
    configs = [_flat({"stage": run.stage, **run.config}) for run in runs]
    numbers = []
    for run in runs:
        values = {} if run.stage == SWEEP else _flat(run.values)
        measured = {name: one for name, one in values.items() if type(one) in (int, float)}
        numbers.append({**metrics.get(run.identity, {}), **measured})
    rows = [row for row in _side_by_side(configs, columns) if len({str(row[column]) for column in columns}) > 1]
    return rows + _side_by_side(numbers, columns)


def _side_by_side(parts: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> list[dict[str, Any]]:
    names = dict.fromkeys(name for part in parts for name in part)
    return [
        {"field": name, **{column: part.get(name) for column, part in zip(columns, parts, strict=True)}}
        for name in names
    ]


def _flat(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, item in value.items():
        flat |= _flat(item, f"{prefix}{key}.") if isinstance(item, Mapping) else {f"{prefix}{key}": item}
    return flat


def _moment(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


def format_bytes(num_bytes: float) -> str:
    """Return a size in a readable form: `3.1 MiB`."""
    unit = min(int(math.log2(max(num_bytes, 1)) / 10), len(_UNITS) - 1)
    return f"{num_bytes / 1024**unit:.{min(unit, 1)}f} {_UNITS[unit]}"
