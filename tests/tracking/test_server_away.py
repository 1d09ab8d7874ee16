from __future__ import annotations

import logging
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from logging.handlers import QueueHandler
from pathlib import Path
from queue import Queue
from urllib.request import urlopen

import pytest
from mlflow.exceptions import MlflowException
from requests import HTTPError, Response

from mlflow_server import wait_for_health
from objectaware.tracking import Tracker, TrackingStore, delivery, run_ui
from objectaware.tracking.delivery import Sender

# Several processes import mlflow, and each initialisation takes seconds of a free processor.
pytestmark = pytest.mark.timeout(300)

RUN_UI = """
import pathlib, sys
from objectaware.tracking import TrackingStore, run_ui
run_ui(TrackingStore.open(pathlib.Path(sys.argv[1])), int(sys.argv[2]))
"""


@pytest.fixture
def reports() -> Iterator[Queue[logging.LogRecord]]:
    """What senders report, as it comes."""
    queue: Queue[logging.LogRecord] = Queue()
    handler = QueueHandler(queue)
    logger = logging.getLogger("objectaware.tracking.delivery")
    logger.addHandler(handler)
    yield queue
    logger.removeHandler(handler)


@pytest.fixture
def by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is sent until the test sends it, and a file that was not taken is tried again in the next pass."""
    monkeypatch.setattr(Sender, "add", lambda *_: None)
    monkeypatch.setattr(delivery, "ARTIFACT_DELAY_SECONDS", 0.0)


def begin(store: TrackingStore, key: str) -> Tracker:
    return store.child_run(None, name=key, key=key, tags={})


@contextmanager
def server_on(folder: Path, port: int) -> Iterator[None]:
    """`objectaware ui` on a folder's SQLite store, from when it answers."""
    environment = {name: value for name, value in os.environ.items() if name != "MLFLOW_TRACKING_URI"}
    server = subprocess.Popen(
        [sys.executable, "-c", RUN_UI, str(folder), str(port)], env=environment, start_new_session=True
    )
    try:
        wait_for_health(port, server, seconds=180)
        yield
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(timeout=30)


def record_a_study(store: TrackingStore) -> float:
    """Records a parent and a child; returns the seconds that it took."""
    began = time.monotonic()
    parent = store.parent_run(name="study", key="study", tags={})
    run = store.child_run(parent, name="stage", key="stage", tags={"stage": "pretrain"})
    run.log_config({"lr": 0.1})
    for step in range(20):
        run.log_metrics({"loss": 1.0}, step=step)
    run.log_table("accuracy", [{"original": 60.0}])
    assert not run.finish("FINISHED", timeout_seconds=0.5)
    assert not parent.finish("FINISHED", timeout_seconds=0.5)
    assert run.run_id is None
    return time.monotonic() - began


@pytest.mark.chaos(fault="MLflow refuses", holds="work goes on")
def test_work_goes_on_while_the_server_refuses(
    closed_port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reports: Queue[logging.LogRecord]
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://user:secret@127.0.0.1:{closed_port}")
    store = TrackingStore.open(tmp_path)
    assert record_a_study(store) < 10
    warning = ""
    while str(closed_port) not in warning:  # senders of other tests may report too
        warning = reports.get(timeout=60).getMessage()
    assert "takes no records" in warning
    assert "secret" not in warning + store.ui_command() + store.run_url("abc")
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and b"secret" in path.read_bytes()]


@pytest.mark.chaos(fault="MLflow hangs", holds="work goes on")
def test_work_goes_on_while_the_server_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{silent.getsockname()[1]}")
        assert record_a_study(TrackingStore.open(tmp_path)) < 10


