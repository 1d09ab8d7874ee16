"""A training worker's session on Ray Train, and its records on their way to the driver."""

from __future__ import annotations

import json
import logging
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import ray
import torch
import torch.distributed as dist
from ray import train
from ray.exceptions import RayError
from ray.train.torch import get_device

# There is no public callback for the time before workers run, in which a stage may wait for room.
from ray.train.v2._internal.exceptions import WorkerGroupStartupTimeoutError
from ray.train.v2._internal.execution.callback import ControllerCallback
from ray.train.v2._internal.execution.controller.state import (
    ReschedulingState,
    RunningState,
    SchedulingState,
    TrainControllerState,
)
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from objectaware.config import PretrainConfig
from objectaware.data.storage import Storage
from objectaware.distributed.record_sink import Record, RecordSink
from objectaware.distributed.room import SECONDS_BETWEEN_LINES, Need, NoRoomError, current_capacity, waiting_line
from objectaware.process import Background, processor_name, restore_collector
from objectaware.training.loop import checkpoint_name
from objectaware.training.session import NoProgressWatch, StoppedError, is_terminated
from objectaware.training.views import ViewLoader, ViewSource

Sink = Any
"""Handle of a `RecordSink` actor. Ray's handles have no type."""

_SECONDS_BETWEEN_DRAINS = 0.3

_logger = logging.getLogger(__name__)

_SECONDS_BETWEEN_PROGRESS = 1.0
# A worker reads the masks of the data set and compiles the networks. Those of ImageNet take an hour on slow processors.
_SECONDS_TO_START = 7200.0
_SECONDS_TO_TELL = 10.0
# At each look workers wait for each other, for about 10 ms. Clusters announce a removal half a minute ahead.
_STEPS_BETWEEN_LOOKS = 20
_WATCHER = "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER"
_SYNC, _ASYNC = train.CheckpointUploadMode.SYNC, train.CheckpointUploadMode.ASYNC
_EARLIER = "epochs_since_the_last_checkpoint"
EPOCHS_NAME = "epochs.json"
"""File in a checkpoint with the metrics of each epoch so far."""
_STEP = "step_inside_the_epoch"


class RecordPump(Background):
    """Call the driver's function with every record of the workers, as a context manager.

    One thread makes all calls, one record at a time. After an exception, later records still reach the function. Its
    first exception is raised on leaving the `with` block. While workers do not start, the thread also makes a record of
    kind `waiting` once a minute.

    Args:
        on_record: Called with each record.
        needs: Processes of the training, for the records of kind `waiting`.

    Attributes:
        sink: Handle of the `RecordSink` actor, inside the `with` block.
    """

    sink: Sink

    def __init__(self, on_record: Callable[[Record], None], needs: Sequence[Need] = ()) -> None:
        super().__init__("records")
        self._needs = needs
        self._started_at: float | None = None
        self._next_line = 0.0
        self._on_record = on_record
        self._error: Exception | None = None
        self._stopped = threading.Event()
        self._nodes: dict[int, str] = {}

    def __enter__(self) -> Self:
        # On the driver's node, since its loss ends the command in any case.
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
        actor = ray.remote(RecordSink)
        self.sink = actor.options(num_cpus=0, max_restarts=-1, max_task_retries=-1, scheduling_strategy=here).remote()
        return super().__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        self._pass_on()
        ray.kill(self.sink)
        if self._error is not None and error is None:
            raise self._error

    def nodes(self) -> list[str]:
        """Return the ids of the workers' nodes, that of rank 0 first."""
        return [node for _, node in sorted(dict(self._nodes).items())]

    def stuck(self) -> Record | None:
        """Return `RecordSink.stuck`, or None if the actor is lost."""
        try:
            record: Record | None = ray.get(self.sink.stuck.remote())
        except RayError as error:
            _logger.warning("the workers' reports of their progress are lost: %s", error)
            return None
        return record

    def stop_training(self, seconds: float) -> None:
        """Ask the workers to end, and wait up to `seconds` until one reports `stopped`."""
        self._on_record({"kind": "stopping"})
        self._stopped.clear()
        self.sink.stop.remote()
        self._stopped.wait(seconds)

    def _run(self) -> None:
        while not self._stop.wait(_SECONDS_BETWEEN_DRAINS):
            self._pass_on()
            now = time.monotonic()
            if self._started_at is not None and now >= self._next_line:
                self._next_line = now + SECONDS_BETWEEN_LINES
                line = waiting_line("training", self._needs, current_capacity(), now - self._started_at)
                self._call({"kind": "waiting", "text": line})

    def _pass_on(self) -> None:
        try:
            records = ray.get(self.sink.drain.remote())
        except RayError as error:
            _logger.warning("records of the workers are lost: %s", error)
            return
        for record in records:
            match record["kind"]:
                case "stopped":
                    self._stopped.set()
                case "node":
                    self._nodes[record["rank"]] = record["node"]
                    continue
                case "starting":
                    self._nodes = {}
                    self._started_at = time.monotonic()
                    self._next_line = self._started_at + SECONDS_BETWEEN_LINES
                case "running":
                    self._started_at = None
            self._call(record)

    def _call(self, record: Record) -> None:
        try:
            self._on_record(record)
        except Exception as error:
            _logger.exception("a record could not be processed: %s", record)
            self._error = self._error or error


