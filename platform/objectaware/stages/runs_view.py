"""Tables of runs: storage and MLflow side by side, one run with its lineage, or several runs compared."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from objectaware.stages.outputs import SWEEP
from objectaware.stages.runs import StoredRun, ancestors, descendants
from objectaware.tracking.server import RecordedRun

_SHOWN_DIGITS = 8
_MOST_SOURCES = 3
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


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