@pytest.mark.chaos(fault="MLflow's artifact store is slow", holds="other records arrive")
def test_a_file_that_is_not_taken_holds_up_no_other_run(
    open_store: Callable[[], TrackingStore], monkeypatch: pytest.MonkeyPatch, reports: Queue[logging.LogRecord]
) -> None:
    store = open_store()
    client, is_slow, timeouts = store.server.client, [True], []
    take = client.log_artifact

    def upload(run_id: str, path: str, folder: str | None = None) -> None:
        timeouts.append(int(os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"]))
        if is_slow:
            raise MlflowException("failed with timeout exception", error_code="INTERNAL_ERROR")
        take(run_id, path, folder)

    monkeypatch.setattr(client, "log_artifact", upload)
    monkeypatch.setattr(delivery, "ARTIFACT_DELAY_SECONDS", 0.1)
    slow = store.child_run(None, name="slow", key="slow", tags={})
    slow.log_text("gallery.html", "x" * 2**23)
    assert not slow.finish("FINISHED", timeout_seconds=0)
    after = store.child_run(None, name="after", key="after", tags={})
    after.log_metrics({"loss": 1.0})
    assert after.finish("FINISHED", timeout_seconds=60)
    report = ""
    while store.server.shown_address not in report:  # senders of other tests may report too
        report = reports.get(timeout=60).getMessage()
    assert "does not take a file now (gallery.html" in report
    is_slow.clear()
    assert slow.flush(60)
    assert client.get_run(str(slow.run_id)).info.status == "FINISHED"
    assert min(timeouts) >= 60  # for 8 MiB
    assert os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"] == "5"


@pytest.mark.usefixtures("by_hand")
def test_many_files_that_are_not_taken_hold_up_a_live_run_by_one_try_at_a_time(
    open_store: Callable[[], TrackingStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, tried = open_store(), []

    def upload(run_id: str, *_: object) -> None:
        tried.append(run_id)
        raise MlflowException("failed with timeout exception", error_code="INTERNAL_ERROR")

    monkeypatch.setattr(store.server.client, "log_artifact", upload)
    slow, live = [begin(store, key) for key in ("a", "b", "c")], begin(store, "live")
    for run in slow:
        run.log_text("gallery.html", "x")
    sender, spools = Sender(store.server, store._spools), [run._spool for run in (*slow, live)]
    for num_tried in range(1, 7):  # first each is new, then each is postponed
        live.log_metrics({"loss": 1.0}, step=num_tried)
        assert sender._send(spools)
        assert len(tried) == num_tried
        assert live._spool.has_unsent() == (num_tried < 4)  # until then it is the last of the new ones
    assert sorted(tried) == sorted([str(run.run_id) for run in slow] * 2)


@pytest.mark.usefixtures("by_hand")
@pytest.mark.parametrize(
    ("status", "is_refused"),
    [(400, True), (403, True), (404, True), (413, True), (401, False), (408, False), (429, False), (502, False)],
)
def test_a_file_that_the_server_will_never_take_is_set_aside(
    status: int, is_refused: bool, open_store: Callable[[], TrackingStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store()
    client, is_failing = store.server.client, [True]
    take, response = client.log_artifact, Response()
    response.status_code = status

    def upload(run_id: str, path: str, folder: str | None = None) -> None:
        if is_failing and path.endswith("gallery.html"):
            raise HTTPError(f"{status} Error", response=response)
        take(run_id, path, folder)

    def refuse(*_: object) -> None:
        raise MlflowException("Permission denied", error_code="PERMISSION_DENIED")

    monkeypatch.setattr(client, "log_artifact", upload)
    run = begin(store, "stage")
    run.log_text("gallery/gallery.html", "large")
    run.log_text("report.md", "small")
    sender, spool = Sender(store.server, store._spools), run._spool
    with monkeypatch.context() as patch:
        patch.setattr(client, "set_tag", refuse)  # this user may only read
        sender._send([spool])
    assert spool.has_unsent()
    assert not spool.rejected.exists()
    sender._send([spool])
    assert spool.has_unsent() != is_refused
    is_failing.clear()
    sender._send([spool])
    assert not spool.has_unsent()
    taken = {file.path for file in client.list_artifacts(str(run.run_id))}
    assert taken == ({"report.md"} if is_refused else {"gallery", "report.md"})
    assert spool.rejected.exists() == is_refused
    if is_refused:
        assert f"{status} Error" in spool.rejected.read_text()
        assert (spool.rejected.with_suffix("") / "gallery" / "gallery.html").read_text() == "large"


@pytest.mark.usefixtures("by_hand")
def test_an_evaluation_waits_for_no_training_and_gets_its_model_later(
    open_store: Callable[[], TrackingStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, checkpoint = open_store(), "/runs/pretrain/epoch_0799"
    client, is_slow = store.server.client, [True]
    take = client.log_artifact

    def upload(run_id: str, path: str, folder: str | None = None) -> None:
        if is_slow and path.endswith("large.txt"):
            raise MlflowException("failed with timeout exception", error_code="INTERNAL_ERROR")
        take(run_id, path, folder)

    monkeypatch.setattr(client, "log_artifact", upload)
    training, evaluation = begin(store, "training"), begin(store, "evaluation")
    training.log_text("large.txt", "x")
    training.log_model("moco", checkpoint, model_type="backbone")
    evaluation.use_model(checkpoint, "training")
    evaluation.log_text("table.csv", "a")
    evaluation.log_metrics({"accuracy": 60.0}, model=checkpoint)
    evaluation.finish("KILLED", timeout_seconds=0)

    def send() -> None:
        sender = Sender(store.server, store._spools)  # of a later command
        for _ in range(2):
            sender._send([training._spool, evaluation._spool])

    send()
    sent = client.get_run(str(evaluation.run_id))
    assert (sent.info.status, sent.data.metrics) == ("KILLED", {"accuracy": 60.0})
    assert training._spool.has_unsent()
    assert evaluation._spool.has_unsent()
    assert begin(store, "evaluation")._spool.folder == evaluation._spool.folder
    evaluation.finish("FINISHED", timeout_seconds=0)
    send()
    assert evaluation._spool.has_unsent()
    is_slow.clear()
    send()
    assert evaluation._spool.is_settled()
    sent = client.get_run(str(evaluation.run_id))
    (model,) = client.search_logged_models([store.server.experiment_id(store.experiment)])
    assert [used.model_id for used in sent.inputs.model_inputs] == [model.model_id]
    assert [(one.key, one.value, one.run_id) for one in model.metrics] == [("accuracy", 60.0, evaluation.run_id)]
    assert (sent.info.status, sent.data.tags["training_run_id"]) == ("FINISHED", training.run_id)
    assert len(client.get_metric_history(str(evaluation.run_id), "accuracy")) == 1


@pytest.mark.slow
@pytest.mark.chaos(fault="MLflow is away and comes back", holds="no record missing or twice")
def test_the_records_arrive_when_the_server_is_back(
    closed_port: int,
    open_store: Callable[[], TrackingStore],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    served = open_store()
    local = served.child_run(None, name="local", key="local", tags={})
    local.log_text("local.txt", "written without a server")
    assert local.finish("FINISHED", timeout_seconds=30)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{closed_port}")
    record_a_study(TrackingStore.open(tmp_path, served.experiment))
    with server_on(served.folder, closed_port):
        store = TrackingStore.open(tmp_path, served.experiment)
        assert store.send_leftovers(60) == 0
        client = store.server.client
        runs = client.search_runs([store.server.experiment_id(store.experiment)])
        _, stage, study = sorted(runs, key=lambda run: run.data.tags["identity"])
        assert stage.data.tags["mlflow.parentRunId"] == study.info.run_id
        assert stage.info.status == study.info.status == "FINISHED"
        assert stage.data.params == {"lr": "0.1"}
        history = client.get_metric_history(stage.info.run_id, "loss")
        assert sorted(point.step for point in history) == list(range(20))
        files = client.list_artifacts(stage.info.run_id, "tables")
        assert {file.path for file in files} == {"tables/accuracy.csv", "tables/accuracy.json"}
        address = f"http://127.0.0.1:{closed_port}/get-artifact?path=local.txt&run_uuid={local.run_id}"
        with urlopen(address, timeout=10) as response:
            assert response.read() == b"written without a server"


def test_the_ui_of_a_server_is_its_own(
    closed_port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    address = f"http://127.0.0.1:{closed_port}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    store = TrackingStore.open(tmp_path)
    run_ui(store)
    assert capsys.readouterr().out == f"{address}\n"
    assert store.ui_command() == address
    assert store.run_url("abc") == f"{address}/#/runs/abc"


def test_the_ui_command_is_one_that_the_users_shell_finds(
    open_store: Callable[[], TrackingStore], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store()
    place = f"--storage {shlex.quote(str(store.folder))}"
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin" / "python"))
    monkeypatch.setenv("PATH", str(tmp_path / "elsewhere"))
    script = tmp_path / "bin" / "objectaware"
    assert store.ui_command() == f"{sys.executable} -m objectaware.cli ui {place}"
    script.parent.mkdir()
    script.touch(mode=0o755)
    assert store.ui_command() == f"{script} ui {place}"
    monkeypatch.setenv("PATH", str(script.parent))
    assert store.ui_command() == f"objectaware ui {place}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "postgresql://user:secret@host/mlflow")
    assert store.ui_command() == "objectaware ui"


def test_a_runs_page_is_on_the_ui(open_store: Callable[[], TrackingStore]) -> None:
    store = open_store()
    assert store.run_url("abc") == "http://127.0.0.1:5000/#/runs/abc"
