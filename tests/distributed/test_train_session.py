"""A worker's session, and its records on their way to the driver."""

from __future__ import annotations

import inspect
import pickle
import shutil
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray
import torch
import torch.distributed as dist
from ray import cloudpickle, train
from ray.train import Checkpoint
from ray.train.v2._internal.constants import ENABLE_PREEMPTION_WATCHER_ENV_VAR
from ray.train.v2._internal.exceptions import WorkerGroupStartupFailedError, WorkerGroupStartupTimeoutError
from ray.train.v2._internal.execution.callback import ControllerCallback
from ray.train.v2._internal.execution.controller.state import (
    ReschedulingState,
    RestartingState,
    RunningState,
    SchedulingState,
    TrainControllerState,
)
from ray.train.v2._internal.execution.failure_handling import FailureDecision, create_failure_policy
from ray.train.v2._internal.execution.scaling_policy import NoopDecision
from ray.train.v2.api.preemption import PreemptionInfo

from objectaware.data.storage import Storage
from objectaware.distributed import train as distributed_train
from objectaware.distributed import train_session
from objectaware.distributed.room import Need, NoRoomError
from objectaware.distributed.train import saved_epochs
from objectaware.distributed.train_session import (
    EpochRecorder,
    FinalError,
    RaySession,
    RecordPump,
    StartWatch,
    epoch_records,
)
from objectaware.errors import ExplainedError, InputError
from objectaware.training.session import _LIBRARIES_THAT_WAIT, StoppedError
from tiny_training import tiny_training

SYNC, ASYNC = train.CheckpointUploadMode.SYNC, train.CheckpointUploadMode.ASYNC


def test_only_what_is_saved_is_recorded(ray_session: None) -> None:
    received: list[dict[str, Any]] = []
    with RecordPump(received.append) as pump:
        recorder = EpochRecorder(pump.sink, max_failures=3)
        recorder.after_report(None, [{"epoch": 0, "loss": 1.0}, {"epoch": 0, "loss": 9.0}], None)
        saving = {"epoch": 1, "loss": 0.5, "epochs_since_the_last_checkpoint": [{"epoch": 0, "loss": 1.0}]}
        recorder.after_report(None, [saving, {"epoch": 1, "loss": 9.0}], Checkpoint("/nowhere"))
        recorder.after_report(None, [{"epoch": 2, "loss": 0.1}, {"epoch": 2, "loss": 9.0}], None)
    assert received == [
        {"kind": "epoch", "epoch": 0, "loss": 1.0},
        {"kind": "epoch", "epoch": 1, "loss": 0.5},
    ]


def test_what_no_retry_would_mend_stops_the_controller() -> None:
    error = FinalError(InputError("batch_size", 8, "is too large", "Lower it."))
    failures = {0: RuntimeError("connection closed by peer"), 1: error}
    with pytest.raises(FinalError) as stop:
        EpochRecorder(None, max_failures=3).after_exception(None, failures)
    assert stop.value.error is error.error


def test_retries_end_where_nothing_is_saved_between_them(ray_session: None) -> None:
    lost, cause = RuntimeError("connection closed by peer"), OSError("storage is away")
    with RecordPump(lambda record: None) as pump:
        recorder = EpochRecorder(pump.sink, max_failures=2)

        def fail(failures: dict[int, Exception]) -> None:
            recorder.begin_attempt()
            recorder.after_exception(None, failures)

        for _ in range(3):
            fail({0: lost})
            fail({0: lost})
            saving = {"epoch": 0, "epochs_since_the_last_checkpoint": []}
            recorder.after_report(None, [saving], Checkpoint("/nowhere"))
        fail({0: lost})
        fail({0: lost})
        with pytest.raises(FinalError) as stop:
            fail({0: lost, 1: cause})
    assert stop.value.error is cause


