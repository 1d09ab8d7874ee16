"""Linear classifiers on pooled features, in files beside a backbone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import safetensors.torch
from torch import Tensor

from objectaware.data.storage import Storage
from objectaware.errors import InputError
from objectaware.methods.foreign import without_wrappers
from objectaware.methods.weights_file import load_weights

CLASSIFIER_NAME = "classifier.safetensors"
"""Name of the file in this project's folders; its keys are torchvision's, `fc.weight` and `fc.bias`."""

_NESTED_STATES = ("state_dict", "model")
_LAYERS = ("fc", "head.fc", "head", "classifier", "linear")  # torchvision and MoCo, timm, and others
_REMEDY = "Give the folder of a linear evaluation, or a torchvision or timm state dict with its classifier."


@dataclass(frozen=True)
class Classifier:
    """A linear classifier with the scores `features @ weight.T + bias`.

    Attributes:
        weight: (K, C) float32.
        bias: (K,) float32.
    """

    weight: Tensor
    bias: Tensor


def classifier_file(classifier: Classifier) -> bytes:
    """Return the content of a classifier's file, which `load_classifier` reads."""
    tensors = {"fc.weight": classifier.weight, "fc.bias": classifier.bias}
    return safetensors.torch.save({name: value.detach().cpu().contiguous() for name, value in tensors.items()})


def read_classifier(address: str) -> bytes:
    """Read the file of a classifier.

    Args:
        address: A folder that holds `classifier.safetensors`, or the file of a state dict.

    Raises:
        InputError: There is no such file.
    """
    folder = Storage.from_uri(address)
    if folder.exists(CLASSIFIER_NAME):
        return folder.read_bytes(CLASSIFIER_NAME)
    parent, name = folder.split()
    if parent.is_file(name):
        return parent.read_bytes(name)
    problem = f"holds no {CLASSIFIER_NAME}" if parent.exists(name) else "does not exist"
    raise InputError("classifier", address, problem, _REMEDY)


def load_classifier(address: str) -> Classifier:
    """Load the last layer of a supervised network, or a classifier that a linear evaluation fitted.

    Args:
        address: As for `read_classifier`. From a state dict, the function takes the layer `fc`, `head.fc`, `head`,
            `classifier` or `linear`, with or without the parts that wrappers add to names, and nothing else.

    Raises:
        InputError: The file is missing, of another kind or damaged, would run code, or holds no linear layer of these
            names.
    """
    state = _tensors(address, read_classifier(address))
    for layer in _LAYERS:
        weight, bias = state.get(f"{layer}.weight"), state.get(f"{layer}.bias")
        if weight is not None and bias is not None and weight.ndim == 2 and bias.shape == weight.shape[:1]:
            return Classifier(weight.float(), bias.float())
    names = ", ".join(f"{layer}.weight" for layer in _LAYERS)
    raise InputError("classifier", address, f"holds no linear layer with weight and bias ({names})", _REMEDY)


def _tensors(address: str, content: bytes) -> dict[str, Tensor]:
    """Return the tensors of a state dict by name, without the parts that wrappers add to names."""
    loaded = load_weights(content, field="classifier", address=address)
    state: Mapping[str, Any] = loaded if isinstance(loaded, Mapping) else {}
    for key in _NESTED_STATES:
        state = state[key] if isinstance(state.get(key), Mapping) else state
    return {without_wrappers(str(name)): value for name, value in state.items() if isinstance(value, Tensor)}
