"""The loop that pretraining and detection share: precision, steps and their sums, checkpoints, resuming at any step."""

from __future__ import annotations

import math
import re
import tempfile
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from objectaware.config import DetectionConfig, PretrainConfig
from objectaware.errors import ExplainedError, InputError
from objectaware.methods.backbones import channels_last
from objectaware.methods.checkpoint import copy_checkpoint, load_state, save_checkpoint
from objectaware.methods.workers import mean_over_workers, synchronise_batch_norm
from objectaware.training.session import Session, StoppedError

Config = TypeVar("Config", PretrainConfig, DetectionConfig)
Batch = TypeVar("Batch")
Item = TypeVar("Item")
Part = TypeVar("Part")

KEPT_FOLDER = "kept"
"""Folder inside a run's with the checkpoints that Ray Train knows nothing of and never deletes."""

_OF_EPOCHS = ("epoch_seconds", "chance_loss")
"""Metrics that say nothing new inside an epoch."""

_NAME = re.compile(r"epoch_(\d+)(?:_step_(\d+))?")

_STEPS_BETWEEN_READS = 50
_SECONDS_BETWEEN_READS = 5.0


class TrainingDivergedError(ExplainedError):
    """The loss is not finite."""


def checkpoint_name(epoch: int, step: int | None = None) -> str:
    """Name the folder of the checkpoint made after an epoch, from 0, or after some of the epoch's steps."""
    return f"epoch_{epoch:04d}" if step is None else f"epoch_{epoch:04d}_step_{step:08d}"


def checkpoint_epoch(name: str) -> int | None:
    """Return the epoch, from 0, that the folder's name says; None if it is not that of a checkpoint after an epoch."""
    match = _NAME.fullmatch(name)
    return int(match[1]) if match is not None and match[2] is None else None


def checkpoint_position(name: str) -> tuple[float, float]:
    """Order checkpoints by their names as training makes them: (epoch, step), the step infinite after the last."""
    match = _NAME.fullmatch(name)
    assert match is not None, name
    return float(match[1]), float("inf") if match[2] is None else float(match[2])


def prefetched(
    items: Iterable[Item], submit: Callable[[Item], Sequence[Future[Part]]], *, ahead: int
) -> Generator[tuple[Item, list[Part]], None, None]:
    """Yield each item with the results of its futures, in order, while the next items are at work.

    Args:
        items: The items.
        submit: Function that starts the work on an item.
        ahead: Number of items that are started before the results of one are awaited.
    """
    rest = iter(items)
    waiting: deque[tuple[Item, Sequence[Future[Part]]]] = deque()
    while True:
        waiting.extend((item, submit(item)) for item in islice(rest, ahead + 1 - len(waiting)))
        if not waiting:
            return
        # No name holds the results while the caller works with them, so that they can be freed.
        yield waiting[0][0], [future.result() for future in waiting.popleft()[1]]


def autocast(precision: str, device: torch.device) -> torch.autocast:
    """Return the context in which a network's passes have a precision, `fp32` or `bf16`.

    Args:
        precision: The precision in the recipe.
        device: Where the network is.
    """
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16")


def require_precision(precision: str, device: torch.device) -> None:
    """Refuse bfloat16 on a processor that emulates it, where it takes about ten times as long as 32 bits.

    Args:
        precision: The precision in the recipe.
        device: A device of this machine.

    Raises:
        InputError: The device has no instructions for the precision.
    """
    if precision == "bf16" and not _computes_bfloat16(device):
        machine = f"this machine's {'GPU' if device.type == 'cuda' else 'CPU'}"
        problem = f"{machine} has no bfloat16 instructions and would take about ten times as long as with fp32"
        remedy = "Use precision: fp32 (--precision fp32), which gives another result, or a machine that has them."
        raise InputError("precision", precision, problem, remedy)


def _computes_bfloat16(device: torch.device) -> bool:
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    # avx512_bf16 and amx_bf16 of x86, and the two of ARM, all have the same ending.
    capabilities = torch.cpu.get_capabilities()
    return any(bool(value) for name, value in capabilities.items() if name.endswith("bf16"))


