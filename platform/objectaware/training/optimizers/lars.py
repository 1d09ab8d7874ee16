"""Optimizer `lars`: gradients scaled to their layer's weights, for batches of thousands of images."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from objectaware.config.variants import LearningRate, Momentum, NonNegative, OptimizerConfig
from objectaware.methods.method import ParameterGroup


class LARSConfig(OptimizerConfig):
    """LARS (You et al. 2017) with BYOL's values. Biases and batch norm are neither scaled nor decayed.

    Attributes:
        momentum: Momentum of the sum of scaled gradients.
        trust_coefficient: η, the length of an update relative to its layer's weights.

    Source:
        Grill et al. 2020, §3.3 and appendix J: 1000 epochs, base learning rate 0.2, cosine to 0.
    """

    name: Literal["lars"] = "lars"
    base_learning_rate: LearningRate = 0.2
    final_learning_rate: NonNegative = 0.0
    weight_decay: NonNegative = 1.5e-6
    momentum: Momentum = 0.9
    trust_coefficient: Annotated[float, Field(gt=0)] = 0.001

    def build(self, groups: Iterable[ParameterGroup]) -> LARS:
        """Build the optimizer of a method's parameters."""
        return LARS(
            groups,
            learning_rate=self.base_learning_rate,
            momentum=self.momentum,
            weight_decay=self.weight_decay,
            trust_coefficient=self.trust_coefficient,
        )


class LARS(torch.optim.Optimizer):
    """SGD with momentum on gradients that are scaled by η‖w‖ / ‖g + λw‖.

    w are a layer's weights, g is their gradient and λ the weight decay. Biases and batch norm are neither scaled nor
    decayed.

    Args:
        groups: Parameters to train.
        learning_rate: Learning rate.
        momentum: Momentum of the sum of scaled gradients.
        weight_decay: λ.
        trust_coefficient: η.

    Source:
        You et al. 2017; excluded parameters and η as in BYOL (Grill et al. 2020, §3.3 and appendix J). As in BYOL's
        code, a layer's update is not scaled if the weights or the update are all zero.
    """

    def __init__(
        self,
        groups: Iterable[ParameterGroup],
        *,
        learning_rate: float,
        momentum: float,
        weight_decay: float,
        trust_coefficient: float = 0.001,
    ) -> None:
        scaled = [
            {**group, "weight_decay": 0.0 if group["is_bias"] else weight_decay, "is_scaled": not group["is_bias"]}
            for group in groups
        ]
        defaults = {"lr": learning_rate, "momentum": momentum, "trust_coefficient": trust_coefficient}
        super().__init__(scaled, defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Update every parameter that has a gradient."""
        assert closure is None, "a closure would be called outside of the loop's autocast"
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    update = parameter.grad.add(parameter, alpha=group["weight_decay"])
                    if group["is_scaled"]:
                        update.mul_(_trust_ratio(parameter, update, group["trust_coefficient"]))
                    velocity = self.state[parameter].setdefault("momentum_buffer", torch.zeros_like(parameter))
                    velocity.mul_(group["momentum"]).add_(update)
                    parameter.add_(velocity, alpha=-group["lr"])


def _trust_ratio(weight: Tensor, update: Tensor, trust_coefficient: float) -> Tensor:
    weight_norm, update_norm = weight.norm(), update.norm()
    usable = (weight_norm > 0) & (update_norm > 0)
    return torch.where(usable, trust_coefficient * weight_norm / update_norm, torch.ones_like(weight_norm))
