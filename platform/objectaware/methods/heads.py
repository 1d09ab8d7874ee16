"""Projection heads."""

from __future__ import annotations

import re
from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from objectaware.errors import InputError


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


def head_from_weights(weights: Mapping[str, Tensor], in_features: int, address: str) -> nn.Sequential:
    """Build the projector to which weights belong: linear layers and batch norms in the order of their numbers.

    ReLU precedes every linear layer but the first, as in the heads of all systems that `foreign` knows.

    Args:
        weights: Weights by name. A layer's name contains its number (`0.weight`, `fc1.bias`), unless there is only
            one layer.
        in_features: Width of the pooled feature.
        address: Address of the weights, for messages.

    Returns:
        Module from (N, in_features) to (N, D).

    Raises:
        InputError: The weights are not such a head, or the head is for features of another width.
    """
    by_layer: dict[str, dict[str, Tensor]] = {}
    for key, value in weights.items():
        name, _, part = key.rpartition(".")
        by_layer.setdefault(name, {})[part] = value
    layers: list[nn.Module] = []
    width = in_features
    for name in sorted(by_layer, key=lambda name: (_numbers(name), "running_mean" in by_layer[name])):
        layer = _layer(by_layer[name], width)
        if layer is None:
            parts = ", ".join(f"{part} {list(value.shape)}" for part, value in by_layer[name].items())
            problem = f"has a projector that is not linear layers and batch norms from {in_features} features on: "
            remedy = "Give a checkpoint with such a projector, or one of the backbone alone."
            raise InputError("checkpoint", address, f"{problem}{name or 'it'} holds {parts}", remedy)
        if isinstance(layer, nn.Linear):
            width = layer.out_features
            layers += [nn.ReLU(inplace=True)] if layers else []
        layers.append(layer)
    return nn.Sequential(*layers)


def _numbers(name: str) -> list[int]:
    return [int(digits) for digits in re.findall(r"\d+", name)]


def _layer(parts: Mapping[str, Tensor], width: int) -> nn.Module | None:
    """Build the layer on `width` features to which tensors belong; None if they belong to no known kind of layer."""
    layer: nn.Module
    if "running_mean" in parts:
        layer = nn.BatchNorm1d(width, affine="weight" in parts)
        parts = {"num_batches_tracked": torch.tensor(0), **parts}
    elif "weight" in parts and parts["weight"].ndim == 2:
        layer = nn.Linear(width, len(parts["weight"]), bias="bias" in parts)
    else:
        return None
    shapes = {key: value.shape for key, value in layer.state_dict().items()}
    if shapes != {key: value.shape for key, value in parts.items()}:
        return None
    layer.load_state_dict(parts)
    return layer


@torch.no_grad()
def update_moving_average(online: nn.Module, target: nn.Module, momentum: float) -> None:
    """Move the target's parameters towards the online ones: θ̄ ← m θ̄ + (1 − m) θ.

    Buffers (batch statistics) stay the target's own. All parameters are updated in one call, since one kernel per
    parameter costs more than the arithmetic.
    """
    targets = [parameter.data for parameter in target.parameters()]
    onlines = [parameter.data for parameter in online.parameters()]
    torch._foreach_lerp_(targets, onlines, 1 - momentum)


def normalised(embeddings: Tensor) -> Tensor:
    """Scale embeddings (N, D) to unit length, in 32 bits or more so that similarities keep their precision."""
    return F.normalize(embeddings if embeddings.dtype == torch.float64 else embeddings.float(), dim=1)
