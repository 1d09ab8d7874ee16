"""Checkpoints: a folder that training resumes from and that others can load."""

from __future__ import annotations

import json
import pickle
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor, nn

from objectaware.data.storage import Storage
from objectaware.errors import InputError
from objectaware.methods.backbones import build_backbone
from objectaware.methods.heads import projection_head

STATE_NAME = "state.pt"
CONFIG_NAME = "config.json"
BACKBONE_NAME = "backbone.safetensors"


def save_checkpoint(folder: Path, method: nn.Module, config: Mapping[str, object], state: Mapping[str, object]) -> None:
    """Writes a checkpoint into an existing folder.

    Args:
        folder: Where to.
        method: MoCo or BYOL; its state and, apart, its online backbone are written.
        config: Configuration that rebuilds the method; has the key `backbone`.
        state: What else training resumes from: tensors and plain values only.
    """
    torch.save({"method": method.state_dict(), **state}, folder / STATE_NAME)
    (folder / CONFIG_NAME).write_text(json.dumps(config, indent=2, sort_keys=True))
    safetensors.torch.save_file(backbone_weights(method.get_submodule("backbone")), folder / BACKBONE_NAME)


def backbone_weights(backbone: nn.Module) -> dict[str, Tensor]:
    """A backbone's weights under torchvision's names, on the CPU and in plain order.

    safetensors refuses channels-last tensors and ones that share memory.
    """
    return {name: value.detach().cpu().contiguous().clone() for name, value in backbone.state_dict().items()}


@contextmanager
def local_checkpoint(address: str) -> Iterator[Path]:
    """Gives the folder of a checkpoint: itself where it is local, else a copy that goes away afterwards."""
    storage = Storage.from_uri(address)
    local = storage.local_path()
    if local is not None:
        yield local
        return
    with tempfile.TemporaryDirectory() as folder:
        for name in (STATE_NAME, CONFIG_NAME):
            if storage.exists(name):
                (Path(folder) / name).write_bytes(storage.read_bytes(name))
        yield Path(folder)


def load_state(folder: Path) -> dict[str, Any]:
    """Reads a checkpoint's `state.pt`, without running any code that may be in it.

    Raises:
        InputError: Where there is no checkpoint in the folder, or it is damaged or would run code.
    """
    path = folder / STATE_NAME
    if not path.is_file():
        raise InputError("checkpoint", str(folder), f"holds no {STATE_NAME}", "Give a folder that pretraining wrote.")
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
        raise InputError(
            "checkpoint",
            str(path),
            "is damaged, or is a pickle that would run code and is not loaded",
            "Give a checkpoint that pretraining wrote.",
        ) from error


@dataclass(frozen=True)
class Encoder:
    """The online network of a checkpoint, in evaluation mode.

    Attributes:
        backbone: Images (N, 3, H, W) to pooled features (N, C).
        projector: Pooled features (N, C) to embeddings (N, D).
        config: The checkpoint's configuration.
    """

    backbone: nn.Module
    projector: nn.Module
    config: Mapping[str, Any]


def load_encoder(folder: Path) -> Encoder:
    """Loads the backbone and projector of a checkpoint.

    Args:
        folder: Checkpoint folder.

    Raises:
        InputError: Where the folder is not a checkpoint of ours.
    """
    state = load_state(folder)["method"]
    path = folder / CONFIG_NAME
    if not path.is_file():
        raise InputError("checkpoint", str(folder), f"holds no {CONFIG_NAME}", "Give a folder that pretraining wrote.")
    config = json.loads(path.read_text())
    backbone = build_backbone(config["backbone"])
    backbone.load_state_dict(_part(state, "backbone."))
    weights = _part(state, "projector.")
    hidden, width = weights["0.weight"].shape
    projector = projection_head(width, hidden, weights["3.weight"].shape[0])
    projector.load_state_dict(weights)
    return Encoder(backbone.eval(), projector.eval(), config)


def _part(state: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {key.removeprefix(prefix): value for key, value in state.items() if key.startswith(prefix)}
