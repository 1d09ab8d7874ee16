"""The interface between the training loop and a method, and the parts that methods share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple, TypedDict

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from objectaware.methods.backbones import Backbone, build_backbone

MomentumSchedule = Literal["constant", "cosine"]
"""Schedule of a target network's m: constant, or rising to 1 along a cosine."""


class Mixing(NamedTuple):
    """The mixtures in the first views of a worker's batch: λ of the view's own sample plus 1 − λ of another sample.

    Attributes:
        weight: λ in [0, 1], shape (N,).
        partner: Index of the other sample in this worker's batch, shape (N,) int64.
    """

    weight: Tensor
    partner: Tensor

    def blend(self, own: Tensor, others: Tensor) -> Tensor:
        """Compute λ own + (1 − λ) others, for values (N,) of the two samples."""
        return torch.lerp(others, own, self.weight.to(own))


class ParameterGroup(TypedDict):
    """Parameters that an optimizer treats alike.

    Attributes:
        params: The parameters, under the name that PyTorch's optimizers expect.
        is_bias: Whether the parameters are biases or belong to batch norm. Many optimizers neither scale nor decay
            these.
        has_constant_rate: Whether the learning rate stays at its initial value, without warm-up and schedule.
    """

    params: list[nn.Parameter]
    is_bias: bool
    has_constant_rate: bool


class Method(nn.Module):
    """Base of all methods: a module from a batch's views to a loss.

    Attributes:
        backbone: Network from images (N, 3, H, W) to pooled features (N, C), the result of the training.
        embeddings: Embeddings of the first two views of this worker's samples in the last forward pass, (n, D) each,
            of unit length, without gradient; None for a method without embeddings.
        top1_accuracy: Percentage of this worker's images in the last forward pass that were classified correctly; None
            for a method without classifier.
        keeps_batch_norm_local: Whether the method needs batch statistics of each worker's own samples.
    """

    backbone: Backbone
    embeddings: tuple[Tensor, Tensor] | None = None
    top1_accuracy: Tensor | None = None
    keeps_batch_norm_local: bool = False

    def forward(self, views: Sequence[Tensor], *, labels: Tensor | None = None, mixing: Mixing | None = None) -> Tensor:
        """Compute the loss of a batch, a scalar averaged over it.

        Args:
            views: Views of the same N samples, (N, 3, H, W) each, as the configuration's `views` describes them.
            labels: Class index of each sample, (N,) int64; given to methods whose configuration `needs_labels`.
            mixing: The mixture in the first view, if there is one; given to methods whose configuration
                `takes_mixtures`.
        """
        raise NotImplementedError

    @property
    def chance_loss(self) -> float:
        """Return the loss of a network that has learnt nothing."""
        raise NotImplementedError

    def parameter_groups(self) -> list[ParameterGroup]:
        """Return the trained parameters in groups, each parameter once, without the frozen ones."""
        return self.groups_of(self)

    @staticmethod
    def groups_of(*networks: nn.Module, has_constant_rate: bool = False) -> list[ParameterGroup]:
        """Split the trained parameters of networks into those of one dimension, biases and batch norm's, and others."""
        trained = [parameter for network in networks for parameter in network.parameters() if parameter.requires_grad]
        halves = {is_bias: [one for one in trained if (one.ndim <= 1) == is_bias] for is_bias in (False, True)}
        return [
            ParameterGroup(params=params, is_bias=is_bias, has_constant_rate=has_constant_rate)
            for is_bias, params in halves.items()
            if params
        ]

    def begin_step(self, step: int, num_steps: int) -> None:
        """Prepare for a training step, before its forward pass. The base does nothing.

        Args:
            step: Number of the step in the whole run, from 0.
            num_steps: Number of steps in the whole run.
        """

    def continue_step(self) -> None:
        """Prepare for the next part of a step's batch, if the batch is processed in parts. The base does nothing."""


