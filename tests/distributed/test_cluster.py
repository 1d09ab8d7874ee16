from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import ray
from ray.util.placement_group import placement_group, remove_placement_group

from objectaware.data.storage import Storage
from objectaware.distributed import cluster
from objectaware.distributed.cluster import (
    node_addresses,
    placement_groups,
    ray_cluster,
    run_on_nodes,
    wait_and_remove_new_groups,
)
from objectaware.distributed.local_ray import log_level
from objectaware.errors import Finding, InputError
from objectaware.stages import machine
from objectaware.tracking import TrackingStore
from processes import processes_using, wait_for_end


def test_an_initialised_ray_is_used_and_left_alone(ray_session: None) -> None:
    job = ray.get_runtime_context().get_job_id()
    with ray_cluster(min_cpus=10_000):
        assert ray.get_runtime_context().get_job_id() == job
    assert ray.is_initialized()


_STARTS_AND_WAITS = """
import signal, sys, time
from objectaware.distributed.cluster import ray_cluster
from objectaware.distributed.task import run_task

def wait(marker):
    open(marker, "w").close()
    time.sleep(600)

# As in a terminal: what a shell starts in the background inherits that SIGINT is ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
try:
    with ray_cluster(min_cpus=11):
        import ray
        print("cpus", ray.cluster_resources()["CPU"] >= 11, flush=True)
        run_task(wait, sys.argv[1])
except KeyboardInterrupt:
    print("interrupted", ray.is_initialized(), flush=True)
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("number", "send"), [(signal.SIGINT, os.killpg), (signal.SIGTERM, os.kill)])
def test_an_interrupt_ends_the_ray_that_was_started(
    number: signal.Signals, send: Callable[[int, int], None], clean_environment: Path, tmp_path: Path
) -> None:
    """Ctrl-C in a terminal goes to every process of the foreground group, SIGTERM to the command alone."""
    folder = clean_environment / f"c{number}"
    folder.mkdir()
    marker = tmp_path / "started"
    os.mkfifo(marker)
    process = subprocess.Popen(
        [sys.executable, "-c", _STARTS_AND_WAITS, str(marker)],
        env={**os.environ, "RAY_TMPDIR": str(folder)},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    marker.open().close()  # returns when the task has opened the other end
    send(process.pid, number)
    output, _ = process.communicate()
    assert output.splitlines() == ["cpus True", "interrupted False"]
    assert process.returncode == 0
    # Helpers of the dashboard end on their own once their parent is gone; none may stay.
    for process_id in processes_using(folder):
        wait_for_end(process_id, seconds=60)
    assert processes_using(folder) == {}


def test_every_node_runs_it_once(ray_session: None) -> None:
    def process() -> int:
        return os.getpid()

    answers, silent = run_on_nodes(process, timeout_seconds=60)
    assert list(answers) == list(node_addresses().values())
    assert silent == []
    assert os.getpid() not in answers.values()


def test_a_node_that_does_not_answer_in_time_is_named(ray_session: None) -> None:
    def hang() -> None:
        threading.Event().wait(600)

    answers, silent = run_on_nodes(hang, timeout_seconds=0.01)
    assert answers == {}
    assert silent == list(node_addresses().values())


def _node_findings(storage: Storage) -> dict[str, Finding]:
    return {finding.name: finding for finding in machine._check_nodes(storage)}


def test_a_shared_storage_is_seen_and_left_as_it_was(ray_session: None, tmp_path: Path) -> None:
    found = _node_findings(Storage.from_uri(tmp_path))
    assert [found[name].state for name in ("nodes", "storage of all nodes")] == ["ok", "ok"]
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_another_machine_is_told_from_the_drivers(
    ray_session: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Storage, "write_bytes", lambda self, name, content: None)
    storage = Storage.from_uri(tmp_path)
    assert "does not see what the driver wrote" in _node_findings(storage)["storage of all nodes"].found
    monkeypatch.setattr(Storage, "write_bytes", lambda self, name, content: (tmp_path / name).write_bytes(b"other"))
    assert "does not see what the driver wrote" in _node_findings(storage)["storage of all nodes"].found


def test_several_machines_need_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machines = {"a": "10.0.0.1", "b": "10.0.0.2"}
    monkeypatch.setattr("objectaware.distributed.cluster.node_addresses", lambda: machines)
    sqlite = TrackingStore.open(tmp_path)
    with pytest.raises(InputError, match="is a file on one node only"):
        machine.require_server(sqlite)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    machine.require_server(TrackingStore.open(tmp_path))
    # Nodes of one machine, and one node alone, share its disk.
    machines["b"] = "10.0.0.1"
    machine.require_server(sqlite)


def test_groups_made_since_are_removed_even_where_no_worker_names_them(ray_session: None) -> None:
    """A training that is stopped just before its workers start leaves such a group; it held its CPUs for good."""
    kept = placement_group([{"CPU": 1}])
    ray.get(kept.ready())
    before = placement_groups()
    assert kept.id.hex() in before
    abandoned = placement_group([{"CPU": 1}])
    ray.get(abandoned.ready())
    assert placement_groups() - before == {abandoned.id.hex()}
    wait_and_remove_new_groups(before, 60)
    assert placement_groups() == before
    remove_placement_group(kept)


def test_rays_warnings_are_seen_on_a_cluster_and_only_there(monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}
    monkeypatch.setattr(cluster, "require_answer", lambda address: None)
    monkeypatch.setattr(cluster.ray, "init", lambda **arguments: given.update(arguments))
    monkeypatch.setattr(cluster.ray, "shutdown", lambda: None)
    # As a Ray of a command's own sets it for itself, and its processes inherit it.
    monkeypatch.setenv("RAY_BACKEND_LOG_LEVEL", "fatal")
    assert log_level(logging.CRITICAL) == logging.CRITICAL
    monkeypatch.delenv("RAY_BACKEND_LOG_LEVEL")
    with cluster._connected("10.0.0.1:6379"):
        assert log_level(logging.CRITICAL) == logging.WARNING
    assert given["log_to_driver"]
    assert given["logging_level"] == logging.WARNING
    assert "RAY_BACKEND_LOG_LEVEL" not in os.environ