def test_a_lost_worker_counts_once_however_long_ray_train_waits_for_the_others(tmp_path: Path) -> None:
    """A node that was told to go dies before the others have saved: each look of Ray Train finds it dead."""
    trainer = _trainer(tmp_path, _Sink())
    # As they arrive in the controller's process.
    recorder, watch = pickle.loads(cloudpickle.dumps(trainer.run_config.callbacks))
    lost: dict[int, Exception] = {1: RuntimeError("the actor died")}
    for _ in range(3):
        _watch(watch, *_states(), RunningState())
        for _ in range(20):
            recorder.after_exception(None, lost)
    _watch(watch, *_states(), RunningState())
    with pytest.raises(FinalError):
        recorder.after_exception(None, lost)


class _Sink:
    """Keeps the kinds of the records, in this process."""

    def __init__(self) -> None:
        self.kinds: list[str] = []
        self.push = SimpleNamespace(remote=lambda record: self.kinds.append(record["kind"]))


def _start_watch(
    sink: _Sink | None = None, *, max_failures: int = 3, max_wait_minutes: float | None = None
) -> StartWatch:
    recorder = EpochRecorder(None, max_failures=max_failures)
    return StartWatch(sink or _Sink(), recorder, max_failures=max_failures, max_wait_minutes=max_wait_minutes)


def _trainer(folder: Path, sink: Any, **execution: object) -> Any:
    config = tiny_training(folder, num_epochs=1, **execution)
    return distributed_train._trainer(lambda config, session: None, config, Storage.from_uri(folder), sink, None)


def _states(*failures: Exception) -> list[TrainControllerState]:
    """The states of a training whose workers fail to start for these reasons, one after the other."""
    states: list[TrainControllerState] = [SchedulingState(NoopDecision())]
    for failure in failures:
        states += [ReschedulingState(train.ControllerError(failure)), SchedulingState(NoopDecision())]
    return states


def _watch(watch: StartWatch, *states: TrainControllerState) -> None:
    for state in states:
        watch.after_controller_state_update(state, state)


def test_no_number_of_waits_for_room_ends_a_training_and_both_ends_of_a_wait_are_told() -> None:
    sink = _Sink()
    watch = _start_watch(sink)
    _watch(watch, *_states(*[WorkerGroupStartupTimeoutError(1)] * 9), RunningState(), RunningState())
    _watch(watch, RestartingState(train.WorkerGroupError("lost", {})), *_states(), RunningState())
    assert sink.kinds == ["starting", "running", "starting", "running"]


def test_workers_that_die_while_they_start_end_a_training_after_some_starts_in_a_row() -> None:
    watch = _start_watch(max_failures=2)
    died = WorkerGroupStartupFailedError("no such package")
    for _ in range(3):
        _watch(watch, *_states(died, WorkerGroupStartupTimeoutError(1), died), RunningState())
    with pytest.raises(FinalError) as stop:
        _watch(watch, *_states(died, died, died))
    assert stop.value.error is died


