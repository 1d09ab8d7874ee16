"""Two users of the system, each with a uid of their own, who run the same recipe at once; one of them is killed."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import stat
import tempfile
from collections.abc import Iterator
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import mlflow
import pytest
from mlflow import MlflowClient
from mlflow.entities import Run

from mlflow_server import mlflow_server_on
from objectaware.commands.common import Common, open_records
from objectaware.config import Model
from objectaware.errors import ExplainedError, InputError
from objectaware.stages import runner
from objectaware.stages.lease import LeaseHeldError
from objectaware.stages.runner import StageRun
from stage_runs import run_as

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(os.getuid() != 0, reason="only root may become another user"),
]

ANNA, BEN, LAB = 64322, 64323, 64321
NUM_STEPS = 6
STEP_OF_THE_KILL = 3


def _others_may_read(path: Path) -> bool:
    return all(each.stat().st_mode & stat.S_IXOTH for each in path.resolve().parents)


own_store = pytest.mark.skipif(
    not _others_may_read(Path(mlflow.__file__)), reason="another user may not read how MLflow makes a store of its own"
)
# A user may be kept from Python's own files where these are root's: users are forked from a process that has read them.
fork = multiprocessing.get_context("fork")


class Recipe(Model):
    """What both users run."""

    seed: int = 0


def _train(run: StageRun, offset: float, control: Connection | None) -> dict[str, Any]:
    """Count steps, each saved and recorded; halfway, wait for a word on `control`, or to be killed."""
    begin = run.folder.read_json("state.json")["step"] if run.folder.exists("state.json") else 0
    for step in range(begin, NUM_STEPS):
        if step == STEP_OF_THE_KILL and control is not None:
            assert run.tracker.flush(60)
            control.send("halfway")
            control.recv()
        run.tracker.log_metrics({"loss": offset + step}, step=step)
        run.folder.write_json("state.json", {"step": step + 1})
    return {"last": offset + NUM_STEPS - 1}


def _run(common: Common, offset: float, control: Connection | None = None) -> dict[str, Any]:
    """Run the stage as a command does; `pretrain` is a stage that measures nothing."""
    with open_records(common) as context:
        result = run_as(
            context, "pretrain", "training", Recipe(), {}, lambda run, config: _train(run, offset, control), tags={}
        )
    return dict(result.values)


def _command(user: int, storage: Path, offset: float, control: Connection | None, outcome: Connection) -> None:
    """Run the stage as a user whose umask is the usual one; report its values or its refusal."""
    os.setgroups([])
    os.setgid(LAB)
    os.setuid(user)
    os.umask(0o022)
    os.environ["XDG_STATE_HOME"] = str(storage.parent / f"state-{user}")
    try:
        outcome.send(_run(Common(storage=str(storage)), offset, control))
    except (InputError, ExplainedError) as error:
        outcome.send(error)


def _read_all_modules(folder: Path) -> None:
    """Run a whole stage as root, in another experiment, for the modules that it imports late."""
    assert _run(Common(storage=str(folder), experiment="root"), 0) == {"last": NUM_STEPS - 1}


class _Command:
    """A user's command in a process of its own."""

    def __init__(self, user: int, storage: Path, *, offset: float, halts: bool = False) -> None:
        self._control, theirs = fork.Pipe()
        self._outcome, sending = fork.Pipe()
        arguments = (user, storage, offset, theirs if halts else None, sending)
        self._process: BaseProcess = fork.Process(target=_command, args=arguments)
        self._process.start()

    def wait_until_halfway(self) -> None:
        assert self._control.poll(300)
        assert self._control.recv() == "halfway"

    def kill(self) -> None:
        assert self._process.pid is not None
        os.kill(self._process.pid, signal.SIGKILL)
        self._process.join(60)
        assert self._process.exitcode == -signal.SIGKILL

    def go_on(self) -> None:
        self._control.send("go on")

    def outcome(self) -> Any:
        assert self._outcome.poll(300)
        outcome = self._outcome.recv()
        self._process.join(60)
        assert self._process.exitcode == 0
        return outcome


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that every user may enter; pytest's own are closed to others."""
    folder = Path(tempfile.mkdtemp(dir="/tmp", prefix="oa-users"))
    folder.chmod(0o755)
    for user in (ANNA, BEN):
        state = folder / f"state-{user}"
        state.mkdir(mode=0o700)
        os.chown(state, user, LAB)
    _read_all_modules(folder / "root")
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(autouse=True)
def without_machine_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    class Nothing:
        def __init__(self, log: object) -> None: ...
        def __enter__(self) -> None: ...
        def __exit__(self, *error: object) -> None: ...

    monkeypatch.setattr(runner, "MachineWatch", Nothing)


def _folder(path: Path, *, owner: int, mode: int) -> Path:
    path.mkdir()
    os.chown(path, owner, LAB)
    path.chmod(mode)
    return path


