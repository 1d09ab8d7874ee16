"""A training worker's session on Ray Train, and its records on their way to the driver."""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import ray
import torch
from ray import get, train
from ray.exceptions import RayError
from ray.train.torch import get_device
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from objectaware import collector
from objectaware.background import Background
from objectaware.training.checkpoints import checkpoint_name
from objectaware.training.no_progress import NoProgressWatch
from objectaware.training.preemption import StoppedError, is_terminated

Record = dict[str, Any]
"""Plain values; `kind` says what it is: `epoch`, `progress`, `stopping`, `stopped` or `stuck`."""

_SECONDS_BETWEEN_DRAINS = 0.3

_logger = logging.getLogger(__name__)

_SECONDS_BETWEEN_PROGRESS = 1.0
_SECONDS_TO_COMMIT = 60.0
_SECONDS_TO_TELL = 10.0
# Workers wait for each other at a look, a hundredth of a second or so; clusters give notice half a minute ahead.
_STEPS_BETWEEN_LOOKS = 20
_WATCHER = "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER"
_EARLIER = "epochs_since_the_last_checkpoint"
EPOCHS_NAME = "epochs.json"
"""File in a checkpoint with the metrics of each epoch since the beginning."""
_STEP = "step_inside_the_epoch"


class RecordSink:
    """Where workers leave records until the driver fetches them. Runs as an actor."""

    def __init__(self) -> None:
        self._records: list[Record] = []
        self._stops = False
        self._stuck: Record | None = None

    def push(self, record: Record) -> bool:
        """Leaves a record; tells whether the driver wants the workers to end."""
        self._records.append(record)
        self._stuck = record if record["kind"] == "stuck" else None
        return self._stops

    def begin(self) -> bool:
        """Start a new attempt: forget the previous attempt's `stuck` record; return whether the driver wants an end."""
        self._stuck = None
        return self._stops

    def stuck(self) -> Record | None:
        """What a worker told that had made no progress for too long, unless others have told something since."""
        return self._stuck

    def stop(self) -> None:
        """Makes `push` answer that the workers shall end."""
        self._stops = True

    def drain(self) -> list[Record]:
        """Hands over all records, in order, and forgets them."""
        records, self._records = self._records, []
        return records


class DriverLine:
    """A worker's line to the driver: leaves records and hears, some time later, whether training shall end.

    Neither waits, but `begin` and `last_word`.

    Args:
        sink: Handle of the `RecordSink` actor.
    """

    def __init__(self, sink: Any) -> None:  # noqa: ANN401 - Ray's handles are Any
        self._sink = sink
        self._answer: ray.ObjectRef[bool] | None = None
        self._stops = False

    def begin(self) -> bool:
        """See `RecordSink.begin`."""
        wants_end: bool = ray.get(self._sink.begin.remote())
        return wants_end

    def last_word(self, record: Record, seconds: float) -> None:
        """Leaves a record before this process ends, and waits until it is there, at most so long."""
        ray.wait([self._sink.push.remote(record)], timeout=seconds)

    def push(self, record: Record) -> None:
        """Leaves a record."""
        self._hear()  # or with slow steps each answer would be forgotten before it was heard
        self._answer = self._sink.push.remote(record)

    def shall_stop(self) -> bool:
        """Whether the driver wants training to end, as far as it is known here."""
        self._hear()
        return self._stops

    def _hear(self) -> None:
        if self._answer is not None and ray.wait([self._answer], timeout=0)[0]:
            self._stops |= ray.get(self._answer)
            self._answer = None


class RecordPump(Background):
    """Calls the driver's function with every record that workers leave, as a context manager.

    The function is called from one thread, a record at a time. When it fails, later records still reach it;
    its first exception is raised on leaving the `with` block.

    Args:
        on_record: Called with each record.

    Attributes:
        sink: Handle of the `RecordSink` actor that workers push to, inside the `with` block.
    """

    sink: Any

    def __init__(self, on_record: Callable[[Record], None]) -> None:
        super().__init__("records")
        self._on_record = on_record
        self._error: Exception | None = None
        self._stopped = threading.Event()

    def __enter__(self) -> Self:
        # On the driver's node, the one whose loss ends the command anyhow.
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

    def stuck(self) -> Record | None:
        """What `RecordSink.stuck` says; None where it is lost."""
        try:
            record: Record | None = ray.get(self.sink.stuck.remote())
        except RayError as error:
            _logger.warning("what workers told of their progress is lost: %s", error)
            return None
        return record

    def stop_training(self, seconds: float) -> None:
        """Asks the workers to end, and waits until one has said that they did (`stopped`), at most so long."""
        self._on_record({"kind": "stopping"})
        self._stopped.clear()
        self.sink.stop.remote()
        self._stopped.wait(seconds)

    def _run(self) -> None:
        while not self._stop.wait(_SECONDS_BETWEEN_DRAINS):
            self._pass_on()

    def _pass_on(self) -> None:
        try:
            records = ray.get(self.sink.drain.remote())
        except RayError as error:
            _logger.warning("records of the workers are lost: %s", error)
            return
        for record in records:
            if record["kind"] == "stopped":
                self._stopped.set()
            try:
                self._on_record(record)
            except Exception as error:
                _logger.exception("a record could not be taken in: %s", record)
                self._error = self._error or error