@dataclass
class Totals:
    """Sums over the steps of an epoch. A checkpoint inside an epoch holds them; `num_iterations` is its position.

    Attributes:
        losses: Sums of the loss and other metrics of each step, by name.
        num_iterations: Number of steps.
        seconds: Duration of the steps before a restart.
        waiting_seconds: Part of the duration in which the steps waited for data.
        started: Time at which this process began with the epoch.
    """

    losses: dict[str, float] = field(default_factory=dict)
    num_iterations: int = 0
    seconds: float = 0.0
    waiting_seconds: float = 0.0
    started: float = field(default_factory=time.perf_counter)

    def add(self, values: Mapping[str, float]) -> None:
        """Add the loss and metrics of one step."""
        self.num_iterations += 1
        for name, value in values.items():
            self.losses[name] = self.losses.get(name, 0.0) + value

    @property
    def elapsed(self) -> float:
        """Duration of the steps so far in seconds, waiting included."""
        return self.seconds + time.perf_counter() - self.started

    def means(self) -> dict[str, float]:
        """Return the mean loss and metrics per step."""
        return {name: value / self.num_iterations for name, value in self.losses.items()}

    def state(self) -> dict[str, Any]:
        """Return plain values, from which `Totals(**state)` continues."""
        values = {**asdict(self), "seconds": self.elapsed}
        del values["started"]
        return values


class Place(NamedTuple):
    """A place in a training.

    Attributes:
        epoch: Epoch, from 0.
        step: Number of steps of the epoch that are done.
        num_steps: Steps of the epoch.
    """

    epoch: int
    step: int
    num_steps: int

    @property
    def number(self) -> int:
        """Return the number of steps of the training so far, if all epochs have as many."""
        return self.epoch * self.num_steps + self.step


