"""Records on their way from workers to the driver: progress, metrics."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from objectaware.background import Background

Record = dict[str, Any]
"""Plain values; `kind` says what it is: `epoch`, `progress`, `stopping`, `stopped` or `stuck`."""

_SECONDS_BETWEEN_DRAINS = 0.3

_logger = logging.getLogger(__name__)


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
