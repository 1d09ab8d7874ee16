"""The runs of stages and sweeps in a storage: their sources, their tables, and which of them can be deleted."""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from objectaware.data.storage import Storage
from objectaware.errors import InputError
from objectaware.stages.identity import RESULT_FILE, STAGE_FILE, SWEEP, SWEEP_OUTPUTS, delete_outputs
from objectaware.stages.lease import Lease, current_holder
from objectaware.stages.registry import all_stages
from objectaware.tracking.browse import RecordedRun

RunStatus = Literal["finished", "running", "unfinished", "unknown"]

_DESCRIPTIONS = {SWEEP: "sweep.json"}
_SECONDS_A_DAY = 86400.0
_LEAST_PREFIX = 4
_IDENTITY = re.compile("[0-9a-f]{20}")
_SHOWN_DIGITS = 8
_MOST_SOURCES = 3
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


@dataclass(frozen=True)
class StoredRun:
    """A run's folder in the storage.

    Attributes:
        stage: Kind of stage, or `sweep`.
        identity: The run's identity, which is the name of its folder.
        status: `finished`, `running` right now, `unfinished`, or `unknown` if the folder has no description.
        folder: The folder.
        num_bytes: Total size of its files.
        modified: Time at which a file in it last changed, in seconds since 1970.
        config: Its configuration.
        values: Its results.
        made_from: Identities of the runs in the same storage whose outcome it used.
        run_id: Its MLflow run.
    """

    stage: str
    identity: str
    status: RunStatus
    folder: Storage
    num_bytes: int
    modified: float
    config: Mapping[str, Any] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)
    made_from: frozenset[str] = frozenset()
    run_id: str | None = None

    @property
    def dataset(self) -> str | None:
        """Return the images that the run worked on."""
        for name in ("data", "train"):
            data = self.config.get(name)
            if isinstance(data, Mapping):
                return str(data.get("root"))
        return None

    @property
    def checkpoint(self) -> str | None:
        """Return the path, inside the run's folder, of the checkpoint that it made."""
        found = self.values.get("checkpoint")
        return None if found is None else str(found).rpartition(f"/{self.identity}/")[2]


def stored_runs(storage: Storage) -> list[StoredRun]:
    """Return all runs in a storage, the oldest first. Mask stores outside of it (`--out`) are not included."""
    found = [run for stage in (*_kinds(), SWEEP) for run in _runs_of(storage, stage)]
    known = {run.identity for run in found}
    linked = [
        StoredRun(**{**vars(run), "made_from": frozenset(run.made_from & known - {run.identity})}) for run in found
    ]
    return sorted(linked, key=lambda run: run.modified)


def _kinds() -> dict[str, tuple[str, ...]]:
    """Return the kinds of stages that have folders, each with the patterns of its outputs."""
    return {kind: one.outputs for kind, one in all_stages().items() if one.version is not None}


def _runs_of(storage: Storage, stage: str) -> Iterator[StoredRun]:
    files: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for name, size, modified_ns in storage.child(stage).list_files():
        if "/" in name:
            files[name.split("/")[0]].append((size, modified_ns))
    for identity, sizes in files.items():
        if _IDENTITY.fullmatch(identity) is None:  # a user's folder
            continue
        folder = storage.child(stage).child(identity)
        num_bytes, modified = sum(size for size, _ in sizes), max(time for _, time in sizes) / 1e9
        yield _read(stage, identity, folder, num_bytes, modified)


def _read(stage: str, identity: str, folder: Storage, num_bytes: int, modified: float) -> StoredRun:
    name = _DESCRIPTIONS.get(stage, STAGE_FILE)
    if not folder.exists(name):
        return StoredRun(stage, identity, "unknown", folder, num_bytes, modified)
    description = folder.read_json(name)
    result = folder.read_json(RESULT_FILE) if folder.exists(RESULT_FILE) else None
    # Hashes of mask stores are the identities of the runs that made them, even if a store lies in a user's own folder.
    made_from = {*_identities(description["config"]), *map(str, description.get("inputs", {}).values())}
    trials = folder.child("trials")
    made_from |= {
        part["identity"] for trial in trials.list_names() for part in trials.read_json(trial)["stages"].values()
    }
    return StoredRun(
        stage,
        identity,
        _status(folder, is_finished=result is not None),
        folder,
        num_bytes,
        modified,
        description["config"],
        (result or {}).get("values", {}),
        frozenset(made_from),
        (result or {}).get("run_id"),
    )


def _status(folder: Storage, *, is_finished: bool) -> RunStatus:
    if current_holder(folder) is not None:
        return "running"
    return "finished" if is_finished else "unfinished"


