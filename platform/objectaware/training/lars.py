"""LARS: gradients scaled to their layer's weights, for batches of thousands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import overload

import torch
from torch import Tensor, nn


class LARS(torch.optim.Optimizer):
    """SGD with momentum on gradients scaled by η‖w‖ / ‖g + λw‖, a layer's weights w, gradient g, weight decay λ.

    Biases and batch norm (parameters of one dimension) are neither scaled nor decayed.

    Args:
        parameters: What is trained.
        learning_rate: Learning rate.
        momentum: Of the scaled gradients' sum.
        weight_decay: λ.
        trust_coefficient: η.

    Source:
        You et al. 2017; excluded parameters and η as in BYOL (Grill et al. 2020, §3.3 and appendix J). A weight or
        gradient that is zero altogether is not scaled, as in BYOL's code.
    """

    def __init__(
        self,
        parameters: Sequence[nn.Parameter],
        *,
        learning_rate: float,
        momentum: float,
        weight_decay: float,
        trust_coefficient: float = 0.001,
    ) -> None:
        weights = [parameter for parameter in parameters if parameter.ndim > 1]
        others = [parameter for parameter in parameters if parameter.ndim <= 1]
        groups = [
            {"params": weights, "weight_decay": weight_decay, "is_scaled": True},
            {"params": others, "weight_decay": 0.0, "is_scaled": False},
        ]
        defaults = {"lr": learning_rate, "momentum": momentum, "trust_coefficient": trust_coefficient}
        super().__init__([group for group in groups if group["params"]], defaults)

    @overload
    def step(self, closure: None = None) -> None: ...

    @overload
    def step(self, closure: Callable[[], float]) -> float: ...

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Moves every parameter that has a gradient."""
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
        return None


def _trust_ratio(weight: Tensor, update: Tensor, trust_coefficient: float) -> Tensor:
    weight_norm, update_norm = weight.norm(), update.norm()
    usable = (weight_norm > 0) & (update_norm > 0)
    return torch.where(usable, trust_coefficient * weight_norm / update_norm, torch.ones_like(weight_norm))
