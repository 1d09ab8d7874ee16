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
            weights = [parameter for parameter in group["params"] if parameter.grad is not None]
            if not weights:
                continue
            # On all layers at once: a kernel for each would cost more than its arithmetic.
            gradients = [weight.grad for weight in weights]
            updates = list(torch._foreach_add(gradients, weights, alpha=group["weight_decay"]))
            if group["is_scaled"]:
                ratios = _trust_ratios(weights, updates, group["trust_coefficient"])
                torch._foreach_mul_(updates, ratios)
            for weight in weights:
                if "momentum_buffer" not in self.state[weight]:
                    self.state[weight]["momentum_buffer"] = torch.zeros_like(weight)
            velocities = [self.state[weight]["momentum_buffer"] for weight in weights]
            torch._foreach_mul_(velocities, group["momentum"])
            torch._foreach_add_(velocities, updates)
            torch._foreach_add_(weights, velocities, alpha=-group["lr"])


def _trust_ratios(weights: list[Tensor], updates: list[Tensor], trust_coefficient: float) -> list[Tensor]:
    """Compute η‖w‖ / ‖update‖ of each layer, a scalar each; 1 where either is zero."""
    weight_norms, update_norms = (torch.stack(torch._foreach_norm(tensors)) for tensors in (weights, updates))
    usable = (weight_norms > 0) & (update_norms > 0)
    return list(torch.where(usable, trust_coefficient * weight_norms / update_norms, 1.0).unbind())