def _identities(value: object) -> Iterator[str]:
    """Yield the identities in a configuration's addresses, which still hold if the storage has been moved."""
    if isinstance(value, Mapping):
        for item in value.values():
            yield from _identities(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _identities(item)
    elif isinstance(value, str):
        yield from re.findall(rf"/(?:{'|'.join(_kinds())})/({_IDENTITY.pattern})(?:/|$)", value)


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
    waiting = list(run.made_from)
    while waiting:
        identity = waiting.pop()
        if identity not in found:
            found.add(identity)
            waiting += by_identity[identity].made_from
    return [each for each in runs if each.identity in found]


def descendants(runs: Sequence[StoredRun], run: StoredRun) -> list[StoredRun]:
    """Return all runs that were made from a run, directly or not, the oldest first."""
    return [each for each in runs if run in ancestors(runs, each)]


def prunable(
    runs: Sequence[StoredRun], *, older_than_days: float | None = None, now: float | None = None
) -> list[StoredRun]:
    """Return the runs that can be deleted: unfinished runs, folders without a description and, on request, old runs.

    Runs that are being computed right now and sources of runs that stay are never returned.

    Args:
        runs: All runs.
        older_than_days: Include finished runs whose files have not changed for this many days.
        now: The present, in seconds since 1970.
    """
    present = time.time() if now is None else now
    leaving = {
        run.identity
        for run in runs
        if run.status in ("unfinished", "unknown")
        or (
            run.status == "finished"
            and older_than_days is not None
            and present - run.modified > older_than_days * _SECONDS_A_DAY
        )
    }
    needed = {each.identity for run in runs if run.identity not in leaving for each in ancestors(runs, run)}
    return [run for run in runs if run.identity in leaving - needed]


@dataclass(frozen=True)
class Pruned:
    """The result of deleting runs.

    Attributes:
        num_bytes: Number of bytes that were freed.
        kept: Files that no stage of this project wrote and that stay, by folder.
    """

    num_bytes: int
    kept: Mapping[str, Sequence[str]]


def prune(runs: Sequence[StoredRun]) -> Pruned:
    """Delete the files of runs, and those of their folders that are then empty.

    Raises:
        LeaseHeldError: Another command has started to compute one of the runs.
    """
    num_bytes, kept = 0, {}
    outputs = {**_kinds(), SWEEP: SWEEP_OUTPUTS}
    for run in runs:
        with Lease(run.folder, for_good=True) as lease:
            folder = run.folder.guarded(lease.claim)
            names = delete_outputs(folder, outputs[run.stage])
            if not names:
                folder.delete(STAGE_FILE)
        sizes = {name: size for name, size, _ in run.folder.list_files()}
        num_bytes += run.num_bytes - sum(sizes.values())
        if names:
            kept[run.folder.uri] = names
    return Pruned(num_bytes, kept)


def listed(stored: Sequence[StoredRun], recorded: Sequence[RecordedRun]) -> list[dict[str, Any]]:
    """Return one row per run, the oldest first: the runs in the storage with their state in MLflow, then studies.

    Studies exist in MLflow alone. Trials are not listed, since they have a row in their sweep's own tables.
    """
    newest = {run.identity: run for run in recorded}
    rows = [_stored_row(run, newest.get(run.identity)) for run in stored]
    kept = {run.identity for run in stored}
    alone = [run for run in newest.values() if run.identity not in kept and run.kind != "trial"]
    return rows + [_recorded_row(run) for run in alone]


def _stored_row(run: StoredRun, recorded: RecordedRun | None) -> dict[str, Any]:
    return {
        "run": run.identity[:_SHOWN_DIGITS],
        "stage": run.stage,
        "status": run.status,
        "MLflow": None if recorded is None else recorded.status,
        "changed": _moment(run.modified),
        "size": format_bytes(run.num_bytes),
        "dataset": run.dataset or (recorded.dataset if recorded is not None else None),
        "checkpoint": run.checkpoint,
        "made from": _sources(run),
        "name": None if recorded is None else recorded.name,
    }


def _sources(run: StoredRun) -> str | None:
    if len(run.made_from) > _MOST_SOURCES:
        return f"{len(run.made_from)} runs"
    return " ".join(sorted(identity[:_SHOWN_DIGITS] for identity in run.made_from)) or None


def _recorded_row(run: RecordedRun) -> dict[str, Any]:
    return {
        "run": run.identity[:_SHOWN_DIGITS],
        "stage": run.kind,
        "status": "not stored",
        "MLflow": run.status,
        "changed": _moment(run.started / 1000),
        "dataset": run.dataset,
        "name": run.name,
    }


def shown(runs: Sequence[StoredRun], run: StoredRun, recorded: Sequence[RecordedRun]) -> dict[str, Any]:
    """Return all that is known of a run: its row in the list, configuration, values, metrics and lineage."""
    same = [each for each in recorded if each.identity == run.identity]
    return {
        "identity": run.identity,
        "stage": run.stage,
        "status": run.status,
        "folder": run.folder.uri,
        "bytes": run.num_bytes,
        "changed": _moment(run.modified),
        "config": dict(run.config),
        "values": dict(run.values),
        "MLflow": [{"run_id": each.run_id, "name": each.name, "status": each.status} for each in same],
        "metrics": dict(same[-1].metrics) if same else {},
        "made from": [_line(each) for each in ancestors(runs, run)],
        "made into": [_line(each) for each in descendants(runs, run)],
    }


def _line(run: StoredRun) -> str:
    return f"{run.identity[:_SHOWN_DIGITS]} {run.stage} ({run.status})"


def compared(runs: Sequence[StoredRun], recorded: Sequence[RecordedRun]) -> list[dict[str, Any]]:
    """Compare runs side by side: one row per field of the configuration that differs, and one per number.

    Args:
        runs: The runs, one per column.
        recorded: Runs in MLflow, for their metrics.
    """
    newest = {run.identity: run for run in recorded}
    columns = [run.identity[:_SHOWN_DIGITS] for run in runs]
    configs = [_flat({"stage": run.stage, **run.config}) for run in runs]
    numbers = []
    for run in runs:
        metrics = newest[run.identity].metrics if run.identity in newest else {}
        values = {} if run.stage == SWEEP else _flat(run.values)
        numbers.append({**metrics, **{name: value for name, value in values.items() if _is_number(value)}})
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


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _moment(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


def format_bytes(num_bytes: float) -> str:
    """Return a size in a readable form: `3.1 MiB`."""
    for unit in _UNITS:
        if num_bytes < 1024 or unit == _UNITS[-1]:
            break
        num_bytes /= 1024
    return f"{num_bytes:.0f} {unit}" if unit == "B" else f"{num_bytes:.1f} {unit}"
