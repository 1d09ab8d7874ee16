"""Checkpoints: folders from which training resumes and which others can load, and the files of other systems."""

from __future__ import annotations

import copy
import hashlib
import json
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.torch
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from objectaware.data.storage import Storage
from objectaware.errors import InputError
from objectaware.methods.backbones import Backbone, backbone_from_weights, build_backbone
from objectaware.methods.supervised import Supervised
from objectaware.methods.weights import (
    ForeignWeights,
    find_weights,
    head_from_weights,
    load_weights,
    safetensors_metadata,
    without_wrappers,
)

STATE_NAME = "state.pt"
HASH_NAME = "state.sha256"
"""File with the SHA-256 of `state.pt`, as `sha256sum` writes it. Checkpoints of earlier versions do not have it."""
CONFIG_NAME = "config.json"
BACKBONE_NAME = "backbone.safetensors"

_NAME = "objectaware_backbone"
"""Key of the backbone's name in the metadata of safetensors."""

_HASH = re.compile(rb"([0-9a-f]{64})(\s.*)?", re.DOTALL)

_NO_PROJECTOR = "It holds no projector: the contrastive score is taken on the pooled features."


def save_checkpoint(folder: Path, method: nn.Module, config: Mapping[str, object], state: Mapping[str, object]) -> None:
    """Write a checkpoint into an existing folder.

    Args:
        folder: The folder.
        method: Method to save. Its online backbone, and the classifier of a `Supervised`, are also written to files of
            their own.
        config: Configuration that rebuilds the method; has the key `backbone`.
        state: Further state from which training resumes: only tensors and plain values.
    """
    torch.save({"method": method.state_dict(), **state}, folder / STATE_NAME)
    (folder / HASH_NAME).write_text(f"{_file_hash(folder / STATE_NAME)}  {STATE_NAME}\n")
    (folder / CONFIG_NAME).write_text(json.dumps(config, indent=2, sort_keys=True))
    backbone = method.get_submodule("backbone")
    assert isinstance(backbone, Backbone)
    _write_backbone(backbone, folder / BACKBONE_NAME)
    if isinstance(method, Supervised):
        classifier = Classifier(method.classifier.weight, method.classifier.bias)
        (folder / CLASSIFIER_NAME).write_bytes(classifier_file(classifier))


def copy_checkpoint(folder: Path, target: Storage) -> None:
    """Copy a checkpoint so that nobody sees a part of it: each file appears whole, and `state.pt` comes last.

    Args:
        folder: The checkpoint. The file `state.pt` marks a folder as a checkpoint.
        target: Target folder; existing files are replaced.
    """
    for path in sorted(folder.iterdir(), key=lambda path: path.name == STATE_NAME):
        with path.open("rb") as stream:
            target.write_pieces(path.name, iter(lambda: stream.read(2**24), b""))


def backbone_weights(backbone: Backbone) -> dict[str, Tensor]:
    """Return a copy of a backbone's weights under torchvision's or timm's names, contiguous and on the CPU.

    safetensors refuses tensors that are channels-last or share memory.
    """
    return {name: value.detach().cpu().contiguous().clone() for name, value in backbone.weights().items()}


def _write_backbone(backbone: Backbone, path: Path) -> None:
    safetensors.torch.save_file(backbone_weights(backbone), path, metadata={_NAME: backbone.name})


def export_backbone(address: str, path: Path) -> str:
    """Write the backbone of a checkpoint as safetensors. `load_encoder` must be able to read the checkpoint.

    Tensors have torchvision's names; the tensors of a network of timm have timm's names.

    Args:
        address: Address of the checkpoint.
        path: The new file.

    Returns:
        Name of the backbone.

    Raises:
        InputError: The checkpoint cannot be read, or the file cannot be written.
    """
    with local_checkpoint(address) as local:
        encoder = load_encoder(local)
    with writing(path):
        _write_backbone(encoder.backbone, path)
    return str(encoder.config["backbone"])


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Make the folder of a new file, and refuse the file if it cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield
    except (OSError, safetensors.SafetensorError) as error:
        raise InputError("out", str(path), f"cannot be written ({error})", "Give another file.") from error


def checkpoint_file(address: str) -> tuple[Storage, str]:
    """Find the file that holds a checkpoint's weights.

    Args:
        address: Path or URI of a folder that pretraining wrote, or of another system's file.

    Returns:
        Folder and name of the file.

    Raises:
        InputError: There is no such folder and no such file.
    """
    remedy = "Give a folder that pretraining wrote, or a checkpoint file."
    return _find_file("checkpoint", address, STATE_NAME, remedy)


def checkpoint_config(address: str) -> dict[str, Any]:
    """Return the configuration of the training that made a checkpoint; empty for another system's file."""
    storage, name = checkpoint_file(address)
    return storage.read_json(CONFIG_NAME) if name == STATE_NAME and storage.exists(CONFIG_NAME) else {}


