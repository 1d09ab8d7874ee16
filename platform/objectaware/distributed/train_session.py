"""The training loop's session on top of Ray Train, and what listens to it beside Ray Train's controller."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from ray import get, train
from ray.train.collective import broadcast_from_rank_zero
from ray.train.torch import get_device

from objectaware.distributed.records import Record

_SECONDS_BETWEEN_PROGRESS = 1.0
_EARLIER = "epochs_since_the_last_checkpoint"


def checkpoint_name(epoch: int) -> str:
    """Name of the folder of the checkpoint made after an epoch, counted from 0."""
    return f"epoch_{epoch:04d}"


def epoch_records(metrics: Mapping[str, Any]) -> list[Record]:
    """Records of the epochs that one checkpoint saved, from the metrics that Ray Train keeps with it."""
    this = {name: value for name, value in metrics.items() if name != _EARLIER}
    return [{"kind": "epoch", **epoch} for epoch in (*metrics.get(_EARLIER, ()), this)]


class RaySession:
    """A Ray Train worker's place among the others: `training.session.Session`, as a context manager.

    Args:
        sink: `RecordSink` that progress goes to.
        fallback: Folder of the checkpoint to go on from where Ray Train knows of none.

    Attributes:
        rank: This worker's number, from 0.
        world_size: Number of workers.
        device: Device to train on.
    """

    def __init__(self, sink: Any, *, fallback: Path | None = None) -> None:  # noqa: ANN401 - Ray's handles are Any
        context = train.get_context()
        self.rank: int = context.get_world_rank()
        self.world_size: int = context.get_world_size()
        self.device: torch.device = get_device()
        self._sink = sink
        self._restored = fallback
        self._unsaved: list[dict[str, float]] = []
        self._downloads = ExitStack()
        self._next_progress = 0.0

    def __enter__(self) -> RaySession:
        checkpoint = train.get_checkpoint()
        if checkpoint is not None:
            self._restored = Path(self._downloads.enter_context(checkpoint.as_directory()))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._downloads.close()

    def restored(self) -> Path | None:
        """Folder of the newest checkpoint, local or downloaded, or None at the start."""
        return self._restored

    def report(self, metrics: Mapping[str, float], *, epoch: int, checkpoint: Path | None) -> None:
        """Hands an epoch over to Ray Train and returns when the checkpoint, if there is one, is in storage.

        Every worker calls it after every epoch. Ray Train keeps the metrics with the checkpoint, those of the
        epochs since the last one among them; the driver hears of them through `EpochRecorder`.
        """
        this = {**metrics, "epoch": epoch}
        if checkpoint is None:
            train.report(this)
            self._unsaved.append(this)
            return
        train.report(
            {**this, _EARLIER: self._unsaved},
            checkpoint=train.Checkpoint.from_directory(checkpoint),
            checkpoint_dir_name=checkpoint_name(epoch),
        )
        self._unsaved = []

    def agree(self, choice: str) -> str:
        """Rank 0's choice, on every worker."""
        return str(broadcast_from_rank_zero(choice))

    def progress(self, state: Mapping[str, float]) -> None:
        """Tells the driver, from rank 0 and at most once a second, how far an epoch has come; never waits."""
        now = time.monotonic()
        if self.rank == 0 and now >= self._next_progress:
            self._next_progress = now + _SECONDS_BETWEEN_PROGRESS
            self._sink.push.remote({"kind": "progress", **state})


class FinalError(Exception):
    """Carries an error out of a worker that the same work would meet again, so that nothing is tried again.

    Args:
        error: The error itself.
    """

    def __init__(self, error: Exception) -> None:
        self.error = error
        super().__init__(error)


class EpochRecorder(train.UserCallback):
    """Tells the driver of epochs once they are saved, and stops Ray Train from retrying after a `FinalError`.

    It runs in Ray Train's controller, which calls it after its own book-keeping: what was recorded is never
    computed again.

    Args:
        sink: `RecordSink` that the records go to.
    """

    def __init__(self, sink: Any) -> None:  # noqa: ANN401 - Ray's handles are Any
        self._sink = sink

    def after_report(
        self,
        run_context: Any,  # noqa: ANN401 - as Ray Train declares it
        metrics: list[dict[str, Any]],
        checkpoint: train.Checkpoint | None,
    ) -> None:
        """Records the epochs that a checkpoint has saved, with rank 0's metrics."""
        if checkpoint is not None:
            get([self._sink.push.remote(record) for record in epoch_records(metrics[0])])

    def after_exception(
        self,
        run_context: Any,  # noqa: ANN401 - as Ray Train declares it
        worker_exceptions: dict[int, Exception],
    ) -> None:
        """Raises what no retry would mend."""
        for error in worker_exceptions.values():
            if isinstance(error, FinalError):
                raise error
