"""Shared parts of localizers: input pictures, the network and its expansion, negatives, checks of arguments."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from objectaware.config.localize import Localizer
from objectaware.data.images import normalise
from objectaware.errors import InputError
from objectaware.methods.backbones import Activations, Backbone, channels_last
from objectaware.methods.checkpoint import Encoder, load_encoder, local_checkpoint, untrained


@dataclass(frozen=True)
class Group:
    """Pictures that are localized together.

    Attributes:
        images: (n, S, S, 3) uint8, n at least 1.
        filler: (m, S, S, 3) uint8: further negatives, or the only negatives if the user gave some.
        is_self: Boolean (n, m): whether an image and a filler are the same picture.
        seed: Seed of all random numbers for the group.
        on_iteration: Function that receives the maps (n, S, S) of each iteration, from localizers that iterate.
    """

    images: NDArray[np.uint8]
    filler: NDArray[np.uint8]
    is_self: NDArray[np.bool_]
    seed: int = 0
    on_iteration: Callable[[NDArray[np.float32]], None] = lambda maps: None


Features = Callable[[Tensor], Tensor | Activations]
"""Function from images (N, 3, H, W) to maps (N, C, h, w), which are pooled by averaging, or to maps with their
pooling."""
SoftMaps = Callable[[Group], NDArray[np.float32]]
"""Function that finds the soft masks (n, S, S) in [0, 1] of the images of a group."""


class Network:
    """The network that a localizer uses. Its file is opened when the localizer asks for a part of the network.

    Args:
        checkpoint: Address of the network; None for localizers that use no network.
        device: Device on which the network computes.
        untrained_seed: Seed of random weights in place of the checkpoint's; None for the checkpoint's own.
    """

    def __init__(self, checkpoint: str | None, device: torch.device, untrained_seed: int | None = None) -> None:
        self._checkpoint, self._device, self._untrained_seed = checkpoint, device, untrained_seed

    def features(self, expansion: int = 1) -> Callable[[Tensor], Activations]:
        """Return the function from images (N, 3, H, W) to their last spatial activations (N, C, h, w).

        The activations are `expansion` times as high and as wide as without expansion.
        """
        return channels_last(expand_resolution(self._encoder.backbone, expansion), self._device).activations

    def projector(self) -> nn.Module:
        """Return the module from pooled features (N, C) to projections (N, D)."""
        return self._encoder.projector.to(self._device)

    def tensor(self, images: NDArray[np.uint8]) -> Tensor:
        """Convert images (N, H, W, 3) to the network's input: (N, 3, H, W), normalised, on its device."""
        backbone = self._encoder.backbone
        return normalise(images, backbone.mean, backbone.std).to(self._device, memory_format=torch.channels_last)

    @cached_property
    def _encoder(self) -> Encoder:
        assert self._checkpoint is not None, "the configuration refuses a localizer without the network that it needs"
        with local_checkpoint(self._checkpoint) as folder:
            encoder = load_encoder(folder)
        return encoder if self._untrained_seed is None else untrained(encoder, self._untrained_seed)


class ContrastiveLocalizer(Localizer):
    """Base of the localizers that explain the contrastive score of an image against its negatives (eq. 3).

    Attributes:
        temperature: τ of the score.
        negatives: Images that are every image's only negatives, as paths relative to the data's folder; by default
            the images of a group are each other's negatives.
    """

    needs_negatives: ClassVar[bool] = True

    temperature: Annotated[float, Field(gt=0)] = 1.0
    negatives: Annotated[tuple[str, ...], Field(min_length=1)] | None = None

    @property
    def only_negatives(self) -> tuple[str, ...] | None:
        """Return the images that the user gave as every image's only negatives."""
        return self.negatives

    def arguments(self, group: Group) -> Mapping[str, Any]:
        """Return the arguments of a contrastive localizer's function that follow from the negatives.

        The function is called on the group's images followed by the filler. If the user gave no negatives, the images
        of the whole batch are each other's negatives.
        """
        if self.negatives is None:
            return {"temperature": self.temperature}
        num_negatives = group.is_self.shape[1]
        own = np.concatenate([group.is_self, np.eye(num_negatives, dtype=np.bool_)])
        return {"temperature": self.temperature, "num_negatives": num_negatives, "is_self": torch.from_numpy(own)}

    @staticmethod
    def soft_maps(network: Network, find: Callable[[Tensor, Group], Tensor]) -> SoftMaps:
        """Return the function that finds soft maps, from one that finds those of a group's images and its filler.

        Args:
            network: The network.
            find: Function from the network's input (n + m, 3, S, S) and the group to maps (n + m, 1, S, S).
        """

        def maps(group: Group) -> NDArray[np.float32]:
            images = network.tensor(np.concatenate([group.images, group.filler]))
            return as_array(find(images, group)[: len(group.images)])

        return maps