def _find_file(field: str, address: str, name: str, remedy: str) -> tuple[Storage, str]:
    """Find a file by the address of the folder that holds it under this name, or by its own address."""
    folder = Storage.from_uri(address)
    if folder.exists(name):
        return folder, name
    parent, file = folder.split()
    if parent.is_file(file):
        return parent, file
    raise InputError(field, address, f"holds no {name}" if parent.exists(file) else "does not exist", remedy)


def recorded_hash(folder: Storage, name: str) -> str | None:
    """Return the SHA-256 that is written beside a file of weights, or None.

    It saves the reading of a large file. `load_state` and `load_encoder` compare the two.

    Raises:
        InputError: The file with the hash is damaged.
    """
    if name != STATE_NAME or not folder.exists(HASH_NAME):
        return None
    match = _HASH.fullmatch(folder.read_bytes(HASH_NAME))
    if match is None:
        problem = "does not begin with a SHA-256 in hexadecimal digits"
        raise InputError("checkpoint", folder.child(HASH_NAME).uri, problem, "Copy the checkpoint again.")
    return match[1].decode()


def fits_hash(path: Path) -> bool:
    """Return whether a file of weights exists and has the hash that is written beside it, if one is."""
    try:
        recorded = recorded_hash(Storage.from_uri(path.parent), path.name)
    except InputError:  # the file with the hash is damaged
        return False
    return path.is_file() and recorded in (None, _file_hash(path))


