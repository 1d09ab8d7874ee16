"""The expansion trick: larger feature maps from an unchanged network (paper appendix B.1)."""

from __future__ import annotations

import copy
from typing import TypeVar

from torch import nn

from objectaware.errors import InputError

Network = TypeVar("Network", bound=nn.Module)

_STAGES_OF_FACTOR: dict[int, tuple[str, ...]] = {1: (), 2: ("layer4",), 4: ("layer4", "layer3")}


def expand_resolution(backbone: Network, factor: int) -> Network:
    """A copy of a residual network whose last feature map is `factor` times as high and as wide.

    Every strided convolution in the first block of `layer4` (factor 4: of `layer3` too) gets stride 1, the
    shortcut's included, without dilation, as the official code does. At 224 pixels a ResNet's map grows from
    7×7 to 14×14 or 28×28. Weights stay as they are; the network needs no training for it.

    Args:
        backbone: A network with torchvision's stages `.layer3` and `.layer4`, each indexable by block.
        factor: 1, 2 or 4.

    Returns:
        The changed deep copy; `backbone` is left alone.

    Raises:
        InputError: Another factor, or a network whose stage is missing or not strided by its convolutions
            alone.
    """
    if factor not in _STAGES_OF_FACTOR:
        raise InputError("factor", factor, "the resolution cannot be expanded by it", "Give 1, 2 or 4.")
    expanded = copy.deepcopy(backbone)
    for stage in _STAGES_OF_FACTOR[factor]:
        _remove_stride(expanded, stage)
    return expanded


def _remove_stride(network: nn.Module, stage: str) -> None:
    blocks = getattr(network, stage, None)
    first_block = next(blocks.children(), None) if isinstance(blocks, nn.Module) else None
    if first_block is None:
        raise InputError("backbone", type(network).__name__, f"has no blocks in {stage}", "Give a ResNet.")
    # Leaves alone: torchvision's blocks carry the stride they were built with as an attribute of their own.
    leaves = (layer for layer in first_block.modules() if next(layer.children(), None) is None)
    strided = [layer for layer in leaves if _is_strided(layer)]
    convolutions = [layer for layer in strided if isinstance(layer, nn.Conv2d)]
    if not strided or len(convolutions) < len(strided):
        raise InputError(
            "backbone",
            type(network).__name__,
            f"the first block of {stage} does not halve the resolution by strided convolutions alone",
            "Use expansion 1 with this network.",
        )
    for convolution in convolutions:
        convolution.stride = (1, 1)


def _is_strided(layer: nn.Module) -> bool:
    stride = getattr(layer, "stride", 1)
    return any(step > 1 for step in (stride if isinstance(stride, tuple) else (stride,)))