def test_five_losses_of_a_worker_with_progress_between_them_do_not_end_a_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each time its workers wait for room, save a checkpoint inside an epoch, and one of them is lost."""
    monkeypatch.setattr(ray, "get", lambda references: references)
    trainer = _trainer(tmp_path, _Sink())
    recorder, watch = trainer.run_config.callbacks
    policy = create_failure_policy(trainer.run_config.failure_config)
    lost: dict[int, Exception] = {1: RuntimeError("connection closed by peer")}
    saved = {"epoch": 0, "step_inside_the_epoch": 7, "epochs_since_the_last_checkpoint": []}
    for _ in range(5):
        _watch(watch, *_states(WorkerGroupStartupTimeoutError(1)), RunningState())
        recorder.after_report(None, [saved], Checkpoint("/nowhere"))
        recorder.after_exception(None, lost)
        error = train.WorkerGroupError("a worker is lost", lost)
        assert policy.make_decision(error) == FailureDecision.RETRY
        _watch(watch, RestartingState(error))


def test_a_wait_for_room_ends_where_the_user_wants_it() -> None:
    late = WorkerGroupStartupTimeoutError(1)
    _watch(_start_watch(max_wait_minutes=10), *_states(late, late))
    with pytest.raises(FinalError) as stop:
        _watch(_start_watch(max_wait_minutes=1e-12), *_states(late))
    assert isinstance(stop.value.error, NoRoomError)
    assert "execution.max_wait_minutes" in str(stop.value.error)


def test_workers_that_do_not_start_are_told_again_and_again_until_they_run(
    ray_session: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(train_session, "SECONDS_BETWEEN_LINES", 0.0)
    texts: list[str] = []
    waited = threading.Event()

    def receive(record: dict[str, Any]) -> None:
        if record["kind"] == "waiting":
            texts.append(record["text"])
            if len(texts) == 2:
                waited.set()

    with RecordPump(receive, [Need("num_workers", 2, 3)]) as pump:
        ray.get(pump.sink.push.remote({"kind": "starting"}))
        waited.wait()
        ray.get(pump.sink.push.remote({"kind": "running"}))
    assert texts[0].startswith("training waits for 6 CPUs: the cluster has ")


def test_ray_train_still_takes_a_watch_of_its_starts(tmp_path: Path) -> None:
    """Its callbacks may be of any kind, but the kind that hears of workers before they run is private."""
    assert any(isinstance(one, StartWatch) for one in _trainer(tmp_path, None)._create_default_callbacks())
    assert hasattr(ControllerCallback, "after_controller_state_update")


def test_a_checkpoint_inside_an_epoch_records_those_before_it_alone() -> None:
    earlier = {"epoch": 4, "loss": 0.4}
    metrics = {"epoch": 5, "step_inside_the_epoch": 7, "epochs_since_the_last_checkpoint": [earlier]}
    assert epoch_records(metrics) == [{"kind": "epoch", **earlier}]


def _session(folder: Path, sink: Any = None, guard: Callable[[], None] = lambda: None) -> RaySession:
    kept = Storage.from_uri(folder / "kept").guarded(guard)
    return RaySession(sink, kept_folder=kept, cache_folder=folder / "cache", no_progress_seconds=60)


class _RayTrain:
    """Ray Train's side of a session of one worker: keeps the newest two checkpoints.

    It takes an asynchronous report's checkpoint only when it is waited for, and deletes it then.
    """

    def __init__(self, patch: pytest.MonkeyPatch, run: Path, *, rank: int = 1) -> None:
        context = SimpleNamespace(get_world_rank=lambda: rank, get_world_size=lambda: 2, get_local_rank=lambda: rank)
        self.run = run
        self.names: list[str] = []
        self.uploads: list[tuple[Checkpoint, str]] = []
        self.modes: list[train.CheckpointUploadMode] = []
        self.num_waits = 0
        patch.setattr(train, "get_context", lambda: context)
        patch.setattr(train_session, "get_device", lambda: torch.device("cpu"))
        patch.setattr(train, "get_checkpoint", lambda: Checkpoint(str(run / self.names[-1])) if self.names else None)
        patch.setattr(train, "get_all_reported_checkpoints", self._wait)
        patch.setattr(train, "report", self._report)

    def _wait(self, *, timeout_s: float | None = None, **_: object) -> None:
        assert timeout_s is None, "Ray Train returns in silence after its limit, as if all were saved"
        self.num_waits += 1
        while self.uploads:
            checkpoint, name = self.uploads.pop(0)
            self._take(checkpoint, name)
            shutil.rmtree(checkpoint.path)

    def _report(
        self,
        metrics: dict[str, Any],
        checkpoint: Checkpoint | None = None,
        checkpoint_dir_name: str | None = None,
        checkpoint_upload_mode: train.CheckpointUploadMode = SYNC,
    ) -> None:
        self.modes.append(checkpoint_upload_mode)
        if checkpoint is not None and checkpoint_dir_name is not None:
            if checkpoint_upload_mode == ASYNC:
                self.uploads.append((checkpoint, checkpoint_dir_name))
            else:
                self._take(checkpoint, checkpoint_dir_name)

    def _take(self, checkpoint: Checkpoint, name: str) -> None:
        shutil.copytree(checkpoint.path, self.run / name)
        self.names.append(name)
        for old in self.names[:-2]:
            shutil.rmtree(self.run / old)
        del self.names[:-2]


def test_every_epoch_is_found_in_the_newest_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that was killed early takes in all that its workers saved after its death, of any number of epochs."""
    ray_train = _RayTrain(monkeypatch, tmp_path / "run")
    epoch = 0
    for part in range(3):  # begun and resumed twice
        with _session(tmp_path).running() as session:
            for _ in range(6):
                folder = tmp_path / f"made-{epoch}"
                folder.mkdir()
                session.report({"loss": 0.5}, epoch=epoch, checkpoint=None if epoch % 3 == 0 else folder)
                epoch += 1
            folder = tmp_path / f"inside-{part}"
            folder.mkdir()
            session.save(folder, epoch=epoch, step=7, wait=True)
    found = saved_epochs(Storage.from_uri(ray_train.run), ray_train.names[-1])
    assert found == [{"kind": "epoch", "epoch": number, "loss": 0.5} for number in range(18)]