@pytest.fixture
def server(place: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An MLflow server of neither user."""
    database = f"sqlite:///{place / 'server.db'}"
    with mlflow_server_on(database, (place / "artifacts").as_uri()) as address:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
        _read_all_modules(place / "root, on the server")
        yield address


def _runs(address: str) -> dict[str, list[Run]]:
    """The runs by their user's uid, the oldest first."""
    client = MlflowClient(address)
    experiment = client.get_experiment_by_name("objectaware")
    assert experiment is not None
    found: dict[str, list[Run]] = {}
    for run in client.search_runs([experiment.experiment_id], order_by=["attributes.start_time ASC"]):
        found.setdefault(run.data.tags["uid"], []).append(run)
    return found


def _losses(address: str, run: Run) -> list[tuple[int, float]]:
    points = MlflowClient(address).get_metric_history(run.info.run_id, "loss")
    return sorted((point.step, point.value) for point in points)


def _steps(offset: float, begin: int = 0, end: int = NUM_STEPS) -> list[tuple[int, float]]:
    return [(step, offset + step) for step in range(begin, end)]


def test_a_storage_each(place: Path, server: str) -> None:
    annas = _folder(place / "anna", owner=ANNA, mode=0o755)
    bens = _folder(place / "ben", owner=BEN, mode=0o755)
    anna = _Command(ANNA, annas, offset=100, halts=True)
    ben = _Command(BEN, bens, offset=200, halts=True)
    anna.wait_until_halfway()
    ben.wait_until_halfway()
    ben.kill()
    anna.go_on()
    assert anna.outcome() == {"last": 100 + NUM_STEPS - 1}
    runs = _runs(server)
    assert {uid: len(found) for uid, found in runs.items()} == {str(ANNA): 1, str(BEN): 1}
    assert runs[str(ANNA)][0].info.status == "FINISHED"
    assert runs[str(BEN)][0].info.status == "RUNNING"  # nobody has looked since the kill
    assert _losses(server, runs[str(ANNA)][0]) == _steps(100)
    assert _losses(server, runs[str(BEN)][0]) == _steps(200, end=STEP_OF_THE_KILL)

    assert _Command(BEN, bens, offset=200).outcome() == {"last": 200 + NUM_STEPS - 1}
    (again,) = _runs(server)[str(BEN)]
    assert again.info.run_id == runs[str(BEN)][0].info.run_id
    assert again.info.status == "FINISHED"
    points = MlflowClient(server).get_metric_history(again.info.run_id, "loss")
    assert [(point.step, point.value) for point in sorted(points, key=lambda point: point.step)] == _steps(200)
    assert _losses(server, _runs(server)[str(ANNA)][0]) == _steps(100)


def test_a_storage_of_their_group(place: Path, server: str) -> None:
    """The one who comes second is refused while the first is alive, and goes on from the other's last step after."""
    storage = _folder(place / "group", owner=ANNA, mode=0o2775)
    ben = _Command(BEN, storage, offset=200, halts=True)
    ben.wait_until_halfway()
    refused = _Command(ANNA, storage, offset=100).outcome()
    assert isinstance(refused, LeaseHeldError)
    ben.kill()
    assert _Command(ANNA, storage, offset=100).outcome() == {"last": 100 + NUM_STEPS - 1}
    # And the other way round: what Anna finished is reused, and Ben's killed run is closed.
    assert _Command(BEN, storage, offset=200).outcome() == {"last": 100 + NUM_STEPS - 1}
    runs = _runs(server)
    (annas,), (bens,) = runs[str(ANNA)], runs[str(BEN)]
    assert (annas.info.status, bens.info.status) == ("FINISHED", "KILLED")
    assert _losses(server, annas) == _steps(100, begin=STEP_OF_THE_KILL)
    assert _losses(server, bens) == _steps(200, end=STEP_OF_THE_KILL)
    for path in (storage, *storage.rglob("*")):
        if "mlflow_spool" not in path.parts:  # each user's records in a folder of their own
            assert path.stat().st_mode & stat.S_IWGRP, path


@own_store
def test_a_storage_of_their_group_without_a_server(place: Path) -> None:
    storage = _folder(place / "group", owner=ANNA, mode=0o2775)
    anna = _Command(ANNA, storage, offset=100, halts=True)
    anna.wait_until_halfway()
    anna.kill()
    assert _Command(BEN, storage, offset=200).outcome() == {"last": 200 + NUM_STEPS - 1}
    assert _Command(ANNA, storage, offset=100).outcome() == {"last": 200 + NUM_STEPS - 1}
    runs = _runs(f"sqlite:///{storage / 'mlflow.db'}")
    assert [run.info.status for run in runs[str(ANNA)]] == ["KILLED"]
    assert [run.info.status for run in runs[str(BEN)]] == ["FINISHED"]


@own_store
@pytest.mark.parametrize("mode", [0o755, 0o750, 0o777])
def test_what_one_may_not_write_is_refused_in_a_line(mode: int, place: Path) -> None:
    """In a folder that everyone may write to and that no group shares, the first user's files refuse the second."""
    storage = _folder(place / "anna", owner=ANNA, mode=mode)
    assert _Command(ANNA, storage, offset=100).outcome() == {"last": 100 + NUM_STEPS - 1}
    refused = _Command(BEN, storage, offset=200).outcome()
    if mode == 0o777:
        assert isinstance(refused, InputError), refused
    else:
        assert isinstance(refused, InputError)
        assert refused.field == "storage"
    assert "\n" not in str(refused)
