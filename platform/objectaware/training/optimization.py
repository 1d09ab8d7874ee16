"""How the weights are fitted, and the learning rate of each step."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch

from objectaware.config import OptimizerConfig
from objectaware.methods.method import Method


@dataclass(frozen=True)
class Optimization:
    """How the weights are fitted.

    Attributes:
        num_epochs: Epochs in all.
        batch_size: Samples per step, over all workers.
        optimizer: The optimizer, with its learning rates for a batch of 256.
        learning_rate_schedule: Whether the cosine moves once per epoch or with every step.
        num_warmup_epochs: Epochs in which the learning rate rises linearly from step to step, before the cosine.
        num_accumulation_steps: Parts of a batch that go through the network one after another.
    """

    num_epochs: int
    batch_size: int
    optimizer: OptimizerConfig
    learning_rate_schedule: Literal["cosine_epoch", "cosine_step"] = "cosine_epoch"
    num_warmup_epochs: int = 0
    num_accumulation_steps: int = 1

    @property
    def learning_rate(self) -> float:
        """Learning rate of the first epoch, scaled to the batch size."""
        return scaled_learning_rate(self.optimizer.base_learning_rate, self.batch_size)

    def build_optimizer(self, method: Method) -> torch.optim.Optimizer:
        """Build the optimizer of a method's parameter groups."""
        optimizer = self.optimizer.build(method.parameter_groups())
        assert isinstance(optimizer, torch.optim.Optimizer)
        return optimizer

    def set_learning_rate(self, optimizer: torch.optim.Optimizer, step: int, steps_per_epoch: int) -> None:
        """Set the learning rate of each parameter group for a step of the whole run, counted from 0."""
        scheduled = self.learning_rate_at(step, steps_per_epoch)
        for group in optimizer.param_groups:
            group["lr"] = self.learning_rate if group["has_constant_rate"] else scheduled

    def learning_rate_at(self, step: int, steps_per_epoch: int) -> float:
        """Return the learning rate of a step.

        Args:
            step: Step of the whole run, from 0.
            steps_per_epoch: Steps per epoch.
        """
        num_warmup_steps = self.num_warmup_epochs * steps_per_epoch
        if step < num_warmup_steps:
            return self.learning_rate * (step + 1) / num_warmup_steps
        position, end = step - num_warmup_steps, self.num_epochs * steps_per_epoch - num_warmup_steps
        if self.learning_rate_schedule == "cosine_epoch":
            position, end = position // steps_per_epoch, end // steps_per_epoch
        return cosine_learning_rate(position, end, initial=self.learning_rate, final=self.optimizer.final_learning_rate)


def cosine_learning_rate(position: int, end: int, *, initial: float, final: float) -> float:
    """Return the learning rate on a half cosine from initial towards final.

    Args:
        position: Epoch from 0, for a learning rate that is constant within the epoch; or step.
        end: Epochs in all, or steps.
        initial: Learning rate at 0.
        final: Learning rate that would be reached at `end`.

    Source:
        official-implementation §2 (per-epoch cosine to 0.001, no warm-up).
    """
    return final + (initial - final) * 0.5 * (1 + math.cos(math.pi * position / end))


def scaled_learning_rate(base: float, batch_size: int) -> float:
    """Apply the linear scaling rule: base · B / 256, where B is the batch of all workers together."""
    return base * batch_size / 256
