"""Backbones: networks from images to maps and pooled features, behind one interface.

This module holds the residual networks, whose weights have torchvision's names. `timm_backbone` makes any network of
timm a backbone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TypeVar, cast

import torch
from torch import Tensor, nn

from objectaware.config.variants import BACKBONE_NAMES, backbone_builder
from objectaware.data.images import IMAGENET_MEAN, IMAGENET_STD
from objectaware.errors import InputError


@dataclass(frozen=True)
class Activations:
    """A network's last maps of some images, and the function that pools them.

    Attributes:
        maps: (N, C, h, w).
        pool: Function that computes pooled features (N, D) from maps (N, C, h, w) given in place of `maps`, with
            gradients. It also holds everything else of the same images that is pooled, such as a class token. None if
            the pooled features are the average over the positions.
    """

    maps: Tensor
    pool: Callable[[Tensor], Tensor] | None = None

    def pooled(self) -> Tensor:
        """Compute the pooled features (N, D)."""
        return self.maps.mean(dim=(2, 3)) if self.pool is None else self.pool(self.maps)


class Backbone(nn.Module):
    """Base of the networks that are trained: images (N, 3, H, W) to pooled features (N, num_features).

    Attributes:
        name: Name in recipes.
        num_features: Number of pooled features.
        stride: Pixels per position of the maps.
        input_size: Side of the images for which the network was designed, in pixels.
        mean: Value from 0 to 1 that is subtracted from each channel of an image.
        std: Value by which each channel is divided afterwards.
    """

    name: str
    num_features: int
    stride: int
    input_size: int = 224
    mean: tuple[float, float, float] = IMAGENET_MEAN
    std: tuple[float, float, float] = IMAGENET_STD

    def activations(self, images: Tensor) -> Activations:
        """Compute the maps of images (N, 3, H, W), with the function that pools them."""
        raise NotImplementedError

    def forward_features(self, images: Tensor) -> Tensor:
        """Compute the maps (N, C, h, w) of images (N, 3, H, W)."""
        return self.activations(images).maps

    def forward(self, images: Tensor) -> Tensor:
        """Compute the pooled features (N, num_features) of images (N, 3, H, W)."""
        raise NotImplementedError

    def check_size(self, height: int, width: int) -> None:
        """Check that the network takes images of a size; by default it takes any size.

        Raises:
            InputError: The network does not take images of this size.
        """

    def weights(self) -> Mapping[str, Tensor]:
        """Return the state under the names of the library with which other projects load it."""
        return self.state_dict()

    def load_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Load a state that `weights` returned; it must be complete."""
        self.load_state_dict(weights)

    def stages(self) -> Sequence[nn.Module]:
        """Return the stem and the four stages of a ResNet, which follow each other; nothing for other networks."""
        return ()


RESNET_PARTS = ("conv1", "bn1", "layer1", "layer2", "layer3", "layer4")
"""First parts of the names of a ResNet's weights in torchvision."""


class ResidualBackbone(Backbone):
    """A residual network of four stages under torchvision's names. Its maps are not negative; pooling averages them."""

    stride = 32
    conv1: nn.Conv2d
    bn1: nn.Module
    relu: nn.Module
    maxpool: nn.Module
    layer1: nn.Sequential
    layer2: nn.Sequential
    layer3: nn.Sequential
    layer4: nn.Sequential
    avgpool: nn.Module

    def forward_features(self, images: Tensor) -> Tensor:
        """Compute the maps (N, C, h, w) before pooling, after ReLU and therefore not negative."""
        x = self.maxpool(self.relu(self.bn1(self.conv1(images))))
        return cast(Tensor, self.layer4(self.layer3(self.layer2(self.layer1(x)))))

    def activations(self, images: Tensor) -> Activations:
        """Compute the maps of images (N, 3, H, W); pooling is the average."""
        return Activations(self.forward_features(images))

    def forward(self, images: Tensor) -> Tensor:
        """Compute the pooled features (N, num_features) of images (N, 3, H, W)."""
        return cast(Tensor, self.avgpool(self.forward_features(images)).flatten(1))

    def stages(self) -> Sequence[nn.Module]:
        """Return the stem and the four stages."""
        stem = nn.Sequential(self.conv1, self.bn1, self.relu, self.maxpool)
        return stem, self.layer1, self.layer2, self.layer3, self.layer4