def test_training_goes_on_while_a_checkpoint_is_uploaded_and_waits_for_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ray_train = _RayTrain(monkeypatch, tmp_path / "run", rank=0)
    session = _session(tmp_path)

    def save(step: int) -> None:
        with tempfile.TemporaryDirectory(dir=tmp_path, ignore_cleanup_errors=True) as folder:
            Path(folder, "state.pt").write_text(f"step {step}")
            session.save(Path(folder), epoch=0, step=step, wait=False)

    session.report({"loss": 1.0}, epoch=0, checkpoint=None)
    save(1)
    session.report({"loss": 1.0}, epoch=0, checkpoint=None)
    assert (ray_train.modes, ray_train.num_waits, ray_train.names) == ([SYNC, ASYNC, ASYNC], 0, [])
    save(2)
    assert (ray_train.num_waits, ray_train.names) == (1, ["epoch_0000_step_00000001"])
    ray_train._wait()
    save(3)
    ray_train._wait()
    assert ray_train.num_waits == 3  # those of this test, and the one above
    assert (tmp_path / "run" / ray_train.names[-1] / "state.pt").read_text() == "step 3"
    session.report({"loss": 1.0}, epoch=0, checkpoint=None)
    assert ray_train.modes[-1] == SYNC
    assert not list(tmp_path.glob("checkpoint-*"))


def test_a_storage_that_hangs_at_the_first_look_is_watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _RayTrain(monkeypatch, tmp_path / "run", rank=0)
    watched: list[bool] = []
    session = _session(tmp_path)
    session._sink = SimpleNamespace(
        begin=SimpleNamespace(remote=lambda: None), push=SimpleNamespace(remote=lambda record: None)
    )
    look = lambda: watched.append(any(thread.name == "no progress" for thread in threading.enumerate()))  # noqa: E731
    monkeypatch.setattr(Storage, "require_writable", lambda storage: look())
    monkeypatch.setattr(ray, "get", lambda reference: False)
    monkeypatch.setattr(ray, "get_runtime_context", lambda: SimpleNamespace(get_node_id=lambda: "node"))
    with session.running():
        pass
    assert watched == [True]


def test_only_the_libraries_themselves_wait_for_other_workers() -> None:
    """The files of a submitted job lie below /tmp/ray."""
    assert inspect.getfile(ray.get).startswith(_LIBRARIES_THAT_WAIT)
    assert inspect.getfile(dist.all_reduce).startswith(_LIBRARIES_THAT_WAIT)
    ours = "/tmp/ray/session_1/runtime_resources/working_dir_files/platform/objectaware/data/folder.py"
    assert not ours.startswith(_LIBRARIES_THAT_WAIT)


