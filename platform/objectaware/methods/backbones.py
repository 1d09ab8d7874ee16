"""Backbones: residual networks whose weights carry torchvision's names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Protocol, cast

import torch
import torchvision
from torch import Tensor, nn

from objectaware.errors import InputError


class Backbone(Protocol):
    """What the project asks of a network: torchvision's attribute names, images in, pooled features out."""

    conv1: nn.Module
    bn1: nn.Module
    relu: nn.Module
    maxpool: nn.Module
    layer1: nn.Sequential
    layer2: nn.Sequential
    layer3: nn.Sequential
    layer4: nn.Sequential


class NarrowBlock(nn.Module):
    """A residual block that looks at its neighbourhood once: a 3 × 3 convolution, then a 1 × 1.

    Args:
        in_channels: Channels of the input.
        channels: Channels of the output.
        stride: Of the 3 × 3 convolution and the shortcut.

    Shape:
        (N, in_channels, h, w) to (N, channels, h / stride, w / stride).
    """

    def __init__(self, in_channels: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, channels, kernel_size=3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, kernel_size=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU(inplace=True)
        self.downsample: nn.Module = nn.Identity()
        if stride != 1 or in_channels != channels:
            self.downsample = nn.Sequential(
                nn.Conv2d(in_channels, channels, kernel_size=1, stride=stride, bias=False),
                nn.BatchNorm2d(channels),
            )

    def forward(self, x: Tensor) -> Tensor:
        """ReLU(convolutions + shortcut)."""
        inner = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        return self.relu(inner + self.downsample(x))


class NarrowResNet(nn.Module):
    """A residual network of one narrow block a stage, for pictures of about 100 pixels on a CPU.

    A unit of the last map sees 73 pixels. A unit that sees the whole picture tells nothing about where an object is:
    with two 3 × 3 convolutions a block it saw 193, and ContraCAM found little but the middle of the picture.

    Args:
        width: Channels of the first stage; the others have 2, 4 and 8 times as many.

    Shape:
        (N, 3, H, W) to pooled features (N, 8 · width).
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, kernel_size=5, stride=2, padding=2, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(kernel_size=3, stride=2, padding=1)
        self.layer1 = nn.Sequential(NarrowBlock(width, width, stride=1))
        self.layer2 = nn.Sequential(NarrowBlock(width, 2 * width, stride=2))
        self.layer3 = nn.Sequential(NarrowBlock(2 * width, 4 * width, stride=2))
        self.layer4 = nn.Sequential(NarrowBlock(4 * width, 8 * width, stride=2))
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))

    def forward(self, images: Tensor) -> Tensor:
        """Pooled features (N, 8 · width) of images (N, 3, H, W)."""
        return self.avgpool(feature_map(self, images)).flatten(1)


def _torchvision_resnet(constructor: Callable[..., nn.Module]) -> nn.Module:
    """A torchvision network as the official code sets it up: no classifier, PyTorch's default initialisation.

    Source: official-implementation §2 (zero-initialised residuals, convolutions re-initialised to the default).
    """
    network = constructor(weights=None, zero_init_residual=True)
    network.fc = nn.Identity()
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            module.reset_parameters()
    return network


_BACKBONES: dict[str, Callable[[], nn.Module]] = {
    "resnet18": lambda: _torchvision_resnet(torchvision.models.resnet18),
    "resnet50": lambda: _torchvision_resnet(torchvision.models.resnet50),
    "resnet10_narrow": lambda: NarrowResNet(width=48),
}

BACKBONE_NAMES = tuple(_BACKBONES)


def build_backbone(name: str) -> nn.Module:
    """Builds an untrained backbone.

    Args:
        name: One of `BACKBONE_NAMES`.

    Returns:
        A module from images (N, 3, H, W) to pooled features (N, C) with torchvision's attribute names (`conv1`
        … `layer4`) and no classifier.

    Raises:
        InputError: For a name that is not known.
    """
    if name not in _BACKBONES:
        raise InputError("backbone", name, "is not known", f"Use one of {', '.join(BACKBONE_NAMES)}.")
    return _BACKBONES[name]()


def backbone_from_weights(weights: Mapping[str, Tensor], address: str) -> tuple[str, nn.Module]:
    """Builds the backbone that some weights are of, told by their names and shapes.

    Args:
        weights: Under torchvision's names; batch norm's counts of batches may be missing.
        address: Where they come from, for messages.

    Returns:
        Name of the backbone, and the backbone with these weights.

    Raises:
        InputError: They fit no backbone; the message says in what they differ from the closest.
    """
    differences = {name: _differences(weights, _shapes(name)) for name in BACKBONE_NAMES}
    closest = min(BACKBONE_NAMES, key=lambda name: len(differences[name]))
    found = differences[closest]
    if found:
        more = f" and {len(found) - 3} more" if len(found) > 3 else ""
        raise InputError(
            "checkpoint",
            address,
            f"holds another network than {', '.join(BACKBONE_NAMES)}; beside {closest}: {'; '.join(found[:3])}{more}",
            "Give a checkpoint of one of these.",
        )
    backbone = build_backbone(closest)
    backbone.load_state_dict({**backbone.state_dict(), **weights})
    return closest, backbone


@cache
def _shapes(name: str) -> Mapping[str, torch.Size]:
    with torch.device("meta"):
        return {key: value.shape for key, value in build_backbone(name).state_dict().items()}


def _differences(weights: Mapping[str, Tensor], shapes: Mapping[str, torch.Size]) -> list[str]:
    missing = [f"{key} is missing" for key in shapes if key not in weights and not key.endswith("num_batches_tracked")]
    others = [
        f"{key} is {_by(value.shape)} instead of {_by(shapes[key])}" if key in shapes else f"{key} is not in it"
        for key, value in weights.items()
        if shapes.get(key) != value.shape
    ]
    return others + missing


def _by(shape: torch.Size) -> str:
    return " × ".join(map(str, shape)) or "a number"


def feature_map(backbone: nn.Module, images: Tensor) -> Tensor:
    """Spatial activations A before pooling: (N, 3, H, W) to (N, C, h, w), at or above zero (after ReLU)."""
    network = cast(Backbone, backbone)
    x = network.maxpool(network.relu(network.bn1(network.conv1(images))))
    return network.layer4(network.layer3(network.layer2(network.layer1(x))))


def num_features(backbone: nn.Module) -> int:
    """Number of channels C of a backbone's features."""
    last_block = cast(Backbone, backbone).layer4[-1]
    return [module for module in last_block.children() if isinstance(module, nn.BatchNorm2d)][-1].num_features


def channels_last(network: nn.Module, device: torch.device) -> nn.Module:
    """Moves a network to a device, its convolutions' weights in the order that they are fastest in."""
    return network.to(device).to(memory_format=torch.channels_last)