def epoch_records(metrics: Mapping[str, Any]) -> list[Record]:
    """Records of the epochs that one checkpoint is the first to save, from the metrics that it was reported with."""
    this = {name: value for name, value in metrics.items() if name != _EARLIER}
    return [{"kind": "epoch", **epoch} for epoch in (*metrics[_EARLIER], *([] if _STEP in metrics else [this]))]


class RaySession:
    """A Ray Train worker's place among the others: `training.session.Session`, as a context manager.

    Args:
        sink: `RecordSink` that progress goes to.
        no_progress_seconds: After how long without a step this process is ended.
        fallback: Folder of the checkpoint to go on from where Ray Train knows of none.
        guard: Called before a checkpoint is handed over; raises an exception where none may be saved any more.

    Attributes:
        rank: This worker's number, from 0.
        world_size: Number of workers.
        device: Device to train on.
    """

    def __init__(
        self,
        sink: Any,  # noqa: ANN401 - Ray's handles are Any
        *,
        no_progress_seconds: float,
        fallback: Path | None = None,
        guard: Callable[[], None] = lambda: None,
    ) -> None:
        context = train.get_context()
        self.rank: int = context.get_world_rank()
        self.world_size: int = context.get_world_size()
        self.device: torch.device = get_device()
        self._driver = DriverLine(sink)
        self._restored = fallback
        self._guard = guard
        self._unsaved: list[dict[str, float]] = []
        self._epochs: list[dict[str, float]] = []
        self._open = ExitStack()
        self._watch = NoProgressWatch(no_progress_seconds, self._tell_stuck)
        self._next_progress = 0.0
        self._num_steps = 0
        # On by default; a Ray that was started for the command alone has nobody to take machines away.
        self._is_watched = os.environ.get(_WATCHER, "1") != "0"

    def __enter__(self) -> RaySession:
        collector.restore()
        # Ray Train starts the workers again that have saved and ended on Ctrl-C, until its controller is stopped, too.
        if self.rank == 0 and self._driver.begin():
            raise StoppedError("training was told to end before this attempt began")
        with ExitStack() as opened:
            opened.enter_context(self._watch)
            checkpoint = train.get_checkpoint()
            if checkpoint is not None:
                self._restored = Path(opened.enter_context(checkpoint.as_directory()))
            if self._restored is not None:
                epochs = self._restored / EPOCHS_NAME
                # Checkpoints from before the file are of an older stage number, hence never in this folder.
                assert epochs.is_file(), f"{self._restored} holds no {EPOCHS_NAME}"
                self._epochs = json.loads(epochs.read_text())
            self._open = opened.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    def restored(self) -> Path | None:
        """Folder of the newest checkpoint, local or downloaded, or None at the start."""
        return self._restored

    def report(self, metrics: Mapping[str, float], *, epoch: int, checkpoint: Path | None) -> None:
        """Hands an epoch over to Ray Train and returns when the checkpoint, if there is one, is in storage.

        Every worker calls it after every epoch. The driver hears of it, and of the epochs since the last checkpoint,
        through `EpochRecorder`.
        """
        self._watch.moved()
        this = {**metrics, "epoch": epoch}
        self._epochs.append(this)
        if checkpoint is None:
            train.report(this)
            self._unsaved.append(this)
            return
        self._guard()
        self._write_epochs(checkpoint)
        train.report(
            {**this, _EARLIER: self._unsaved},
            checkpoint=train.Checkpoint.from_directory(checkpoint),
            checkpoint_dir_name=checkpoint_name(epoch),
        )
        self._unsaved = []

    def save(self, checkpoint: Path | None, *, epoch: int, step: int) -> None:
        """Hands a checkpoint made inside an epoch over to Ray Train and returns when a restart would find it.

        It records no epoch but those that ended since the last checkpoint.
        """
        self._watch.moved()
        if checkpoint is None:
            train.report({})
        else:
            self._guard()
            self._write_epochs(checkpoint)
            train.report(
                {"epoch": epoch, _STEP: step, _EARLIER: self._unsaved},
                checkpoint=train.Checkpoint.from_directory(checkpoint),
                checkpoint_dir_name=checkpoint_name(epoch, step),
            )
            self._unsaved = []
        train.get_all_reported_checkpoints(
            consistency_mode=train.CheckpointConsistencyMode.COMMITTED, timeout_s=_SECONDS_TO_COMMIT
        )

    def _write_epochs(self, checkpoint: Path) -> None:
        """Puts the metrics of all epochs so far into a checkpoint.

        Ray Train keeps two checkpoints, and a driver may die long before its workers do: what it had not recorded then
        is found here.
        """
        (checkpoint / EPOCHS_NAME).write_text(json.dumps(self._epochs))

    def should_stop(self) -> bool:
        """Whether this process was sent SIGTERM, a machine is to be taken away, or the driver wants training to end.

        All workers call it after every step.
        """
        self._watch.moved()
        is_drained = self._is_drained()
        return is_drained or self._driver.shall_stop() or is_terminated()

    def _is_drained(self) -> bool:
        """Whether Ray is about to take a machine of the workers' away (`ray drain-node`, spot instances)."""
        self._num_steps += 1
        looks = self._is_watched and self._num_steps % _STEPS_BETWEEN_LOOKS == 0
        return looks and train.get_preemption_info() is not None

    def progress(self, state: Mapping[str, float]) -> None:
        """Tells the driver, from rank 0 and at most once a second, how far an epoch has come; never waits."""
        now = time.monotonic()
        if self.rank == 0 and now >= self._next_progress:
            self._next_progress = now + _SECONDS_BETWEEN_PROGRESS
            self._driver.push({"kind": "progress", **state})

    def _tell_stuck(self, place: str) -> None:
        record = {"kind": "stuck", "rank": self.rank, "seconds": self._watch.seconds, "place": place}
        self._driver.last_word(record, _SECONDS_TO_TELL)


