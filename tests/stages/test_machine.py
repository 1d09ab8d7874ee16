from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections import namedtuple
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from objectaware.cli import run
from objectaware.commands.common import possible_needs
from objectaware.config import LocalizeConfig
from objectaware.data.storage import Storage
from objectaware.distributed import room
from objectaware.distributed.cluster import check_ray
from objectaware.errors import Finding
from objectaware.stages import machine
from objectaware.stages.machine import PeakMemory, on_available_device, tree_memory_mib, uses_gpu
from objectaware.tracking.store import TrackingStore, check_tracking

Usage = namedtuple("Usage", "total used free")


def test_storage_is_written_to_and_left_as_it_was(tmp_path: Path) -> None:
    assert machine._check_storage(Storage.from_uri(tmp_path / "new")).state == "ok"
    assert list(tmp_path.iterdir()) == []


def test_storage_that_cannot_be_written_to_is_broken(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    finding = machine._check_storage(Storage.from_uri(tmp_path / "file" / "runs"))
    assert finding.state == "broken"
    assert "file/runs" in finding.found
    assert "OBJECTAWARE_STORAGE" in finding.remedy


@pytest.mark.parametrize(("free", "state"), [(2**26, "limited"), (2**31, "ok")])
def test_shared_memory_has_to_hold_rays_store(
    free: int, state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(free, 0, free))
    finding = machine._check_shared_memory(tmp_path)
    assert finding.state == state
    assert bool(finding.remedy) == (state == "limited")


def test_what_is_not_here_is_said_to_be_unchecked(tmp_path: Path) -> None:
    assert machine._check_shared_memory(tmp_path / "shm").state == "not checked"


def test_a_library_that_does_not_load_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_LIBRARIES", ("json", "no_such_library"))
    (finding,) = machine._check_libraries()
    assert finding.state == "broken"
    assert "no_such_library" in finding.found


def test_a_fresh_sqlite_store_is_not_made(tmp_path: Path) -> None:
    assert check_tracking(Storage.from_uri(tmp_path / "runs"), "objectaware").state == "ok"
    assert list(tmp_path.iterdir()) == []


def test_an_mlflow_store_gets_its_run_back(tmp_path: Path) -> None:
    store = TrackingStore.open(tmp_path)
    finding = check_tracking(Storage.from_uri(tmp_path), "objectaware")
    assert (finding.state, finding.found) == ("ok", f"{store.server.tracking_uri} takes runs and files")
    assert store.server.client.search_runs([store.server.experiment_id("objectaware")]) == []


def test_an_mlflow_server_that_is_away_is_named_without_its_password(
    closed_port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://user:secret@127.0.0.1:{closed_port}")
    finding = check_tracking(Storage.from_uri(tmp_path), "objectaware")
    assert finding.state == "limited"
    assert f"http://127.0.0.1:{closed_port}" in finding.found
    assert "secret" not in finding.found


def test_a_database_that_is_damaged_is_broken(tmp_path: Path) -> None:
    (tmp_path / "mlflow.db").write_bytes(b"not a database" * 100)
    finding = check_tracking(Storage.from_uri(tmp_path), "objectaware")
    assert finding.state == "broken"
    assert str(tmp_path / "mlflow.db") in finding.remedy


def test_a_ray_cluster_that_is_away_is_broken(closed_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # As in a process of its own: in this one other tests may have started the session's Ray, which would be used.
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{closed_port}")
    (finding,) = check_ray(list)
    assert finding.state == "broken"
    assert str(closed_port) in finding.found
    assert "unset RAY_ADDRESS" in finding.remedy


def test_data_sets_that_are_there_are_looked_at(tmp_path: Path) -> None:
    (tmp_path / "bg_challenge").mkdir()
    findings = {finding.name: finding for finding in machine._check_data(tmp_path)}
    nine = findings["ImageNet-9"]
    assert nine.state == "limited"
    assert "no train" in nine.found
    assert "data check 'ImageNet-9'" in nine.remedy
    others = re.split(r"[,:] ", findings["other data sets"].found)
    assert "COCO" in others[1:]
    assert "ImageNet-9" not in others


def test_nodes_that_do_not_share_the_storage_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = Storage.from_uri(tmp_path)
    answers = {"10.0.0.1": ("", 8.0), "10.0.0.2": ("does not see what the driver wrote", 0.1)}
    monkeypatch.setattr("objectaware.distributed.cluster.run_on_nodes", lambda *_, **__: (answers, ["10.0.0.3"]))
    nodes, shared, memory = machine._check_nodes(storage)
    assert nodes.state == "limited"
    assert nodes.found.endswith("10.0.0.3")
    assert shared.state == "broken"
    assert "10.0.0.2 does not see" in shared.found
    assert "10.0.0.1" not in shared.found + memory.found
    assert memory.state == "limited"
    del answers["10.0.0.2"]
    assert [finding.state for finding in machine._check_nodes(storage)] == ["limited", "ok", "ok"]


def diagnosis(*states: str) -> Callable[..., Iterator[Finding]]:
    return lambda *_: iter(Finding("part", state, "as seen", "mend it") for state in states)  # type: ignore[arg-type]


def test_exit_status_is_1_only_where_something_is_broken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(machine, "diagnose", diagnosis("ok", "limited", "not checked"))
    assert run(["doctor", "--storage", str(tmp_path), "--json", str(tmp_path / "out.json")]) == 0
    assert [one["state"] for one in json.loads((tmp_path / "out.json").read_text())] == ["ok", "limited", "not checked"]
    monkeypatch.setattr(machine, "diagnose", diagnosis("broken", "ok"))
    with pytest.raises(SystemExit) as exit_status:
        run(["doctor", "--storage", str(tmp_path)])
    assert exit_status.value.code == 1
    printed = capsys.readouterr().out
    assert "broken       part: as seen\n             mend it\n" in printed


@pytest.mark.slow
def test_this_machine_is_fit(
    ray_session: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["doctor"]) == 0
    printed = capsys.readouterr().out
    for part in ("Python", "libraries", "CPU", "memory", "shared memory", "GPU", "storage", "MLflow", "Ray"):
        assert f" {part}: " in printed
    assert list(tmp_path.iterdir()) == []


def _config(**execution: Any) -> LocalizeConfig:
    return LocalizeConfig.model_validate(
        {"data": {"root": "photos"}, "checkpoint": "checkpoint", "execution": execution}
    )


@pytest.mark.parametrize("gpus", [True, False])
def test_gpus_are_used_where_there_are_some(monkeypatch: pytest.MonkeyPatch, gpus: bool) -> None:
    monkeypatch.setattr(room, "num_gpus", lambda: int(gpus))
    assert uses_gpu(on_available_device(_config(num_crf_actors=3))) is gpus


@pytest.mark.parametrize("chosen", [True, False])
def test_what_the_user_chose_stays(monkeypatch: pytest.MonkeyPatch, chosen: bool) -> None:
    monkeypatch.setattr(room, "num_gpus", lambda: int(not chosen))
    assert uses_gpu(on_available_device(_config(use_gpu=chosen))) is chosen


def test_a_local_ray_is_sized_for_either_device() -> None:
    def gpus(**execution: Any) -> list[float]:
        return [max(need.num_gpus for need in needs) for needs in possible_needs([_config(**execution)])]

    assert gpus() == [0, 1]
    assert gpus(use_gpu=True) == [1, 1]


def test_a_childs_memory_counts() -> None:
    script = "import sys; block = bytearray(200 * 2**20); print('ready', flush=True); sys.stdin.read()"
    before = tree_memory_mib(os.getpid())
    child = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdout.readline() == b"ready\n"
    with PeakMemory() as memory:
        during = tree_memory_mib(os.getpid())
    child.communicate(timeout=30)
    assert during - before > 150
    assert memory.peak_mib > before + 150
    assert tree_memory_mib(os.getpid()) < during - 150