class TorchvisionResNet(ResidualBackbone):
    """A torchvision network as in the official code: without classifier, with PyTorch's default initialisation.

    Args:
        block: Name of torchvision's class of the blocks.
        depths: Number of blocks in each stage.

    Source: official-implementation §2 (zero-initialised residuals, convolutions re-initialised to the default).
    """

    def __init__(self, block: str, depths: list[int]) -> None:
        # Here, since torchvision imports PyTorch's compiler. Drivers and a sweep's trials build no network.
        from torchvision.models import resnet

        super().__init__()
        network = resnet.ResNet(getattr(resnet, block), depths, zero_init_residual=True)
        for module in network.modules():
            if isinstance(module, nn.Conv2d):
                module.reset_parameters()
        self.num_features = cast(nn.Linear, network.fc).in_features
        del network.fc
        for name, part in network.named_children():
            self.add_module(name, part)


def resnet18() -> Backbone:
    """Build ResNet-18."""
    return TorchvisionResNet("BasicBlock", [2, 2, 2, 2])


def resnet50() -> Backbone:
    """Build ResNet-50."""
    return TorchvisionResNet("Bottleneck", [3, 4, 6, 3])


def resnet10_narrow() -> Backbone:
    """Build the demo's network."""
    return NarrowResNet(width=48)


class NarrowBlock(nn.Module):
    """A residual block with only one spatial convolution: 3 × 3, then 1 × 1.

    Args:
        in_channels: Channels of the input.
        channels: Channels of the output.
        stride: Stride of the 3 × 3 convolution and the shortcut.

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
                nn.Conv2d(in_channels, channels, kernel_size=1, stride=stride, bias=False), nn.BatchNorm2d(channels)
            )

    def forward(self, x: Tensor) -> Tensor:
        """Compute ReLU(convolutions + shortcut)."""
        inner = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        return self.relu(inner + self.downsample(x))


class NarrowResNet(ResidualBackbone):
    """A residual network with one narrow block per stage, for pictures of about 100 pixels on a CPU.

    A unit of the last map sees 73 pixels. A unit that sees the whole picture cannot show where an object is: with two
    3 × 3 convolutions per block it saw 193 pixels, and ContraCAM found little but the middle of the picture.

    Args:
        width: Channels of the first stage; the others have 2, 4 and 8 times as many.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.num_features = 8 * width
        self.conv1 = nn.Conv2d(3, width, kernel_size=5, stride=2, padding=2, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(kernel_size=3, stride=2, padding=1)
        self.layer1 = nn.Sequential(NarrowBlock(width, width, stride=1))
        self.layer2 = nn.Sequential(NarrowBlock(width, 2 * width, stride=2))
        self.layer3 = nn.Sequential(NarrowBlock(2 * width, 4 * width, stride=2))
        self.layer4 = nn.Sequential(NarrowBlock(4 * width, 8 * width, stride=2))
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))


def build_backbone(name: str) -> Backbone:
    """Build an untrained backbone, without a classifier.

    Args:
        name: One of `BACKBONE_NAMES`, or `timm/` and the name of a network of timm.

    Raises:
        InputError: The name is not known.
    """
    build, arguments = backbone_builder(name)
    backbone: Backbone = build(*arguments)
    backbone.name = name
    return backbone


def check_image_size(name: str, size: int) -> None:
    """Check that a backbone takes square images of this side in pixels, without computing anything.

    Raises:
        InputError: The name is not known, or the network does not take such images.
    """
    with torch.device("meta"):
        build_backbone(name).check_size(size, size)


def backbone_from_weights(weights: Mapping[str, Tensor], address: str) -> tuple[str, Backbone]:
    """Build the backbone to which weights belong. Their names and shapes decide which one it is.

    Args:
        weights: Weights under torchvision's names; batch norm's counts of batches may be missing.
        address: Address of the weights, for messages.

    Returns:
        Name of the backbone, and the backbone with these weights.

    Raises:
        InputError: The weights fit no backbone. The message lists the differences from the closest one.
    """
    differences = {name: _differences(weights, _shapes(name)) for name in BACKBONE_NAMES}
    closest = min(BACKBONE_NAMES, key=lambda name: len(differences[name]))
    found = differences[closest]
    if found:
        more = f" and {len(found) - 3} more" if len(found) > 3 else ""
        names, differing = ", ".join(BACKBONE_NAMES), "; ".join(found[:3])
        problem = f"holds another network than {names}; compared with {closest}: {differing}{more}"
        raise InputError("checkpoint", address, problem, "Give a checkpoint of one of these.")
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


Network = TypeVar("Network", bound=nn.Module)


def channels_last(network: Network, device: torch.device) -> Network:
    """Move a network to a device, and put its convolutions' weights into the fastest memory order, channels last."""
    return network.to(device).to(memory_format=torch.channels_last)