def epoch_records(metrics: Mapping[str, Any]) -> list[Record]:
    """Return the records of the epochs that a checkpoint is the first to save, from its reported metrics."""
    this = {name: value for name, value in metrics.items() if name != _EARLIER}
    return [{"kind": "epoch", **epoch} for epoch in (*metrics[_EARLIER], *([] if _STEP in metrics else [this]))]


def collective_seconds(no_progress_seconds: float) -> float:
    """Return the longest time that workers wait for one of them in PyTorch, for a limit of seconds without a step.

    It is longer than the limit, since the worker that hangs must have reported its place by then. Workers that wait
    end themselves half a minute after the limit. PyTorch's limit ends those that cannot.
    """
    return 2 * no_progress_seconds


class RaySession:
    """Implement `training.session.Session` for a Ray Train worker. Train inside `running`.

    Args:
        sink: Receiver of the progress.
        no_progress_seconds: Seconds without a step after which this process ends itself, from its first step on.
        kept_folder: Folder of checkpoints that are never deleted. Its guard is asked before each checkpoint is
            reported, and raises an exception if none may be saved any more.
        cache_folder: Local folder that the workers of a node share.
        fallback: Folder of the checkpoint to continue from if Ray Train has none.

    Attributes:
        rank: This worker's number, from 0.
        world_size: Number of workers.
        device: Device to train on.
        cache_folder: Local folder that the workers of a node share.
        kept_folder: Folder of checkpoints that are never deleted.
    """

    def __init__(
        self,
        sink: Sink,
        *,
        kept_folder: Storage,
        cache_folder: Path,
        no_progress_seconds: float,
        fallback: Path | None = None,
    ) -> None:
        context = train.get_context()
        self.rank: int = context.get_world_rank()
        self.world_size: int = context.get_world_size()
        self._local_rank: int = context.get_local_rank()
        self.device: torch.device = get_device()
        self._sink = sink
        self._answer: ray.ObjectRef[bool] | None = None
        self._is_asked_to_end = False
        self._restored = fallback
        self.cache_folder = cache_folder
        self.kept_folder = kept_folder
        self._unsaved: list[dict[str, float]] = []
        self._epochs: list[dict[str, float]] = []
        self._watch = NoProgressWatch(
            no_progress_seconds, self._tell_stuck, seconds_to_start=max(no_progress_seconds, _SECONDS_TO_START)
        )
        self._uploading: Path | None = None
        self._next_progress = 0.0
        self._num_steps = 0
        # On by default; `local_ray` turns it off, since nobody takes away its machine.
        self._is_watched = os.environ.get(_WATCHER, "1") != "0"

    @contextmanager
    def running(self) -> Iterator[RaySession]:
        """Open the newest checkpoint, and watch the progress, for the `with` block."""
        restore_collector()
        with ExitStack() as opened:
            opened.enter_context(self._watch)  # first, since the storage may hang at the first look
            # After Ctrl-C Ray Train restarts workers that have saved and ended, until its controller is stopped too.
            if self.rank == 0 and ray.get(self._sink.begin.remote()):
                raise StoppedError("training was asked to end before this attempt began")
            if self.rank == 0:
                is_gpu = self.device.type == "cuda"
                name = torch.cuda.get_device_name(self.device) if is_gpu else processor_name()
                self._sink.push.remote({"kind": "device", "name": name})
            if self._local_rank == 0:
                self.kept_folder.require_writable()  # a machine without the driver's files is found before it trains
                node = ray.get_runtime_context().get_node_id()
                self._sink.push.remote({"kind": "node", "rank": self.rank, "node": node})
            self._limit_collectives()
            checkpoint = train.get_checkpoint()
            if checkpoint is not None:
                self._restored = Path(opened.enter_context(checkpoint.as_directory()))
            if self._restored is not None:
                epochs = self._restored / EPOCHS_NAME
                # Checkpoints without the file have an older stage version, so they are never in this folder.
                assert epochs.is_file(), f"{self._restored} holds no {EPOCHS_NAME}"
                self._epochs = json.loads(epochs.read_text())
            yield self

    def _limit_collectives(self) -> None:
        """Make PyTorch's limit for collectives fit the limit in force."""
        if dist.is_initialized():
            dist.set_timeout(timedelta(seconds=collective_seconds(self._watch.seconds)))

    def view_source(self, loader: ViewLoader, config: PretrainConfig) -> ViewSource:
        """Return the loader, or the decoders on other machines that feed it (`execution.decode_on`)."""
        if config.execution.decode_on == "workers":
            return loader
        from objectaware.distributed.decoding import DecodedViews  # Ray Data takes over a second to import

        return DecodedViews(loader, config, self.rank, self.world_size, waiting=self._watch.paused)

    def restored(self) -> Path | None:
        """Return the folder of the newest checkpoint, local or downloaded, or None at the start."""
        return self._restored

    def report(self, metrics: Mapping[str, float], *, epoch: int, checkpoint: Path | None) -> None:
        """Report an epoch to Ray Train, and return when its checkpoint, if there is one, is in storage.

        Every worker calls it after every epoch. `EpochRecorder` sends this epoch and those since the last checkpoint to
        the driver.
        """
        self._watch.moved()
        this = {**metrics, "epoch": epoch}
        self._epochs.append(this)
        if checkpoint is None:
            # Ray Train takes reports in order: behind an upload, a report waits too.
            train.report(this, checkpoint_upload_mode=_ASYNC if self._is_uploading() else _SYNC)
            self._unsaved.append(this)
            return
        self.kept_folder.require_writable()
        self._report_checkpoint(checkpoint, checkpoint_name(epoch), this)

    def save(self, checkpoint: Path | None, *, epoch: int, step: int, wait: bool) -> None:
        """Report a checkpoint inside an epoch to Ray Train.

        The checkpoint records only the epochs that ended since the last one.

        Args:
            checkpoint: The folder; None from other ranks.
            epoch: Epoch, from 0.
            step: Number of steps of the epoch that are done.
            wait: Return only once a restart would find it. Otherwise Ray Train uploads it while training continues;
                this waits only for the upload before it, so that copies do not pile up on the local disk.
        """
        self._watch.moved()
        if checkpoint is None:
            train.report({})
        else:
            if not wait and self._is_uploading():
                self._wait_for_reports()
            self.kept_folder.require_writable()  # before there is a folder that nobody would delete
            if not wait:
                # The caller deletes its folder, and Ray Train this one once it is uploaded.
                checkpoint = checkpoint.rename(tempfile.mkdtemp(prefix="checkpoint-", dir=checkpoint.parent))
                self._uploading = checkpoint
            name = checkpoint_name(epoch, step)
            self._report_checkpoint(checkpoint, name, {"epoch": epoch, _STEP: step}, mode=_SYNC if wait else _ASYNC)
        if wait:
            self._wait_for_reports()

    def _is_uploading(self) -> bool:
        return self._uploading is not None and self._uploading.exists()

    def _wait_for_reports(self) -> None:
        """Wait until Ray Train has listed the checkpoints of all reports so far.

        It has no limit of its own, after which Ray would return as if they were listed. If the storage hangs, the watch
        of the progress ends this process.
        """
        train.get_all_reported_checkpoints(consistency_mode=train.CheckpointConsistencyMode.COMMITTED)

    def _report_checkpoint(
        self, checkpoint: Path, name: str, metrics: Mapping[str, float], *, mode: train.CheckpointUploadMode = _SYNC
    ) -> None:
        """Write the metrics of all epochs so far into a checkpoint, and report it to Ray Train.

        Ray Train keeps two checkpoints, and a driver may die long before its workers. The next driver finds in the
        newest one what that one had not recorded.
        """
        (checkpoint / EPOCHS_NAME).write_text(json.dumps(self._epochs))
        train.report(
            {**metrics, _EARLIER: self._unsaved},
            checkpoint=train.Checkpoint.from_directory(checkpoint),
            checkpoint_dir_name=name,
            checkpoint_upload_mode=mode,
        )
        self._unsaved = []

    def should_stop(self) -> bool:
        """Return whether training should end: on SIGTERM, before a machine is removed, or if the driver wants it.

        All workers call it after every step.
        """
        self._watch.stepped()
        self._num_steps += 1
        if self._num_steps == 1:
            self._limit_collectives()
        if self._is_watched and self._num_steps % _STEPS_BETWEEN_LOOKS == 0 and train.get_preemption_info() is not None:
            return True  # Ray is about to remove a worker's machine (`ray drain-node`, spot instances)
        self._hear()
        return self._is_asked_to_end or is_terminated()

    def _hear(self) -> None:
        """Take in the driver's answer to the last record, if it has come: whether training should end."""
        if self._answer is not None and ray.wait([self._answer], timeout=0)[0]:
            self._is_asked_to_end |= ray.get(self._answer)
            self._answer = None

    def progress(self, state: Mapping[str, float]) -> None:
        """Report the progress of an epoch to the driver, from rank 0 and at most once per second; never wait."""
        now = time.monotonic()
        if self.rank == 0 and now >= self._next_progress:
            self._next_progress = now + _SECONDS_BETWEEN_PROGRESS
            self._hear()  # otherwise, with slow steps, each answer would be replaced before it was read
            self._answer = self._sink.push.remote({"kind": "progress", **state})

    def record(self, metrics: Mapping[str, float], *, step: int) -> None:
        """Send metrics of the last steps to the driver, from rank 0; never wait."""
        if self.rank == 0:
            self._sink.push.remote({"kind": "steps", "step": step, **metrics})

    def _tell_stuck(self, place: str) -> None:
        """Send the last record before this process ends, and wait until it has arrived."""
        record = {"kind": "stuck", "rank": self.rank, "seconds": self._watch.seconds, "place": place}
        ray.wait([self._sink.push.remote(record)], timeout=_SECONDS_TO_TELL)


