"""What changes during a training: sums of an epoch, unreadable samples, and the way into a checkpoint and back."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from objectaware.methods.checkpoint import load_state
from objectaware.methods.method import Method
from objectaware.methods.workers import averaged_statistics, gather_batch, num_workers, running_statistics
from objectaware.training.checkpoints import passing_checkpoint
from objectaware.training.policies import Policy
from objectaware.training.session import Session
from objectaware.training.views import ViewBatch


@dataclass
class EpochTotals:
    """Sum over the steps of an epoch. A checkpoint inside an epoch holds the sums; `num_steps` is its position.

    Attributes:
        seconds_before: Duration of the steps before a restart.
        started: Time at which this process began the epoch.
        observed: Sums of the metrics of each step, by name.
    """

    loss: float = 0.0
    num_steps: int = 0
    num_images: int = 0
    waiting_seconds: float = 0.0
    seconds_before: float = 0.0
    started: float = field(default_factory=time.perf_counter)
    observed: dict[str, float] = field(default_factory=dict)

    def observe(self, values: Mapping[str, float]) -> None:
        """Add the metrics of one step."""
        for name, value in values.items():
            self.observed[name] = self.observed.get(name, 0.0) + value

    @property
    def seconds(self) -> float:
        """Duration of the epoch so far."""
        return self.seconds_before + time.perf_counter() - self.started

    def state(self) -> dict[str, Any]:
        """Return plain values, from which `EpochTotals(**state)` continues."""
        values = {**asdict(self), "seconds_before": self.seconds}
        del values["started"]
        return values

    def metrics(self) -> dict[str, float]:
        """Return mean loss and metrics, images per second, and the share of the time spent waiting for data."""
        seconds = self.seconds
        return {
            "loss": self.loss / self.num_steps,
            **{name: value / self.num_steps for name, value in self.observed.items()},
            "images_per_second": self.num_images / seconds,
            "data_wait_share": self.waiting_seconds / seconds,
            "epoch_seconds": seconds,
        }


class UnreadableSamples:
    """Record the samples that other images stand in for, of all workers and since the run began.

    Args:
        num_samples: Size of the data set.
        device: Device that workers exchange on.
    """

    def __init__(self, num_samples: int, device: torch.device) -> None:
        self._is_unreadable = torch.zeros(num_samples, dtype=torch.uint8)
        self._device = device

    def add(self, batch: ViewBatch) -> None:
        """Add those of one batch."""
        self._is_unreadable[batch.indices[batch.unreadable]] = 1

    def gather(self) -> Tensor:
        """Return the indices of those of all workers, in order. Every worker must call it."""
        if num_workers() > 1:
            total = self._is_unreadable.to(self._device)
            dist.all_reduce(total, dist.ReduceOp.MAX)
            self._is_unreadable = total.cpu()
        return self._is_unreadable.nonzero().flatten()

    def load(self, indices: Tensor) -> None:
        """Add the indices that `gather` returned before a restart."""
        self._is_unreadable[indices] = 1


class TrainingState:
    """Save and restore the parts of a training that change, on one of its workers.

    They include no random generator: draws are a function of seed, epoch and sample, and the order of an epoch is a
    function of seed and epoch.

    Args:
        method: What is trained.
        optimizer: Fits it.
        policy: What is done to the positives; its state is its worker's own.
        unreadable: Samples whose images cannot be read.
        session: This worker's place among the others.
        config: What `config.json` beside a checkpoint holds.
    """

    def __init__(
        self,
        method: Method,
        optimizer: torch.optim.Optimizer,
        policy: Policy,
        unreadable: UnreadableSamples,
        session: Session,
        config: Mapping[str, object],
    ) -> None:
        self._method = method
        self._optimizer = optimizer
        self._policy = policy
        self._unreadable = unreadable
        self._session = session
        self._config = config

    def restore(self) -> tuple[int, EpochTotals | None]:
        """Restore the session's checkpoint, if it has one.

        Returns:
            The epoch to continue with, and its sums so far if it was begun.
        """
        folder = self._session.restored()
        if folder is None:
            return 0, None
        state = load_state(folder)
        self._method.load_state_dict(state["method"])
        self._optimizer.load_state_dict(state["optimizer"])
        rank, world_size, device = self._session.rank, self._session.world_size, self._session.device
        # If the number of workers changed, hand out the saved policy states round-robin.
        policy = {name: values[rank % len(values)].to(device) for name, values in state["policy"].items()}
        self._policy.load_state(policy)
        # Then statistics are the mean of all workers, which the method's state holds.
        own = {name: values[rank] for name, values in state["statistics"].items() if len(values) == world_size}
        self._method.load_state_dict(own, strict=False)
        self._unreadable.load(state["unreadable"])
        return int(state["next_epoch"]), None if state["totals"] is None else EpochTotals(**state["totals"])

    def share_statistics(self) -> None:
        """Give all workers their mean running statistics, if each keeps its own on purpose."""
        if self._method.keeps_batch_norm_local:
            self._method.load_state_dict(averaged_statistics(self._method), strict=False)

    @contextmanager
    def checkpoint(self, *, next_epoch: int, totals: EpochTotals | None = None) -> Iterator[Path | None]:
        """Yield rank 0's checkpoint in a temporary folder, and None to the other workers. Every worker must call it.

        Args:
            next_epoch: The epoch to continue with.
            totals: Its sums, if it is begun.
        """
        policy = {name: gather_batch(value[None]) for name, value in self._policy.state().items()}
        unreadable = self._unreadable.gather()
        with self._shared_statistics() as statistics:
            state = {
                "optimizer": self._optimizer.state_dict(),
                "next_epoch": next_epoch,
                "totals": None if totals is None else totals.state(),
                "policy": policy,
                "statistics": statistics,
                "unreadable": unreadable,
            }
            with passing_checkpoint(self._method, self._config, state, rank=self._session.rank) as folder:
                yield folder

    @contextmanager
    def _shared_statistics(self) -> Iterator[dict[str, Tensor]]:
        """Give the method the mean running statistics of all workers, if each keeps its own on purpose.

        Yield the statistics of each worker, (world size, C) by name. The method gets its own back afterwards, so that
        a run that was stopped inside an epoch continues like one that was not.
        """
        if not self._method.keeps_batch_norm_local:
            yield {}
            return
        own = {name: value.clone() for name, value in running_statistics(self._method).items()}
        self.share_statistics()
        yield {name: gather_batch(value[None]) for name, value in own.items()}
        self._method.load_state_dict(own, strict=False)