class TrainingLoop(ABC, Generic[Config, Batch]):
    """Train a network on one worker's share of the batches.

    The loop sums up the steps, reports progress and the metrics of each epoch, saves checkpoints, and resumes from
    them. A subclass says what a step, an epoch and a checkpoint consist of. It sets its own attributes, and those below
    that differ from their defaults, before it calls this constructor, which restores the session's checkpoint.

    A GPU works through steps while the host prepares the next ones. The host waits for it, and for the other workers,
    only every 50 steps or 5 seconds: it then reads the losses and metrics of these steps, and whether a worker wants to
    save or to end. Where one process trains on a CPU there is nothing to wait for, and it reads after every step.

    Args:
        config: How the weights are fitted, and when checkpoints are made.
        session: This worker's place among the others.
        network: What is trained.

    Attributes:
        optimizer: Optimizer of the network.
        next_epoch: Epoch in which training starts or resumes.
        learning_rate_text: The field that says the learning rate, and its value, for the message of a divergence.
        description: What `config.json` beside a checkpoint holds besides the configuration.
        syncs_batch_norm: Whether batch norm has the statistics of all workers' samples.
        epoch_size: Length of an epoch in the unit of `execution.checkpoint_interval`.
        interval_steps: Steps between checkpoints inside an epoch; None makes none but by time and on termination.
        keep_every: n: the checkpoint of every n-th epoch is kept permanently, in the session's folder for them; None
            keeps none.
        record_every: n: after every n-th step of the training, its metrics since the last record are reported; None
            reports none.
        reads_each_step: Whether the host reads after every step.
    """

    learning_rate_text: str
    description: Mapping[str, object] = {}
    syncs_batch_norm: bool = True
    epoch_size: int = 1
    interval_steps: int | None = None
    keep_every: int | None = None
    record_every: int | None = None

    def __init__(self, config: Config, session: Session, network: nn.Module) -> None:
        self._config: Config = config
        self._session = session
        if self.syncs_batch_norm:
            synchronise_batch_norm(network, session.device)
        self._network = channels_last(network, session.device)
        self.optimizer = self.build_optimizer()
        self._step_module = network
        if session.world_size > 1:
            # Buffers are equal on all workers already: batch statistics and keys are those of the whole batch. Where
            # they are a worker's own on purpose, training does not read them.
            self._step_module = nn.parallel.DistributedDataParallel(network, forward_sync_buffers=False)
        self.next_epoch = 0
        self._saved_at = self._read_at = time.monotonic()
        self._steps_to_read = 1
        self._unread: list[tuple[Place, dict[str, Tensor]]] = []
        self._is_asked_to_end = False
        self.reads_each_step = session.world_size == 1 and session.device.type == "cpu"
        self._begun: Totals | None = None
        self._since_record = Totals()
        folder = session.restored()
        # After DistributedDataParallel, which gives all workers the buffers of rank 0.
        if folder is not None:
            state = load_state(folder)
            network.load_state_dict(state["method"])
            self.optimizer.load_state_dict(state["optimizer"])
            self._begun = None if state["totals"] is None else Totals(**state["totals"])
            self.next_epoch = self.restore(state)

    @abstractmethod
    def build_optimizer(self) -> Optimizer:
        """Build the optimizer of the network, which is on its device."""

    @abstractmethod
    def restore(self, state: Mapping[str, Any]) -> int:
        """Restore the subclass's part of a checkpoint's state, and return the epoch to continue with."""

    @abstractmethod
    def batches(self, epoch: int, first: int) -> tuple[int, Generator[Batch, None, None]]:
        """Return the number of steps of an epoch, and this worker's batches from the step `first` on."""

    @abstractmethod
    def step(self, place: Place, batch: Batch) -> dict[str, Tensor]:
        """Update the weights, without waiting for the device.

        Returns:
            The `loss` and other metrics of this worker's share, scalars on the device. The loop takes the mean over the
            workers.
        """

    def position(self, place: Place) -> dict[str, int]:
        """Return the place as progress and messages name it."""
        return place._asdict()

    @abstractmethod
    def metrics(self, totals: Totals) -> dict[str, float]:
        """Return the metrics of an epoch so far."""

    @abstractmethod
    def end_epoch(self, place: Place, metrics: dict[str, float]) -> dict[str, float]:
        """Finish an epoch before its checkpoint is made. Return the metrics to report."""

    @abstractmethod
    def checkpoint(self, next_epoch: int, totals: Totals | None = None) -> AbstractContextManager[Path | None]:
        """Yield rank 0's checkpoint in a temporary folder, and None to the other workers. Every worker must call it.

        Args:
            next_epoch: The epoch to continue with.
            totals: Its sums, if it is begun.
        """

    @contextmanager
    def saved(self, state: Mapping[str, object]) -> Iterator[Path | None]:
        """Save the network, the optimizer and a state as `checkpoint` describes."""
        if self._session.rank != 0:
            yield None
            return
        # The session may have moved the folder away.
        with tempfile.TemporaryDirectory(prefix="checkpoint-", ignore_cleanup_errors=True) as folder:
            state = {"optimizer": self.optimizer.state_dict(), **state}
            description = {**self._config.model_dump(mode="json"), **self.description}
            save_checkpoint(Path(folder), self._network, description, state)
            yield Path(folder)

    def run(self) -> None:
        """Train from the restored checkpoint, which may be inside an epoch, to the last epoch.

        Raises:
            TrainingDivergedError: The loss is not finite.
            StoppedError: A worker was asked to end. All workers end after the same step, which is saved.
        """
        for epoch in range(self.next_epoch, self._config.num_epochs):
            self._report(epoch, self._train_epoch(epoch))

    def _train_epoch(self, epoch: int) -> dict[str, float]:
        self._network.train()
        totals, self._begun = self._begun or Totals(), None
        first = totals.num_iterations
        num_steps, found = self.batches(epoch, first)
        with closing(found) as batches:
            for step in range(first, num_steps):
                asked = time.perf_counter()
                batch = next(batches)
                waited = time.perf_counter() - asked
                totals.waiting_seconds += waited
                self._since_record.waiting_seconds += waited
                place = Place(epoch, step, num_steps)
                values = self.step(place, batch)
                self._after_step(place._replace(step=step + 1), values, totals)
        return self.end_epoch(Place(epoch, num_steps, num_steps), self.metrics(totals))

    def _after_step(self, place: Place, values: dict[str, Tensor], totals: Totals) -> None:
        """Read the steps so far where one is due. Then save, if a checkpoint is due or a worker was asked to end."""
        self._unread.append((place, values))
        self._is_asked_to_end |= self._session.should_stop()
        self._steps_to_read -= 1
        is_last = place.step == place.num_steps
        due = self.interval_steps is not None and place.step % self.interval_steps == 0
        is_read = self._steps_to_read == 0 or is_last or due or self._is_recorded(place)
        if not (is_read or self.reads_each_step):
            return
        stop, is_late = self._read(totals)
        self._session.progress({**self.position(place), **self.metrics(totals)})
        # After the last step, the epoch's own checkpoint may follow.
        if stop or ((due or is_late) and not is_last):
            with self.checkpoint(place.epoch, totals) as folder:
                self._session.save(folder, epoch=place.epoch, step=place.step, wait=stop or due)
            self._saved_at = time.monotonic()
        if stop:
            raise StoppedError(f"training was asked to end and is saved at {self._named(place)}")

    def _read(self, totals: Totals) -> tuple[bool, bool]:
        """Add up the steps since the last read, in one exchange between the workers and one wait for the device.

        All workers call it after the same steps: they agree on the next one here.

        Returns:
            Whether any worker was asked to end, and whether it is late for a checkpoint on any, by their clocks.

        Raises:
            TrainingDivergedError: The loss of a step is not finite.
        """
        minutes = self._config.execution.checkpoint_minutes
        now = time.monotonic()
        is_late = minutes is not None and now - self._saved_at >= 60 * minutes
        seconds = (now - self._read_at) / len(self._unread)
        device = self._session.device
        wishes = torch.tensor([self._is_asked_to_end, is_late, seconds], dtype=torch.float64, device=device)
        values = torch.stack([value for _, step in self._unread for value in step.values()])
        stop, late, seconds, *means = mean_over_workers(torch.cat([wishes, values.double()])).tolist()
        self._steps_to_read = max(1, min(_STEPS_BETWEEN_READS, int(_SECONDS_BETWEEN_READS / max(seconds, 1e-9))))
        self._read_at = time.monotonic()
        unread, self._unread = self._unread, []
        rest = iter(means)
        for place, step in unread:
            self._add(place, {name: next(rest) for name in step}, totals)
        return stop > 0, late > 0

    def _add(self, place: Place, values: Mapping[str, float], totals: Totals) -> None:
        """Add a step to the epoch's sums and to the metrics by step, and report the latter when they are due."""
        if not math.isfinite(values["loss"]):
            raise TrainingDivergedError(
                f"the loss is {values['loss']} at {self._named(place)}: training has diverged. Lower "
                f"{self.learning_rate_text} or use precision fp32."
            )
        totals.add(values)
        self._since_record.add(values)
        if self._is_recorded(place):
            metrics = {**self.metrics(self._since_record), "learning_rate": self.optimizer.param_groups[0]["lr"]}
            reported = {name: metrics[name] for name in metrics if name not in _OF_EPOCHS}
            self._session.record(reported, step=place.number)
            self._since_record = Totals()

    def _is_recorded(self, place: Place) -> bool:
        return self.record_every is not None and place.number % self.record_every == 0

    def _named(self, place: Place) -> str:
        position = self.position(place)
        return ", ".join(f"{name} {number}" for name, number in position.items() if not name.startswith("num_"))

    def _report(self, epoch: int, metrics: Mapping[str, float]) -> None:
        number, size, interval = epoch + 1, self.epoch_size, self._config.execution.checkpoint_interval
        # The interval is rounded up to whole epochs; the last epoch always makes a checkpoint.
        is_due = number * size // interval > epoch * size // interval or number == self._config.num_epochs
        is_kept = self.keep_every is not None and number % self.keep_every == 0
        if not (is_kept or is_due):
            self._session.report(metrics, epoch=epoch, checkpoint=None)
            return
        with self.checkpoint(number) as folder:
            if is_kept and folder is not None:
                # First: a run that is stopped between the two makes this checkpoint again, which replaces its equal.
                copy_checkpoint(folder, self._session.kept_folder.child(checkpoint_name(epoch)))
            self._session.report(metrics, epoch=epoch, checkpoint=folder)
        self._saved_at = time.monotonic()
