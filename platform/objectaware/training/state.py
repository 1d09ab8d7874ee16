"""All that a training goes on from, into a checkpoint and back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor

from objectaware.methods.batch_norm import averaged_statistics, running_statistics
from objectaware.methods.checkpoint import load_state
from objectaware.methods.gather import gather_batch
from objectaware.methods.method import Method
from objectaware.training.checkpoints import passing_checkpoint
from objectaware.training.policies import Policy
from objectaware.training.session import Session
from objectaware.training.totals import EpochTotals
from objectaware.training.unreadable import UnreadableSamples


class TrainingState:
    """The parts of a training that change, on one of its workers.

    Nothing of a random generator is among them: what is drawn is a function of seed, epoch and sample, and the order
    of an epoch of seed and epoch.

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
        """Goes on from the session's checkpoint, if it has one.

        Returns:
            The epoch to go on in, and its sums so far where it was begun.
        """
        folder = self._session.restored()
        if folder is None:
            return 0, None
        state = load_state(folder)
        self._method.load_state_dict(state["method"])
        self._optimizer.load_state_dict(state["optimizer"])
        rank, world_size, device = self._session.rank, self._session.world_size, self._session.device
        # With another number of workers, each takes the policy's state of one of those that there were.
        policy = {name: values[rank % len(values)].to(device) for name, values in state["policy"].items()}
        self._policy.load_state(policy)
        # And their mean statistics, which are in the method's state.
        own = {name: values[rank] for name, values in state["statistics"].items() if len(values) == world_size}
        self._method.load_state_dict(own, strict=False)
        self._unreadable.load(state["unreadable"])
        return int(state["next_epoch"]), None if state["totals"] is None else EpochTotals(**state["totals"])

    def share_statistics(self) -> None:
        """Gives all workers their mean running statistics, where each keeps its own on purpose."""
        if self._method.keeps_batch_norm_local:
            self._method.load_state_dict(averaged_statistics(self._method), strict=False)

    @contextmanager
    def checkpoint(self, *, next_epoch: int, totals: EpochTotals | None = None) -> Iterator[Path | None]:
        """Rank 0's checkpoint in a folder that goes away afterwards; None for the other workers, who call it, too.

        Args:
            next_epoch: The epoch to go on in.
            totals: Its sums, where it is begun.
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
        """Inside, the method has all workers' mean running statistics, where each keeps its own on purpose.

        Gives those of each worker, (world size, C) by name, and gives them back afterwards: a run that is stopped
        inside an epoch goes on as one that is not does.
        """
        if not self._method.keeps_batch_norm_local:
            yield {}
            return
        own = {name: value.clone() for name, value in running_statistics(self._method).items()}
        self.share_statistics()
        yield {name: gather_batch(value[None]) for name, value in own.items()}
        self._method.load_state_dict(own, strict=False)