class FinalError(Exception):
    """Carry an error out of a worker that a retry would meet again, so that there is no retry.

    Args:
        error: The error itself.
    """

    def __init__(self, error: Exception) -> None:
        self.error = error
        super().__init__(error)


class EpochRecorder(train.UserCallback):
    """Send epochs to the driver once they are saved, and stop Ray Train if a retry would not help.

    It runs in Ray Train's controller, which calls it after its own book-keeping, so that a recorded epoch is never
    computed again.

    Args:
        sink: Receiver of the records.
        max_failures: Most failures in a row without a checkpoint between them; after one more, the last is raised. A
            run of weeks on machines that come and go may fail any number of times, as long as it makes progress.
    """

    def __init__(self, sink: Sink, *, max_failures: int) -> None:
        self._sink = sink
        self._max_failures = max_failures
        self._num_failures = 0
        self._has_failed = False

    def begin_attempt(self) -> None:
        """Count the next failure, since workers run again."""
        self._has_failed = False

    def after_report(
        self, run_context: object, metrics: list[dict[str, Any]], checkpoint: train.Checkpoint | None
    ) -> None:
        """Record the epochs that a checkpoint has saved, with rank 0's metrics."""
        if checkpoint is not None:
            self._num_failures = 0
            ray.get([self._sink.push.remote(record) for record in epoch_records(metrics[0])])

    def after_exception(self, run_context: object, worker_exceptions: dict[int, Exception]) -> None:
        """Raise errors that no retry would solve, as `FinalError`.

        Ray Train ends with an error that a callback raises. Its `FailureConfig` can only count errors. If a node dies
        whose end was announced, Ray Train waits for the other workers, and calls this several times per second.
        """
        for error in worker_exceptions.values():
            if isinstance(error, FinalError):
                raise error
        if self._has_failed:
            return
        self._has_failed = True
        self._num_failures += 1
        if self._num_failures > self._max_failures:
            raise FinalError(root_cause(worker_exceptions))


