"""Checks that all nodes of a cluster see the same storage, so that a stage does not fail at its first checkpoint."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from objectaware.data.storage import Storage
from objectaware.distributed.cluster import node_addresses, run_on_nodes
from objectaware.errors import InputError
from objectaware.tracking import TrackingStore

_SECONDS = 120.0


def require_shared(storage: Storage, tracking: TrackingStore) -> None:
    """Refuse a storage or a database of runs that belongs to one machine, on a cluster of several.

    Raises:
        InputError: The cluster has more than one machine, and runs would go to SQLite, or a node cannot read the
            driver's files in the storage, or cannot write there.
    """
    if len(set(node_addresses().values())) == 1:  # one machine
        return
    if tracking.is_sqlite:
        remedy = "Start an MLflow server that the cluster reaches (docs/cluster.md), and give its address."
        raise InputError("MLFLOW_TRACKING_URI", tracking.server.shown_address, "is a file of one node alone", remedy)
    problems = {address: problem for address, problem in storage_problems(storage).items() if problem}
    if problems:
        address, problem = next(iter(problems.items()))
        remedy = "Give a folder that all nodes share, such as s3://bucket/runs or an NFS mount."
        raise InputError("storage", storage.uri, f"is not the cluster's: node {address} {problem}", remedy)


def storage_problems(storage: Storage) -> dict[str, str]:
    """Try the storage from every node.

    Returns:
        For each node's address, its problem as a clause, or an empty text if it has none.
    """
    with _note(storage) as (name, note):
        return run_on_nodes(_try_storage, storage, name, note, timeout_seconds=_SECONDS)


@contextmanager
def _note(storage: Storage) -> Iterator[tuple[str, bytes]]:
    name, note = f"check-{uuid.uuid4().hex}", uuid.uuid4().bytes
    storage.write_bytes(name, note)
    try:
        yield name, note
    finally:
        storage.delete(name)


def _try_storage(storage: Storage, name: str, note: bytes) -> str:
    try:
        if not storage.exists(name) or storage.read_bytes(name) != note:
            return "does not see what the driver wrote"
        answer = f"{name}-{uuid.uuid4().hex}"
        storage.write_bytes(answer, note)
        storage.delete(answer)
    except OSError as error:
        return f"cannot write there ({error})"
    return ""
