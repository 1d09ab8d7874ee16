"""Optimizer `sgd`: stochastic gradient descent with momentum."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import torch

from objectaware.config.variants import LearningRate, Momentum, NonNegative, OptimizerConfig
from objectaware.methods.method import ParameterGroup


class SGDConfig(OptimizerConfig):
    """SGD with momentum, as in the paper's code.

    Attributes:
        momentum: Momentum of the sum of gradients.
        decays_biases: Whether weight decay also applies to biases and batch norm, as in the paper's code.
    """

    name: Literal["sgd"] = "sgd"
    base_learning_rate: LearningRate = 0.03
    final_learning_rate: NonNegative = 0.001
    weight_decay: NonNegative = 1e-4
    momentum: Momentum = 0.9
    decays_biases: bool = True

    def build(self, groups: Iterable[ParameterGroup]) -> torch.optim.SGD:
        """Build the optimizer of a method's parameters."""
        decayed = [
            {**group, "weight_decay": 0.0 if group["is_bias"] and not self.decays_biases else self.weight_decay}
            for group in groups
        ]
        return torch.optim.SGD(decayed, lr=self.base_learning_rate, momentum=self.momentum)
