"""The expansion trick: larger feature maps from an unchanged network (paper appendix B.1)."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TypeVar

from torch import nn

from objectaware.errors import InputError
from objectaware.methods.backbones import Backbone

Network = TypeVar("Network", bound=nn.Module)

_NUM_STAGES = {1: 0, 2: 1, 4: 2}
"""Number of last stages that lose their stride, by the factor."""


def expand_resolution(backbone: Network, factor: int) -> Network:
    """Copy a residual network so that its last feature map is `factor` times as high and as wide.

    Every strided convolution in the first block of the last stage (factor 4: of the last two stages) gets stride 1,
    including the shortcut, without dilation, as in the official code. At 224 pixels a ResNet's map grows from 7×7 to
    14×14 or 28×28. The weights stay the same, and the network needs no further training.

    Args:
        backbone: A `Backbone`, or any other network with torchvision's stages `layer3` and `layer4`.
        factor: 1, 2 or 4.

    Returns:
        The changed deep copy; `backbone` itself is not changed.

    Raises:
        InputError: The factor is not 1, 2 or 4, the network has no such stages, or a stage does not halve the
            resolution by strided convolutions alone.
    """
    if factor not in _NUM_STAGES:
        raise InputError("factor", factor, "the resolution cannot be expanded by it", "Give 1, 2 or 4.")
    expanded = copy.deepcopy(backbone)
    name = backbone.name if isinstance(backbone, Backbone) else type(backbone).__name__
    stages = _strided_stages(expanded)[: _NUM_STAGES[factor]]
    if len(stages) < _NUM_STAGES[factor]:
        problem = "has no residual stages (layer3, layer4) whose stride could be taken away"
        raise InputError("backbone", name, problem, "Use expansion: 1 with this network.")
    for stage in stages:
        _remove_stride(stage, name)
    return expanded


def _strided_stages(network: nn.Module) -> Sequence[nn.Module]:
    if isinstance(network, Backbone):
        return network.strided_stages()
    stages = [getattr(network, name, None) for name in ("layer4", "layer3")]
    return [stage for stage in stages if isinstance(stage, nn.Module)]


def _remove_stride(stage: nn.Module, name: str) -> None:
    first_block = next(stage.children())
    # Only leaves: torchvision's blocks themselves also have an attribute `stride`, the one they were built with.
    leaves = (layer for layer in first_block.modules() if next(layer.children(), None) is None)
    strided = [layer for layer in leaves if _is_strided(layer)]
    convolutions = [layer for layer in strided if isinstance(layer, nn.Conv2d)]
    if not strided or len(convolutions) < len(strided):
        raise InputError(
            "backbone",
            name,
            "the first block of a stage does not halve the resolution by strided convolutions alone",
            "Use expansion: 1 with this network.",
        )
    for convolution in convolutions:
        convolution.stride = (1, 1)


def _is_strided(layer: nn.Module) -> bool:
    stride = getattr(layer, "stride", 1)
    return any(step > 1 for step in (stride if isinstance(stride, tuple) else (stride,)))