class MomentumMethod(Method):
    """Base of methods with a target network that follows the trained one: θ̄ ← m θ̄ + (1 − m) θ before each step.

    A subclass builds `backbone` and `projector`, and calls `build_target` and `move_target`.

    Args:
        momentum: m of the first step.
        schedule: Schedule of m.

    Attributes:
        momentum: m of the next forward pass in training.
    """

    projector: nn.Module
    target_backbone: Backbone
    target_projector: nn.Module

    def __init__(self, momentum: float, schedule: MomentumSchedule = "constant") -> None:
        super().__init__()
        self.momentum = momentum
        self._initial_momentum = momentum
        self._schedule = schedule

    def begin_step(self, step: int, num_steps: int) -> None:
        """Set m for a step."""
        self.momentum = self._initial_momentum
        if self._schedule == "cosine":
            self.momentum = cosine_momentum(step, num_steps, initial=self._initial_momentum)

    def continue_step(self) -> None:
        """Stop the target network: like the weights, it moves once per batch."""
        self.momentum = 1.0

    def build_target(self, hidden_features: int, out_features: int) -> None:
        """Build a target network with the weights of the trained one, and freeze it.

        Args:
            hidden_features: Width inside the projector.
            out_features: Width of the embedding.
        """
        self.target_backbone = build_backbone(self.backbone.name)
        self.target_projector = projection_head(self.backbone.num_features, hidden_features, out_features)
        self.target_backbone.load_state_dict(self.backbone.state_dict())
        self.target_projector.load_state_dict(self.projector.state_dict())
        for parameter in [*self.target_backbone.parameters(), *self.target_projector.parameters()]:
            parameter.requires_grad_(False)

    def move_target(self) -> None:
        """In training, move the target network towards the trained one."""
        if self.training:
            update_moving_average(self.backbone, self.target_backbone, self.momentum)
            update_moving_average(self.projector, self.target_projector, self.momentum)

    def target(self, view: Tensor) -> Tensor:
        """Compute the target network's embeddings (N, D) of a view (N, 3, H, W), of unit length."""
        return normalised(self.target_projector(self.target_backbone(view)))


def cosine_momentum(step: int, num_steps: int, *, initial: float) -> float:
    """Compute the momentum of a moving average that slows to a stop: 1 − (1 − m)(cos(πk / K) + 1) / 2 at step k of K.

    Source:
        Grill et al. 2020 (BYOL), §3.3.
    """
    return 1 - (1 - initial) * 0.5 * (math.cos(math.pi * step / num_steps) + 1)


@torch.no_grad()
def update_moving_average(online: nn.Module, target: nn.Module, momentum: float) -> None:
    """Move the target's parameters towards the online ones: θ̄ ← m θ̄ + (1 − m) θ.

    Buffers (batch statistics) stay the target's own. All parameters are updated in one call, since one kernel per
    parameter costs more than the arithmetic.
    """
    targets = [parameter.data for parameter in target.parameters()]
    onlines = [parameter.data for parameter in online.parameters()]
    torch._foreach_lerp_(targets, onlines, 1 - momentum)


def projection_head(in_features: int, hidden_features: int, out_features: int) -> nn.Sequential:
    """Build a projector g (or BYOL's predictor h): linear, batch norm, ReLU, linear.

    Args:
        in_features: Width of the pooled feature.
        hidden_features: Width between the two linear layers.
        out_features: Width of the embedding.

    Returns:
        Module from (N, in_features) to (N, out_features), not normalised.

    Source:
        official-implementation §2: MoCo's C→C→128 and BYOL's C→4096→256, both with a batch norm inside and no
        bias before it.
    """
    return nn.Sequential(
        nn.Linear(in_features, hidden_features, bias=False),
        nn.BatchNorm1d(hidden_features),
        nn.ReLU(inplace=True),
        nn.Linear(hidden_features, out_features),
    )


def normalised(embeddings: Tensor) -> Tensor:
    """Scale embeddings (N, D) to unit length, in 32 bits or more so that similarities keep their precision."""
    return F.normalize(embeddings if embeddings.dtype == torch.float64 else embeddings.float(), dim=1)


def cosines(mixed: Tensor, plain: Tensor, mixing: Mixing | None) -> Tensor:
    """Compute the cosines (N,) of unit vectors of views 1 and 2, (N, D) each; `Mixing.blend` weighs mixtures."""
    own = (mixed * plain).sum(dim=1)
    return own if mixing is None else mixing.blend(own, (mixed * plain[mixing.partner]).sum(dim=1))