class StartWatch(ControllerCallback):
    """Report when workers start, and end a training whose workers cannot, or wait for longer than the user wants.

    Waiting for room is not a failure: Ray Train then tries again, with no limit. It treats workers that die while they
    start in the same way, and would start such workers without end.

    It runs in Ray Train's controller. `train.UserCallback` has no method for the time before workers run.

    Args:
        sink: Receiver of the records.
        recorder: Counter of the failures of workers that run, in the same controller.
        max_failures: Most failed starts in a row; after one more, the last one is raised.
        max_wait_minutes: Longest wait for room; None waits without end.
    """

    def __init__(
        self, sink: Sink, recorder: EpochRecorder, *, max_failures: int, max_wait_minutes: float | None
    ) -> None:
        self._sink = sink
        self._recorder = recorder
        self._max_failures = max_failures
        self._max_wait_minutes = max_wait_minutes
        self._num_failures = 0
        self._began_at: float | None = None

    def after_controller_state_update(
        self, previous_state: TrainControllerState, current_state: TrainControllerState
    ) -> None:
        """Look at the new state of the training."""
        if isinstance(current_state, RunningState):
            if self._began_at is not None:
                self._sink.push.remote({"kind": "running"})
                self._recorder.begin_attempt()
            self._began_at, self._num_failures = None, 0
            return
        if isinstance(current_state, SchedulingState) and self._began_at is None:
            self._began_at = time.monotonic()
            self._sink.push.remote({"kind": "starting"})
        if isinstance(current_state, ReschedulingState) and self._began_at is not None:
            error = current_state.training_failed_error
            assert isinstance(error, train.ControllerError)
            self._judge(error.controller_failure, time.monotonic() - self._began_at)

    def _judge(self, failure: Exception, seconds: float) -> None:
        """Raise the last word on a start that has failed, if there is to be no other."""
        if not isinstance(failure, WorkerGroupStartupTimeoutError):
            self._num_failures += 1
            if self._num_failures > self._max_failures:
                raise FinalError(failure)
        elif self._max_wait_minutes is not None and seconds >= 60 * self._max_wait_minutes:
            raise FinalError(NoRoomError.after(self._max_wait_minutes, "there was no room for the training's workers"))


def root_cause(failures: dict[int, Exception]) -> Exception:
    """Return the workers' error that is more than a lost connection to another worker."""
    ranks = sorted(failures, key=lambda rank: (isinstance(failures[rank], RuntimeError), rank))
    return failures[ranks[0]]
