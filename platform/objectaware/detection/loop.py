"""The fine-tuning loop: iterations, the same for one worker or many."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from objectaware.config import DetectionConfig
from objectaware.detection.loader import Batch, BatchLoader
from objectaware.detection.network import MaskRCNN
from objectaware.detection.precise import take_statistics
from objectaware.detection.schedule import learning_rate_at, parameter_groups
from objectaware.methods.backbones import channels_last
from objectaware.methods.batch_norm import synchronise_batch_norm
from objectaware.methods.checkpoint import load_state
from objectaware.methods.gather import mean_over_workers
from objectaware.training.checkpoints import passing_checkpoint
from objectaware.training.precision import autocast
from objectaware.training.preemption import StoppedError, any_worker
from objectaware.training.session import Session
from objectaware.training.watch import TrainingDivergedError


@dataclass
class IntervalTotals:
    """Sums over the iterations of a log interval; saved with a checkpoint inside of one."""

    losses: dict[str, float] = field(default_factory=dict)
    num_iterations: int = 0
    seconds: float = 0.0
    waiting_seconds: float = 0.0

    def add(self, losses: Mapping[str, float], seconds: float) -> None:
        """Adds an iteration."""
        self.num_iterations += 1
        self.seconds += seconds
        for name, value in losses.items():
            self.losses[name] = self.losses.get(name, 0.0) + value

    def metrics(self, batch_size: int) -> dict[str, float]:
        """Mean losses, seconds an iteration, images a second, and the share of the time spent waiting for data."""
        means = {name: value / self.num_iterations for name, value in self.losses.items()}
        seconds = self.seconds / self.num_iterations
        return {
            **means,
            "seconds_per_iteration": seconds,
            "images_per_second": batch_size / seconds,
            "data_wait_share": self.waiting_seconds / (self.waiting_seconds + self.seconds),
        }


class FineTuner:
    """Fine-tunes a network on one worker's share of the batches.

    What it reports to its session as an epoch is a log interval.

    Args:
        network: The network.
        loader: Loads this worker's images.
        config: How the weights are fitted.
        session: This worker's place among the others.
        description: What `config.json` beside a checkpoint holds; has the key `backbone`.
    """

    def __init__(
        self,
        network: MaskRCNN,
        loader: BatchLoader,
        config: DetectionConfig,
        session: Session,
        *,
        description: Mapping[str, object],
    ) -> None:
        self._loader = loader
        self._config = config
        self._session = session
        self._description = description
        self.network = synchronise_batch_norm(network, session.device)
        channels_last(self.network, session.device)
        self.optimizer = torch.optim.SGD(
            parameter_groups(self.network, config.weight_decay),
            lr=config.learning_rate,
            momentum=config.sgd_momentum,
        )
        self.iteration = 0
        self._totals = IntervalTotals()
        self._restore()
        self._step_module: nn.Module = self.network
        if session.world_size > 1:
            # Batch norm's statistics are those of all workers already.
            self._step_module = nn.parallel.DistributedDataParallel(self.network, forward_sync_buffers=False)

    def _restore(self) -> None:
        folder = self._session.restored()
        if folder is None:
            return
        state = load_state(folder)
        self.network.load_state_dict(state["method"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.iteration = int(state["iteration"])
        self._totals = IntervalTotals(**state["totals"])

    def run(self) -> None:
        """Trains from where the restored checkpoint stands to the last iteration.

        Raises:
            TrainingDivergedError: A loss is not a number any more.
            StoppedError: A worker was told to end; all of them end after the same iteration, which is saved.
        """
        batches = self._batches()
        self.network.train()
        # An interval that a stop has cut off at its very end is still to be reported.
        while self.iteration < self._config.num_iterations or self._totals.num_iterations:
            if not self._interval_is_whole():
                self._iterate(self._next(batches))
                self._tell()
                if any_worker(self._session.should_stop(), self._session.device):
                    self._stop()
            if self._interval_is_whole():
                self._end_interval(batches)

    def _interval_is_whole(self) -> bool:
        at_end = self.iteration % self._config.log_interval == 0 or self.iteration == self._config.num_iterations
        return at_end and self._totals.num_iterations > 0

    def _next(self, batches: Iterator[Batch]) -> Batch:
        """The next batch; counts how long it was waited for."""
        asked = time.perf_counter()
        batch = next(batches)
        self._totals.waiting_seconds += time.perf_counter() - asked
        return batch

    def _batches(self) -> Iterator[Batch]:
        device = self._session.device
        for images, targets in self._loader.batches(self.iteration):
            moved = [
                {name: value if name == "key" else value.to(device) for name, value in one.items()} for one in targets
            ]
            yield [image.to(device) for image in images], moved

    def _iterate(self, batch: Batch) -> None:
        started = time.perf_counter()
        config = self._config
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate_at(
                self.iteration,
                config.learning_rate,
                decay_iterations=config.decay_iterations,
                num_warmup_iterations=config.num_warmup_iterations,
            )
        self.optimizer.zero_grad(set_to_none=True)
        with self._autocast():
            losses: dict[str, Tensor] = self._step_module(*batch)
        loss = torch.stack(list(losses.values())).sum()
        torch.autograd.backward(loss)
        self.optimizer.step()
        means = mean_over_workers(torch.stack([loss.detach(), *(one.detach() for one in losses.values())]))
        values = dict(zip(["loss", *losses], means.tolist(), strict=True))
        if not math.isfinite(values["loss"]):
            raise TrainingDivergedError(
                f"the loss is {values['loss']} at iteration {self.iteration}: fine-tuning has diverged. Lower "
                f"learning_rate (now {config.learning_rate:g}) or use precision fp32."
            )
        self.iteration += 1
        self._totals.add(values, time.perf_counter() - started)

    def _autocast(self) -> torch.autocast:
        return autocast(self._config.precision, self._session.device)

    def _tell(self) -> None:
        place = {"iteration": self.iteration, "num_iterations": self._config.num_iterations}
        self._session.progress({**place, **self._totals.metrics(self._config.batch_size)})

    def _stop(self) -> None:
        interval, step = divmod(self.iteration - 1, self._config.log_interval)
        with self._checkpoint() as folder:
            self._session.save(folder, epoch=interval, step=step)
        raise StoppedError(f"fine-tuning was told to end and is saved at iteration {self.iteration}")

    def _end_interval(self, batches: Iterator[Batch]) -> None:
        config = self._config
        interval = (self.iteration - 1) // config.log_interval
        metrics = {"iteration": float(self.iteration), **self._totals.metrics(config.batch_size)}
        first = self.iteration - self._totals.num_iterations
        self._totals = IntervalTotals()
        last = self.iteration == config.num_iterations
        due = self.iteration // config.execution.checkpoint_interval > first // config.execution.checkpoint_interval
        if last and config.num_precise_batches:
            with self._autocast():
                take_statistics(self.network, batches, config.num_precise_batches)
        if not (last or due):
            self._session.report(metrics, epoch=interval, checkpoint=None)
            return
        with self._checkpoint() as folder:
            self._session.report(metrics, epoch=interval, checkpoint=folder)

    def _checkpoint(self) -> AbstractContextManager[Path | None]:
        """Rank 0's checkpoint in a folder that goes away afterwards; None for the other workers."""
        state: dict[str, Any] = {
            "optimizer": self.optimizer.state_dict(),
            "iteration": self.iteration,
            "totals": asdict(self._totals),
        }
        return passing_checkpoint(self.network, self._description, state, rank=self._session.rank)
