"""The learning rate of fine-tuning, and what it is applied to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

_FIRST_FRACTION = 0.001
_DECAY = 0.1


def learning_rate_at(
    iteration: int, learning_rate: float, *, decay_iterations: Sequence[int], num_warmup_iterations: int
) -> float:
    """Learning rate of an iteration, from 0: a linear rise from a thousandth, a tenth after each of the steps.

    Source:
        detectron2, solver/lr_scheduler.py, `WarmupMultiStepLR` with its defaults.
    """
    rate = learning_rate * _DECAY ** sum(iteration >= step for step in decay_iterations)
    if iteration >= num_warmup_iterations:
        return rate
    progress = iteration / num_warmup_iterations
    return rate * (_FIRST_FRACTION * (1 - progress) + progress)


def parameter_groups(network: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Parameters of a network for an optimizer, those of batch norm without weight decay.

    Source:
        detectron2's default WEIGHT_DECAY_NORM 0.
    """
    norms = [one for module in network.modules() if isinstance(module, _BatchNorm) for one in module.parameters()]
    names = {id(parameter) for parameter in norms}
    others = [parameter for parameter in network.parameters() if id(parameter) not in names]
    return [{"params": others, "weight_decay": weight_decay}, {"params": norms, "weight_decay": 0.0}]
