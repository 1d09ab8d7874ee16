"""Backbones: networks from images to maps and pooled features, behind one interface.

The residual networks are here, and their weights carry torchvision's names. Any network of timm is a backbone by
`timm_backbone`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NoReturn, TypeVar, cast

import torch
from torch import Tensor, nn
from torchvision.models.resnet import BasicBlock, Bottleneck, ResNet

from objectaware.config.backbones import BACKBONE_NAMES, backbone_builder
from objectaware.data.images import IMAGENET_MEAN, IMAGENET_STD
from objectaware.errors import InputError


@dataclass(frozen=True)
class Activations:
    """A network's last maps of some images, and how they are pooled.

    Attributes:
        maps: (N, C, h, w).
        pool: Computes pooled features (N, D) of maps (N, C, h, w) that stand in place of `maps`, with gradients. It
            holds whatever else of the same images is pooled with them, such as a class token. None where the pooled
            features are the average over the positions.
    """

    maps: Tensor
    pool: Callable[[Tensor], Tensor] | None = None

    def pooled(self) -> Tensor:
        """Pooled features (N, D)."""
        return self.maps.mean(dim=(2, 3)) if self.pool is None else self.pool(self.maps)


class Backbone(nn.Module):
    """Base of the networks that are trained: images (N, 3, H, W) to pooled features (N, num_features).

    Attributes:
        name: As recipes give it.
        num_features: Number of pooled features.
        stride: Pixels per position of the maps.
        input_size: Side of the images that the network was designed for, in pixels.
        mean: What is subtracted from each channel of an image, values from 0 to 1.
        std: What each channel is divided by afterwards.
    """

    name: str
    num_features: int
    stride: int
    input_size: int = 224
    mean: tuple[float, float, float] = IMAGENET_MEAN
    std: tuple[float, float, float] = IMAGENET_STD

    def activations(self, images: Tensor) -> Activations:
        """Maps of images (N, 3, H, W), with the function that pools them."""
        raise NotImplementedError

    def forward_features(self, images: Tensor) -> Tensor:
        """Maps (N, C, h, w) of images (N, 3, H, W)."""
        return self.activations(images).maps

    def forward(self, images: Tensor) -> Tensor:
        """Pooled features (N, num_features) of images (N, 3, H, W)."""
        raise NotImplementedError

    def check_size(self, height: int, width: int) -> None:
        """Checks that the network takes images of a size; by default it takes any.

        Raises:
            InputError: It does not.
        """

    def weights(self) -> Mapping[str, Tensor]:
        """Returns the state under the names that the library gives it which others load it with."""
        return self.state_dict()

    def load_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Loads what `weights` gave, all of it."""
        self.load_state_dict(weights)

    def strided_stages(self) -> Sequence[nn.Module]:
        """Returns the stages that enlarge the maps when their stride is taken away, last first; none by default."""
        return ()

    def as_resnet(self) -> ResidualBackbone:
        """Returns this network, if it has the four stages of a ResNet, which detection needs.

        Raises:
            InputError: It has not.
        """
        self._refuse_as_resnet()

    def _refuse_as_resnet(self) -> NoReturn:
        remedy = f"Give a checkpoint of {', '.join(BACKBONE_NAMES)}."
        raise InputError("backbone", self.name, "does not have the four stages of a ResNet, which are needed", remedy)


RESNET_PARTS = ("conv1", "bn1", "layer1", "layer2", "layer3", "layer4")
"""What the names of a ResNet's weights begin with in torchvision."""


class ResidualBackbone(Backbone):
    """A residual network of four stages under torchvision's names: maps at or above zero, averaged when pooled."""

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

    def forward_c4(self, images: Tensor) -> Tensor:
        """Maps after the third stage, of stride 16 (C4 of the detection literature)."""
        x = self.maxpool(self.relu(self.bn1(self.conv1(images))))
        return cast(Tensor, self.layer3(self.layer2(self.layer1(x))))

    @property
    def c4_channels(self) -> int:
        """Channels of the maps after the third stage."""
        return cast(nn.Conv2d, self.layer4[0].get_submodule("conv1")).in_channels

    def forward_features(self, images: Tensor) -> Tensor:
        """Maps (N, C, h, w) before pooling, at or above zero (after ReLU)."""
        return cast(Tensor, self.layer4(self.forward_c4(images)))

    def activations(self, images: Tensor) -> Activations:
        """Maps of images (N, 3, H, W); pooling is the average."""
        return Activations(self.forward_features(images))

    def forward(self, images: Tensor) -> Tensor:
        """Pooled features (N, num_features) of images (N, 3, H, W)."""
        return cast(Tensor, self.avgpool(self.forward_features(images)).flatten(1))

    def strided_stages(self) -> Sequence[nn.Module]:
        """Returns the last two stages."""
        return self.layer4, self.layer3

    def as_resnet(self) -> ResidualBackbone:
        """Returns this network."""
        return self


class TorchvisionResNet(ResidualBackbone, ResNet):  # type: ignore[misc]
    """A torchvision network as the official code sets it up: no classifier, PyTorch's default initialisation.

    Args:
        block: Kind of block.
        depths: Blocks of each stage.

    Source: official-implementation §2 (zero-initialised residuals, convolutions re-initialised to the default).
    """

    def __init__(self, block: type[BasicBlock | Bottleneck], depths: list[int]) -> None:
        ResNet.__init__(self, block, depths, zero_init_residual=True)
        self.num_features: int = cast(nn.Linear, self.get_submodule("fc")).in_features
        self.fc = nn.Identity()
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                module.reset_parameters()


def resnet18() -> Backbone:
    """Builds ResNet-18."""
    return TorchvisionResNet(BasicBlock, [2, 2, 2, 2])


def resnet50() -> Backbone:
    """Builds ResNet-50."""
    return TorchvisionResNet(Bottleneck, [3, 4, 6, 3])


def resnet10_narrow() -> Backbone:
    """Builds the demo's network."""
    return NarrowResNet(width=48)


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


class NarrowResNet(ResidualBackbone):
    """A residual network of one narrow block a stage, for pictures of about 100 pixels on a CPU.

    A unit of the last map sees 73 pixels. A unit that sees the whole picture tells nothing about where an object is:
    with two 3 × 3 convolutions a block it saw 193, and ContraCAM found little but the middle of the picture.

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
    """Builds an untrained backbone, without a classifier.

    Args:
        name: One of `BACKBONE_NAMES`, or `timm/` and the name of a network of timm.

    Raises:
        InputError: For a name that is not known.
    """
    build, arguments = backbone_builder(name)
    backbone: Backbone = build(*arguments)
    backbone.name = name
    return backbone


def check_image_size(name: str, size: int) -> None:
    """Checks that a backbone takes square images of a side in pixels, without computing anything.

    Raises:
        InputError: The name is not known, or the network does not.
    """
    with torch.device("meta"):
        build_backbone(name).check_size(size, size)


def backbone_from_weights(weights: Mapping[str, Tensor], address: str) -> tuple[str, Backbone]:
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


Network = TypeVar("Network", bound=nn.Module)


def channels_last(network: Network, device: torch.device) -> Network:
    """Moves a network to a device, its convolutions' weights in the order that they are fastest in."""
    return network.to(device).to(memory_format=torch.channels_last)