def activations_of(features: Features, images: Tensor) -> Activations:
    """Compute maps in 32 bits, with their pooling."""
    found = features(images)
    return Activations(found.float()) if isinstance(found, Tensor) else Activations(found.maps.float(), found.pool)


def as_array(maps: Tensor) -> NDArray[np.float32]:
    """Convert maps (N, 1, H, W) on any device to an array (N, H, W)."""
    return maps[:, 0].cpu().numpy()


def check_images(images: Tensor) -> None:
    """Check that images are a floating-point batch (N, 3, H, W).

    Raises:
        InputError: The images have another shape or type.
    """
    shape = tuple(images.shape)
    if images.ndim != 4 or shape[1] != 3 or 0 in shape or not images.is_floating_point():
        raise InputError("images", f"{images.dtype} {shape}", "must be float (N, 3, H, W)", "Normalise them.")


def check_evaluation_mode(name: str, network: Callable[[Tensor], object]) -> None:
    """Check that a network's batch normalisation uses its stored statistics.

    Args:
        name: Name of the argument.
        network: A module, or any other function; a function cannot be checked and passes.

    Raises:
        InputError: A batch normalisation layer is in training mode.
    """
    layers = network.modules() if isinstance(network, nn.Module) else ()
    if any(isinstance(layer, _BatchNorm) and layer.training for layer in layers):
        raise InputError(name, "training mode", "its batch normalisation would mix the images", "Call .eval() on it.")


def check_contrastive(
    images: Tensor, features: Features, projector: Callable[[Tensor], Tensor], temperature: float
) -> None:
    """Check the arguments of a contrastive score.

    Raises:
        InputError: The images have another shape or type, τ is not positive, or batch normalisation is in training
            mode.
    """
    check_images(images)
    if not temperature > 0:
        raise InputError("temperature", temperature, "must be positive", "The official code takes 1.")
    check_evaluation_mode("features", features)
    check_evaluation_mode("projector", projector)


def check_finite(maps: Tensor) -> None:
    """Check that a network's maps are finite.

    Raises:
        InputError: The maps contain NaN or infinity.
    """
    if not torch.isfinite(maps).all():
        problem = "the network gave NaN or infinite values"
        raise InputError("features", "not finite", problem, "Check the checkpoint and the images' normalisation.")


def without_content(images: Tensor) -> Tensor:
    """Return which images have only one colour. Even on these, the padding at a network's borders draws a frame.

    Args:
        images: (N, 3, H, W).

    Returns:
        Boolean (N, 1, 1, 1).
    """
    return (images.amax(dim=(2, 3)) == images.amin(dim=(2, 3))).all(dim=1).view(-1, 1, 1, 1)


Trunk = TypeVar("Trunk", bound=nn.Module)

_NUM_STAGES = {1: 0, 2: 1, 4: 2}
"""Number of last stages that lose their stride, by the factor."""


def expand_resolution(backbone: Trunk, factor: int) -> Trunk:
    """Copy a residual network so that its last feature map is `factor` times as high and as wide (paper appendix B.1).

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
        raise InputError("factor", factor, "is not a valid factor of the resolution", "Give 1, 2 or 4.")
    expanded = copy.deepcopy(backbone)
    if isinstance(expanded, Backbone):
        name, stages = expanded.name, expanded.stages()
    else:
        name, found = type(backbone).__name__, [getattr(expanded, layer, None) for layer in ("layer3", "layer4")]
        stages = [stage for stage in found if isinstance(stage, nn.Module)]
    stages = stages[len(stages) - _NUM_STAGES[factor] :]
    if len(stages) < _NUM_STAGES[factor]:
        problem = "has no residual stages (layer3, layer4) that could lose their stride"
        raise InputError("backbone", name, problem, "Use expansion: 1 with this network.")
    for stage in stages:
        _remove_stride(stage, name)
    return expanded


def _remove_stride(stage: nn.Module, name: str) -> None:
    first_block = next(stage.children())
    # Only leaves: torchvision's blocks themselves also have an attribute `stride`, the one they were built with.
    leaves = (layer for layer in first_block.modules() if next(layer.children(), None) is None)
    strided = [layer for layer in leaves if _is_strided(layer)]
    convolutions = [layer for layer in strided if isinstance(layer, nn.Conv2d)]
    if not strided or len(convolutions) < len(strided):
        problem = "the first block of a stage does not halve the resolution by strided convolutions alone"
        raise InputError("backbone", name, problem, "Use expansion: 1 with this network.")
    for convolution in convolutions:
        convolution.stride = (1, 1)


def _is_strided(layer: nn.Module) -> bool:
    stride = getattr(layer, "stride", 1)
    return any(step > 1 for step in (stride if isinstance(stride, tuple) else (stride,)))
