"""How the weights are fitted: optimizers, and what their settings are at each step."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn

from objectaware.training.lars import LARS
from objectaware.training.schedule import cosine_learning_rate


@dataclass(frozen=True)
class Optimization:
    """How the weights are fitted.

    Attributes:
        num_epochs: Epochs in all.
        batch_size: Samples a step, over all workers.
        learning_rate: Learning rate of the first epoch, already scaled to the batch size.
        final_learning_rate: Where the cosine ends.
        momentum: Of the optimizer.
        weight_decay: Of SGD on every parameter; of LARS on all but biases and batch norm.
        seed: Seed of the run.
        optimizer: `sgd` or `lars`.
        learning_rate_schedule: Whether the cosine moves once an epoch or with every step.
        num_warmup_epochs: Epochs in which the learning rate rises linearly from step to step, before the cosine.
        num_accumulation_steps: Parts of a batch that go through the network one after another.
    """

    num_epochs: int
    batch_size: int
    learning_rate: float
    final_learning_rate: float
    momentum: float
    weight_decay: float
    seed: int
    optimizer: Literal["sgd", "lars"] = "sgd"
    learning_rate_schedule: Literal["cosine_epoch", "cosine_step"] = "cosine_epoch"
    num_warmup_epochs: int = 0
    num_accumulation_steps: int = 1

    def learning_rate_at(self, step: int, steps_per_epoch: int) -> float:
        """Learning rate of a step.

        Args:
            step: Step of the whole run, from 0.
            steps_per_epoch: Steps an epoch.
        """
        num_warmup_steps = self.num_warmup_epochs * steps_per_epoch
        if step < num_warmup_steps:
            return self.learning_rate * (step + 1) / num_warmup_steps
        position, end = step - num_warmup_steps, self.num_epochs * steps_per_epoch - num_warmup_steps
        if self.learning_rate_schedule == "cosine_epoch":
            position, end = position // steps_per_epoch, end // steps_per_epoch
        return cosine_learning_rate(position, end, initial=self.learning_rate, final=self.final_learning_rate)


def build_optimizer(parameters: Iterable[nn.Parameter], settings: Optimization) -> torch.optim.Optimizer:
    """Builds the optimizer of a method's parameters, those that are frozen left out."""
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    if settings.optimizer == "sgd":
        return torch.optim.SGD(
            trained, lr=settings.learning_rate, momentum=settings.momentum, weight_decay=settings.weight_decay
        )
    return LARS(
        trained, learning_rate=settings.learning_rate, momentum=settings.momentum, weight_decay=settings.weight_decay
    )