def test_from_the_first_step_on_workers_wait_less_for_each_other_but_longer_than_one_may_hang(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits: list[float] = []
    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    monkeypatch.setattr(dist, "set_timeout", lambda limit: limits.append(limit.total_seconds()))
    monkeypatch.setenv("RAY_TRAIN_ENABLE_PREEMPTION_WATCHER", "0")
    _RayTrain(monkeypatch, tmp_path / "run")
    with _session(tmp_path).running() as session:
        assert limits.pop() > session._watch.seconds == 7200
        session.should_stop()
        session.should_stop()
    assert limits.pop() > session._watch.seconds == 60
    assert not limits
    assert _trainer(tmp_path, None, no_progress_minutes=1).backend_config.timeout_s > 60


def test_the_driver_asks_the_workers_to_end(ray_session: None) -> None:
    """The answer to a record says so; the driver waits until one tells that they did."""
    received: list[str] = []
    with RecordPump(lambda record: received.append(record["kind"])) as pump:
        assert not ray.get(pump.sink.push.remote({"kind": "progress"}))
        asking = threading.Thread(target=pump.stop_training, args=(600,))
        asking.start()
        while not ray.get(pump.sink.push.remote({"kind": "progress"})):
            pass
        pump.sink.push.remote({"kind": "stopped"})
        asking.join()
    assert "stopping" in received


def test_workers_that_begin_once_training_shall_end_do_nothing(
    ray_session: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray Train starts them again before its controller is stopped; on a busy machine they trained on for a while."""
    _RayTrain(monkeypatch, tmp_path / "run", rank=0)
    with RecordPump(lambda record: None) as pump:
        with _session(tmp_path, pump.sink).running():
            pass
        ray.get(pump.sink.stop.remote())
        with pytest.raises(StoppedError), _session(tmp_path, pump.sink).running():
            pytest.fail("the training began")


def test_a_final_error_travels_between_processes() -> None:
    error = pickle.loads(pickle.dumps(FinalError(InputError("batch_size", 8, "is too large", "Lower it."))))
    assert str(error.error) == "batch_size = 8: is too large. Lower it."


def test_workers_look_now_and_then_whether_a_machine_is_to_be_taken_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look is a barrier, so that it is made in the same steps by all and not in every step."""
    context = SimpleNamespace(get_world_rank=lambda: 0, get_world_size=lambda: 2, get_local_rank=lambda: 0)
    monkeypatch.setattr(train, "get_context", lambda: context)
    monkeypatch.setattr(train_session, "get_device", lambda: torch.device("cpu"))
    looks = [None, PreemptionInfo(deadline_ms=None, preempted_node_to_ranks={"node": [1]})]
    monkeypatch.setattr(train, "get_preemption_info", lambda: looks.pop(0))
    monkeypatch.setenv("RAY_TRAIN_ENABLE_PREEMPTION_WATCHER", "0")
    unwatched = _session(tmp_path)
    assert not any(unwatched.should_stop() for _ in range(40))
    monkeypatch.delenv("RAY_TRAIN_ENABLE_PREEMPTION_WATCHER")
    session = _session(tmp_path)
    assert [step for step in range(1, 41) if session.should_stop()] == [40]
    assert looks == []


@pytest.mark.parametrize("call", ["report", "save"])
def test_a_checkpoint_that_the_guard_refuses_is_not_handed_over(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class LostError(ExplainedError):
        pass

    def guard() -> None:
        raise LostError("another command has taken over")

    reports: list[dict[str, Any]] = []
    context = SimpleNamespace(get_world_rank=lambda: 0, get_world_size=lambda: 1, get_local_rank=lambda: 0)
    monkeypatch.setattr(train, "get_context", lambda: context)
    monkeypatch.setattr(train, "report", lambda metrics, **_: reports.append(metrics))
    monkeypatch.setattr(train_session, "get_device", lambda: torch.device("cpu"))
    session = _session(tmp_path, guard=guard)
    session.report({"loss": 1.0}, epoch=0, checkpoint=None)
    hand_over: dict[str, Callable[[], None]] = {
        "report": lambda: session.report({"loss": 1.0}, epoch=1, checkpoint=Path("/nowhere")),
        "save": lambda: session.save(Path("/nowhere"), epoch=1, step=3, wait=True),
    }
    with pytest.raises(LostError) as refused:
        hand_over[call]()
    assert len(reports) == 1
    assert not distributed_train._may_pass(refused.value)  # or the training would begin again three times


def test_a_machine_that_does_not_share_the_storage_is_found_before_it_trains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each machine looks by itself, through its first worker."""

    def guard() -> None:
        raise InputError("storage", "runs", "is not shared", "Share it.")

    _RayTrain(monkeypatch, tmp_path / "run", rank=0)
    call = SimpleNamespace(remote=lambda *_: None)
    sink = SimpleNamespace(begin=call, push=call)
    monkeypatch.setattr(train_session.ray, "get", lambda _: False)
    with pytest.raises(InputError, match="not shared"), _session(tmp_path, sink, guard).running():
        pytest.fail("the training began")
    _RayTrain(monkeypatch, tmp_path / "run", rank=1)
    with _session(tmp_path, guard=guard).running():
        pass


def test_ray_train_still_knows_the_name_that_switches_its_watch_off() -> None:
    assert train_session._WATCHER == ENABLE_PREEMPTION_WATCHER_ENV_VAR


def test_every_record_arrives_in_order(ray_session: None) -> None:
    received: list[dict[str, Any]] = []
    with RecordPump(received.append) as pump:
        ray.get([pump.sink.push.remote({"kind": "epoch", "epoch": epoch}) for epoch in range(50)])
    assert [record["epoch"] for record in received] == list(range(50))


def test_a_failing_receiver_is_reported_and_later_records_still_reach_it(ray_session: None) -> None:
    received: list[int] = []

    def receive(record: dict[str, Any]) -> None:
        received.append(record["epoch"])
        if record["epoch"] < 2:
            raise KeyError(f"epoch {record['epoch']}")

    with pytest.raises(KeyError, match="epoch 0"), RecordPump(receive) as pump:
        ray.get([pump.sink.push.remote({"kind": "epoch", "epoch": epoch}) for epoch in range(4)])
    assert received == [0, 1, 2, 3]


def test_the_bodys_own_error_comes_first(ray_session: None) -> None:
    def receive(record: dict[str, Any]) -> None:
        raise KeyError("receiver")

    def body() -> None:
        with RecordPump(receive) as pump:
            ray.get(pump.sink.push.remote({"kind": "epoch"}))
            raise RuntimeError("body")

    with pytest.raises(RuntimeError, match="body"):
        body()


def test_a_worker_hears_the_drivers_wish_also_where_a_record_follows_before_it_asks(
    ray_session: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps may be slower than records: each is followed by the next one before anybody asks."""
    _RayTrain(monkeypatch, tmp_path / "run", rank=0)
    monkeypatch.setattr(train_session, "_SECONDS_BETWEEN_PROGRESS", 0)
    with RecordPump(lambda record: None) as pump:
        session = _session(tmp_path, pump.sink)
        session.progress({})
        ray.get(pump.sink.stop.remote())
        assert not session.should_stop()
        session.progress({})
        ray.get(pump.sink.push.remote({"kind": "progress"}))  # by now the one before has been answered
        session.progress({})
        assert session.should_stop()


def test_the_last_workers_word_on_being_stuck_counts(ray_session: None) -> None:
    stuck = {"kind": "stuck", "rank": 1, "seconds": 60.0, "place": "in read"}
    with RecordPump(lambda record: None) as pump:
        assert pump.stuck() is None
        for leave in (pump.sink.begin.remote, lambda: pump.sink.push.remote({"kind": "progress"})):
            ray.get(pump.sink.push.remote(stuck))
            assert pump.stuck() == stuck
            ray.get(leave())
            assert pump.stuck() is None
