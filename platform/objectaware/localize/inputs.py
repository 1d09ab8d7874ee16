"""What the localizers that look through a network ask of their arguments."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from objectaware.errors import InputError
from objectaware.methods.backbones import Activations

Features = Callable[[Tensor], Tensor | Activations]
"""Images (N, 3, H, W) to maps (N, C, h, w) alone, whose average is pooled, or to maps with their pooling."""


def activations_of(features: Features, images: Tensor) -> Activations:
    """Computes maps with their pooling, the maps in 32 bits."""
    found = features(images)
    return Activations(found.float()) if isinstance(found, Tensor) else Activations(found.maps.float(), found.pool)


def check_images(images: Tensor) -> None:
    """Checks that images are a floating-point batch (N, 3, H, W).

    Raises:
        InputError: They are not.
    """
    shape = tuple(images.shape)
    if images.ndim != 4 or shape[1] != 3 or 0 in shape or not images.is_floating_point():
        raise InputError("images", f"{images.dtype} {shape}", "must be float (N, 3, H, W)", "Normalise them.")


def check_evaluation_mode(name: str, network: Callable[[Tensor], object]) -> None:
    """Checks that a network's batch normalisation takes its stored statistics.

    Args:
        name: What the argument is called.
        network: A module, or any function, which is not looked into.

    Raises:
        InputError: A batch normalisation is in training mode.
    """
    layers = network.modules() if isinstance(network, nn.Module) else ()
    if any(isinstance(layer, _BatchNorm) and layer.training for layer in layers):
        problem = "its batch normalisation would mix the images"
        raise InputError(name, "training mode", problem, "Call .eval() on it.")


def check_temperature(temperature: float) -> None:
    """Checks that τ is positive.

    Raises:
        InputError: It is not.
    """
    if not temperature > 0:
        raise InputError("temperature", temperature, "must be positive", "The official code takes 1.")


def check_num_gradients(num_gradients: int) -> None:
    """Checks how many gradients are averaged.

    Raises:
        InputError: There would be none.
    """
    if num_gradients < 1:
        raise InputError("num_gradients", num_gradients, "must be at least 1", "The paper takes 10.")


def check_finite(maps: Tensor) -> None:
    """Checks the maps that came out of a network.

    Raises:
        InputError: They hold NaN or infinity.
    """
    if not torch.isfinite(maps).all():
        problem = "the network gave NaN or infinite values"
        raise InputError("features", "not finite", problem, "Check the checkpoint and the images' normalisation.")


def without_content(images: Tensor) -> Tensor:
    """Which images have one colour throughout: a network's borders draw a frame even there.

    Args:
        images: (N, 3, H, W).

    Returns:
        Boolean (N, 1, 1, 1).
    """
    return (images.amax(dim=(2, 3)) == images.amin(dim=(2, 3))).all(dim=1).view(-1, 1, 1, 1)