def _file_hash(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _load_checked(path: Path) -> Any:  # noqa: ANN401 - whatever was saved
    """Read a file of weights. Refuse one that has another hash than the one written beside it."""
    weights = load_weights(path)  # first, since it says what kind of damage a file has
    if not fits_hash(path):
        problem = f"does not have the hash in {HASH_NAME}: one of the two was changed or is damaged"
        remedy = f"Copy the checkpoint again. If you changed {path.name} yourself, delete {HASH_NAME}."
        raise InputError("checkpoint", str(path), problem, remedy)
    return weights


@contextmanager
def local_checkpoint(address: str) -> Iterator[Path]:
    """Yield the local folder or file of a checkpoint. For a remote one it is a copy that is deleted afterwards.

    Raises:
        InputError: There is no checkpoint.
    """
    storage, name = checkpoint_file(address)
    is_folder = name == STATE_NAME and storage.exists(CONFIG_NAME)
    local = storage.local_path("" if is_folder else name)
    if local is not None:
        yield local
        return
    with tempfile.TemporaryDirectory() as folder:
        beside = (CONFIG_NAME, HASH_NAME) if name == STATE_NAME else ()
        for copied in (name, *(one for one in beside if storage.exists(one))):
            (Path(folder) / copied).write_bytes(storage.read_bytes(copied))
        yield Path(folder) if is_folder else Path(folder, name)


def load_state(folder: Path) -> dict[str, Any]:
    """Read a checkpoint's `state.pt`, without running any code that may be in it.

    Raises:
        InputError: There is no checkpoint in the folder, or it is damaged, does not have the hash that is written
            beside it, or would run code.
    """
    state: dict[str, Any] = _load_checked(_require_file(folder, STATE_NAME))
    return state


def load_config(folder: Path) -> dict[str, Any]:
    """Read the configuration beside a checkpoint.

    Raises:
        InputError: There is no configuration, or it is damaged.
    """
    _require_file(folder, CONFIG_NAME)
    return Storage.from_uri(folder).read_json(CONFIG_NAME)


def _require_file(folder: Path, name: str) -> Path:
    path = folder / name
    if not path.is_file():
        raise InputError("checkpoint", str(folder), f"holds no {name}", "Give a folder that pretraining wrote.")
    return path


@dataclass(frozen=True)
class Encoder:
    """The online network of a checkpoint, in evaluation mode.

    Attributes:
        backbone: Images (N, 3, H, W) to pooled features (N, C).
        projector: Pooled features (N, C) to embeddings (N, D).
        config: The checkpoint's configuration; for another system's file only the name of the `backbone`.
        notices: Sentences for the user about how the checkpoint was read.
    """

    backbone: Backbone
    projector: nn.Module
    config: Mapping[str, Any]
    notices: tuple[str, ...] = ()


def load_encoder(path: Path) -> Encoder:
    """Load the backbone and projector of a checkpoint.

    Args:
        path: Checkpoint folder, or a file of another system (`weights.LAYOUTS`).

    Raises:
        InputError: The path is not a checkpoint, is damaged, would run code, or holds a network that is not known.
    """
    if not path.is_dir():
        if (name := safetensors_metadata(path).get(_NAME)) is not None:
            return _exported_encoder(name, path)
        return _foreign_encoder(find_weights(_load_checked(path), str(path)), str(path))
    state = load_state(path)["method"]
    config = load_config(path)
    backbone = build_backbone(config["backbone"])
    backbone.load_state_dict(_part(state, "backbone."))
    weights = _part(state, "projector.")
    projector = head_from_weights(weights, backbone.num_features, str(path))
    return Encoder(backbone.eval(), projector.eval(), config, () if weights else (_NO_PROJECTOR,))


def untrained(encoder: Encoder, seed: int) -> Encoder:
    """Return an encoder of the same architecture as it is before training, with random weights from a seed.

    The batch norms' statistics are those of the start, too: mean 0 and variance 1.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        backbone = build_backbone(encoder.backbone.name)
        projector = copy.deepcopy(encoder.projector)
        for layer in projector.modules():
            if isinstance(layer, nn.Linear | _BatchNorm):
                layer.reset_parameters()
    return Encoder(backbone.eval(), projector.eval(), encoder.config, encoder.notices)


def _exported_encoder(name: str, path: Path) -> Encoder:
    backbone = build_backbone(name)
    try:
        backbone.load_weights(load_weights(path))
    except RuntimeError as error:
        problem = f"does not hold the {name} that its metadata names ({' '.join(str(error).split())})"
        raise InputError("checkpoint", str(path), problem, "Export it again.") from error
    return Encoder(backbone.eval(), nn.Identity(), {"backbone": name}, (_NO_PROJECTOR,))


def _part(state: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {key.removeprefix(prefix): value for key, value in state.items() if key.startswith(prefix)}


def _foreign_encoder(weights: ForeignWeights, address: str) -> Encoder:
    name, backbone = backbone_from_weights(weights.backbone, address)
    # Without weights the head is empty, and an empty head is the identity.
    projector = head_from_weights(weights.projector, backbone.num_features, address)
    notices = [f"{address} was read as a {name} of {weights.system}."]
    if not weights.projector:
        notices.append(_NO_PROJECTOR)
    if weights.left_over:
        parts = ", ".join(f"{part} ({number})" for part, number in sorted(weights.left_over.items()))
        notices.append(f"Tensors of it that are not used: {parts}.")
    return Encoder(backbone.eval(), projector.eval(), {"backbone": name}, tuple(notices))


CLASSIFIER_NAME = "classifier.safetensors"
"""Name of the file in this project's folders; its keys are torchvision's, `fc.weight` and `fc.bias`."""

_NESTED_STATES = ("state_dict", "model")
_LAYERS = ("fc", "head.fc", "head", "classifier", "linear")  # torchvision and MoCo, timm, and others
_REMEDY = "Give the folder of a linear evaluation, or a torchvision or timm state dict with its classifier."


@dataclass(frozen=True)
class Classifier:
    """A linear classifier with the scores `features @ weight.T + bias`.

    Attributes:
        weight: (K, C) floating point.
        bias: (K,) floating point.
    """

    weight: Tensor
    bias: Tensor

    def predict(self, features: Tensor | NDArray[np.floating]) -> Tensor:
        """Return the class of each row of features (N, C) as (N,) int64, on the features' device."""
        rows = torch.as_tensor(features)
        return torch.addmm(self.bias.to(rows), rows, self.weight.to(rows).T).argmax(dim=1)


def classifier_file(classifier: Classifier) -> bytes:
    """Return the content of a classifier's file, which holds it in float32 and which `load_classifier` reads."""
    tensors = {"fc.weight": classifier.weight, "fc.bias": classifier.bias}
    return safetensors.torch.save({name: value.detach().float().cpu().contiguous() for name, value in tensors.items()})


def read_classifier(address: str) -> bytes:
    """Read the file of a classifier.

    Args:
        address: A folder that holds `classifier.safetensors`, or the file of a state dict.

    Raises:
        InputError: There is no such file.
    """
    folder, name = _find_file("classifier", address, CLASSIFIER_NAME, _REMEDY)
    return folder.read_bytes(name)


def load_classifier(address: str) -> Classifier:
    """Load the last layer of a supervised network, or a classifier that a linear evaluation fitted.

    Args:
        address: As for `read_classifier`. From a state dict, the function takes the layer `fc`, `head.fc`, `head`,
            `classifier` or `linear`, with or without the parts that wrappers add to names, and nothing else.

    Raises:
        InputError: The file is missing, of another kind or damaged, would run code, or holds no linear layer of these
            names.
    """
    loaded = load_weights(read_classifier(address), field="classifier", address=address)
    state: Mapping[str, Any] = loaded if isinstance(loaded, Mapping) else {}
    for key in _NESTED_STATES:
        state = state[key] if isinstance(state.get(key), Mapping) else state
    state = {without_wrappers(str(name)): value for name, value in state.items() if isinstance(value, Tensor)}
    for layer in _LAYERS:
        weight, bias = state.get(f"{layer}.weight"), state.get(f"{layer}.bias")
        if weight is not None and bias is not None and weight.ndim == 2 and bias.shape == weight.shape[:1]:
            return Classifier(weight.float(), bias.float())
    names = ", ".join(f"{layer}.weight" for layer in _LAYERS)
    raise InputError("classifier", address, f"holds no linear layer with weight and bias ({names})", _REMEDY)
