"""What the training loop asks of a method."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, TypedDict

from torch import Tensor, nn

from objectaware.methods.backbones import Backbone
from objectaware.methods.mixing import Mixing

MomentumSchedule = Literal["constant", "cosine"]
"""Whether a target network's m stays, or rises to 1 along a cosine."""


class ParameterGroup(TypedDict):
    """Parameters that an optimizer treats alike.

    Attributes:
        params: The parameters, under the name that PyTorch's optimizers expect.
        is_bias: Whether they are biases or batch norm's, which many optimizers neither scale nor decay.
        has_constant_rate: Whether the learning rate stays that of the start, without warm-up and schedule.
    """

    params: list[nn.Parameter]
    is_bias: bool
    has_constant_rate: bool


def parameter_groups(*networks: nn.Module, has_constant_rate: bool = False) -> list[ParameterGroup]:
    """Group the trained parameters of networks by whether they are biases or batch norm's, which have one dimension."""
    trained = [parameter for network in networks for parameter in network.parameters() if parameter.requires_grad]
    halves = {is_bias: [one for one in trained if (one.ndim <= 1) == is_bias] for is_bias in (False, True)}
    return [
        ParameterGroup(params=params, is_bias=is_bias, has_constant_rate=has_constant_rate)
        for is_bias, params in halves.items()
        if params
    ]


class Method(nn.Module):
    """Base of what can be trained: a module from a batch's views to a loss.

    Attributes:
        backbone: Images (N, 3, H, W) to pooled features (N, C); what is kept of the training.
        embeddings: Of the last forward pass, the embeddings of unit length of the first two views, (n, D) each, of
            this worker's samples, without gradient; None for a method without any.
        top1_accuracy: Per cent of the last forward pass's images of this worker that were classified rightly; None
            for a method without classifier.
        keeps_batch_norm_local: Whether batch statistics are those of a worker's own samples on purpose.
    """

    backbone: Backbone
    embeddings: tuple[Tensor, Tensor] | None = None
    top1_accuracy: Tensor | None = None
    keeps_batch_norm_local: bool = False

    def forward(self, views: Sequence[Tensor], *, labels: Tensor | None = None, mixing: Mixing | None = None) -> Tensor:
        """Compute the loss of a batch, a scalar averaged over it.

        Args:
            views: Views of the same N samples, (N, 3, H, W) each, as the configuration's `views` says.
            labels: Class index of each sample, (N,) int64; given to methods whose configuration `needs_labels`.
            mixing: What the first view is a mixture of, where it is one; given to methods whose configuration
                `takes_mixtures`.
        """
        raise NotImplementedError

    @property
    def chance_loss(self) -> float:
        """Loss of a network that has learnt nothing."""
        raise NotImplementedError

    def parameter_groups(self) -> list[ParameterGroup]:
        """Return the trained parameters in groups, each of them once; frozen ones are left out."""
        return parameter_groups(self)

    def begin_step(self, step: int, num_steps: int) -> None:
        """Prepare for a step of training, before its forward pass; here nothing.

        Args:
            step: Step of the whole run, from 0.
            num_steps: Steps of the whole run.
        """

    def continue_step(self) -> None:
        """Prepare for the next part of a step's batch, where the batch goes through in parts; here nothing."""


class MomentumMethod(Method):
    """Base of methods with a target network that follows the trained one: θ̄ ← m θ̄ + (1 − m) θ before each step.

    Args:
        momentum: m of the first step.
        schedule: How m changes.

    Attributes:
        momentum: m of the next forward pass in training.
    """

    def __init__(self, momentum: float, schedule: MomentumSchedule = "constant") -> None:
        super().__init__()
        self.momentum = momentum
        self._initial_momentum = momentum
        self._schedule = schedule

    def begin_step(self, step: int, num_steps: int) -> None:
        """Set m of a step."""
        self.momentum = self._initial_momentum
        if self._schedule == "cosine":
            self.momentum = cosine_momentum(step, num_steps, initial=self._initial_momentum)

    def continue_step(self) -> None:
        """Keep the target network as it is: it moves once a batch, as the weights do."""
        self.momentum = 1.0


def cosine_momentum(step: int, num_steps: int, *, initial: float) -> float:
    """Momentum of a moving average that comes to a halt: 1 − (1 − m)(cos(πk / K) + 1) / 2 at step k of K.

    Source:
        Grill et al. 2020 (BYOL), §3.3.
    """
    return 1 - (1 - initial) * 0.5 * (math.cos(math.pi * step / num_steps) + 1)
