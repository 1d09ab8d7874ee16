"""What is asked of every node before a stage starts; one machine stands for all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from objectaware.data.storage import Storage
from objectaware.distributed.cluster import node_addresses, run_on_nodes
from objectaware.errors import InputError
from objectaware.stages import shared
from objectaware.tracking import TrackingStore


def test_every_node_runs_it_once(ray_session: None) -> None:
    def process() -> int:
        return os.getpid()

    answers = run_on_nodes(process, timeout_seconds=60)
    assert list(answers) == list(node_addresses().values())
    assert os.getpid() not in answers.values()


def test_a_shared_storage_is_seen_and_left_as_it_was(ray_session: None, tmp_path: Path) -> None:
    assert list(shared.storage_problems(Storage.from_uri(tmp_path)).values()) == [""]
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_another_machine_is_told_from_the_drivers(
    ray_session: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def written_elsewhere(storage: Storage) -> Iterator[tuple[str, bytes]]:
        yield "check", b"what the driver wrote"

    monkeypatch.setattr(shared, "_note", written_elsewhere)
    storage = Storage.from_uri(tmp_path)
    assert list(shared.storage_problems(storage).values()) == ["does not see what the driver wrote"]
    storage.write_bytes("check", b"what somebody else wrote")
    assert list(shared.storage_problems(storage).values()) == ["does not see what the driver wrote"]


def test_several_machines_need_a_server_and_a_storage_for_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = Storage.from_uri(tmp_path)
    machines = {"a": "10.0.0.1", "b": "10.0.0.2"}
    monkeypatch.setattr(shared, "node_addresses", lambda: machines)
    monkeypatch.setattr(shared, "storage_problems", lambda _: {"10.0.0.1": "", "10.0.0.2": "cannot write there"})
    with pytest.raises(InputError, match="is a file of one node alone"):
        shared.require_shared(storage, TrackingStore.open(tmp_path))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    with pytest.raises(InputError, match=r"node 10\.0\.0\.2 cannot write there"):
        shared.require_shared(storage, TrackingStore.open(tmp_path))
    # Nodes of one machine, and one node alone, share its disk.
    machines["b"] = "10.0.0.1"
    shared.require_shared(storage, TrackingStore.open(tmp_path))