class FinalError(Exception):
    """Carries an error out of a worker that the same work would meet again, so that nothing is tried again.

    Args:
        error: The error itself.
    """

    def __init__(self, error: Exception) -> None:
        self.error = error
        super().__init__(error)


class EpochRecorder(train.UserCallback):
    """Tells the driver of epochs once they are saved, and stops Ray Train where a retry would not help.

    It runs in Ray Train's controller, which calls it after its own book-keeping: what was recorded is never
    computed again.

    Args:
        sink: `RecordSink` that the records go to.
        max_failures: Failures in a row, without a checkpoint between them, after which the last one is raised.
            A run of weeks on machines that are taken away may fail any number of times, as long as it moves.
    """

    def __init__(self, sink: Any, *, max_failures: int) -> None:  # noqa: ANN401 - Ray's handles are Any
        self._sink = sink
        self._max_failures = max_failures
        self._num_failures = 0

    def after_report(
        self,
        run_context: Any,  # noqa: ANN401 - as Ray Train declares it
        metrics: list[dict[str, Any]],
        checkpoint: train.Checkpoint | None,
    ) -> None:
        """Records the epochs that a checkpoint has saved, with rank 0's metrics."""
        if checkpoint is not None:
            self._num_failures = 0
            get([self._sink.push.remote(record) for record in epoch_records(metrics[0])])

    def after_exception(
        self,
        run_context: Any,  # noqa: ANN401 - as Ray Train declares it
        worker_exceptions: dict[int, Exception],
    ) -> None:
        """Raises what no retry would mend, as a `FinalError`."""
        for error in worker_exceptions.values():
            if isinstance(error, FinalError):
                raise error
        self._num_failures += 1
        if self._num_failures > self._max_failures:
            raise FinalError(root_cause(worker_exceptions))


def root_cause(failures: dict[int, Exception]) -> Exception:
    """Of the errors of several workers, the one that is not just a lost connection to another worker."""
    ranks = sorted(failures, key=lambda rank: (isinstance(failures[rank], RuntimeError), rank))
    return failures[ranks[0]]
