"""Records that a command could not send go with the storage, and the next command sends them, wherever it runs."""

from __future__ import annotations

import json
import shutil
import threading
import time
from pathlib import Path

import pytest

from objectaware.commands.common import Common, open_records
from objectaware.data.storage import Storage
from objectaware.tracking import Tracker, TrackingStore, spools, store
from objectaware.tracking.spools import Spools

# Several processes import mlflow, and each initialisation takes seconds of a free processor.
pytestmark = pytest.mark.timeout(300)

AWAY = "http://127.0.0.1:9"


def be_on(patch: pytest.MonkeyPatch, host: str) -> None:
    """Records on a host from now on."""
    for module in (spools, store):
        patch.setattr(module, "this_host", lambda: host)


def record(opened: TrackingStore, key: str) -> Tracker:
    run = opened.child_run(None, name="stage", key=key, tags={})
    for step in range(5):
        run.log_metrics({"loss": float(step)}, step=step)
    run.log_text("a.txt", "a")
    return run


@pytest.fixture
def left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A storage in which a command on a host that is gone left one run; the server was away all the time."""
    storage = tmp_path / "runs"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", AWAY)
    be_on(monkeypatch, "gone")
    opened = TrackingStore.open(storage)
    run = record(opened, "ended")
    assert not run.finish("FAILED", timeout_seconds=0)
    alive = opened.child_run(None, name="alive", key="alive", tags={})
    opened.hand_over()
    assert not run._spool.folder.exists()
    assert alive._spool.folder.exists()
    shutil.rmtree(alive._spool.folder.parents[1])
    be_on(monkeypatch, "here")
    return storage


def archives(storage: Path) -> list[Path]:
    return sorted(storage.rglob("*.tar"))


def test_the_next_command_sends_what_another_host_left(
    left: Path, two_drivers: tuple[Path, list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = TrackingStore.open(left, "objectaware")
    (archive,) = archives(left)
    # An SQLite file stands in for the server that is back.
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    server = TrackingStore.open(two_drivers[0]).server
    monkeypatch.setattr(TrackingStore, "is_sqlite", False)
    served = TrackingStore(server, opened.experiment, opened.storage, opened.folder, opened._spools)
    assert served.send_leftovers(60) == 0
    assert not archive.exists()
    (run,) = server.client.search_runs([server.experiment_id("objectaware")], "tags.identity = 'ended'")
    assert run.info.status == "FAILED"
    points = server.client.get_metric_history(run.info.run_id, "loss")
    assert sorted((point.step, point.value) for point in points) == [(step, float(step)) for step in range(5)]
    assert [file.path for file in server.client.list_artifacts(run.info.run_id)] == ["a.txt"]
    assert [path.name for path in left.rglob("*") if path.is_file()] == ["storage_id"]


@pytest.mark.parametrize("claims", [0, 1, 12], ids="after {} takers that died".format)
def test_of_many_commands_one_takes_what_was_left(left: Path, tmp_path: Path, claims: int) -> None:
    (archive,) = archives(left)
    folder = Storage.from_uri(archive.parent)
    for number in range(1, claims + 1):
        folder.write_bytes(f"{archive.name}.claim-{number:04d}", json.dumps({"claimed": 0.0}).encode())
    threads = [threading.Thread(target=Spools(tmp_path / f"taker-{n}", folder).take_over) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(list(tmp_path.glob("taker-*/*/records.jsonl"))) == 1
    assert folder.list_names() == []


def test_what_another_command_is_taking_is_left_to_it(left: Path, tmp_path: Path) -> None:
    (archive,) = archives(left)
    folder = Storage.from_uri(archive.parent)
    folder.write_bytes(f"{archive.name}.claim-0001", json.dumps({"claimed": time.time()}).encode())
    Spools(tmp_path / "taker", folder).take_over()
    assert not (tmp_path / "taker").exists()
    assert archive.exists()


def test_all_stays_where_it_is_if_the_storage_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", AWAY)
    opened = TrackingStore.open(tmp_path)
    run = record(opened, "ended")
    run.finish("FINISHED", timeout_seconds=0)

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Storage, "write_bytes", fail)
    opened.hand_over()
    assert "No space left" in caplog.text
    assert run._spool.folder.exists()


def test_a_command_leaves_its_unsent_records_however_it_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", AWAY)

    def interrupted() -> None:
        with open_records(Common(storage=str(tmp_path))) as context:
            record(context.services.tracking, "ended").finish("KILLED", timeout_seconds=0)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert len(archives(tmp_path)) == 1
    assert list(tmp_path.rglob("records.jsonl")) == []


def test_what_a_command_took_and_could_not_send_either_it_leaves_again(left: Path) -> None:
    before = archives(left)
    opened = TrackingStore.open(left)
    assert opened.send_leftovers(0) == 1
    assert archives(left) == []
    opened.hand_over()
    assert archives(left) == before
