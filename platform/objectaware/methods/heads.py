"""Projection heads."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def projection_head(in_features: int, hidden_features: int, out_features: int) -> nn.Sequential:
    """Projector g (and BYOL's predictor h): linear, batch norm, ReLU, linear.

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


@torch.no_grad()
def update_moving_average(online: nn.Module, target: nn.Module, momentum: float) -> None:
    """Moves the target's parameters towards the online ones: θ̄ ← m θ̄ + (1 − m) θ.

    Buffers (batch statistics) stay the target's own. All parameters in one call, since one kernel a parameter
    costs more than the arithmetic.
    """
    targets = [parameter.data for parameter in target.parameters()]
    onlines = [parameter.data for parameter in online.parameters()]
    torch._foreach_lerp_(targets, onlines, 1 - momentum)


def normalised(embeddings: Tensor) -> Tensor:
    """Embeddings (N, D) of unit length, in 32 bits or more so that similarities keep their precision."""
    return F.normalize(embeddings if embeddings.dtype == torch.float64 else embeddings.float(), dim=1)
