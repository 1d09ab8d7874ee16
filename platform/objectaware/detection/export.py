"""Fine-tuned networks and backbones as files for others."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import safetensors
import safetensors.torch

from objectaware.detection.network import MaskRCNN
from objectaware.errors import InputError
from objectaware.methods.backbones import build_backbone
from objectaware.methods.checkpoint import load_config, load_encoder, load_state, local_checkpoint
from objectaware.methods.weights import load_weights, safetensors_metadata

_NAMES = "category_names"


def load_detector(address: str, *, num_test_proposals: int = 1000) -> tuple[MaskRCNN, tuple[str, ...]]:
    """Load a fine-tuned network: a checkpoint's folder, or a file of `export_detector`.

    Args:
        address: Path or URI.
        num_test_proposals: Proposals per image.

    Returns:
        The network in evaluation mode, and the names of its classes, of which the first has label 1.

    Raises:
        InputError: The address holds no fine-tuned network.
    """
    with local_checkpoint(address) as path:
        if path.is_dir():
            state, about = load_state(path)["method"], load_config(path)
        else:
            state, about = load_weights(path), _metadata(path)
    _require_detector(address, about)
    names = tuple(about[_NAMES])
    network = MaskRCNN(build_backbone(about["backbone"]), len(names), num_test_proposals=num_test_proposals)
    network.load_state_dict(state)
    return network.eval(), names


def export_detector(address: str, path: Path) -> None:
    """Write a fine-tuned network as safetensors, with the names of its backbone and classes in the metadata.

    Raises:
        InputError: There is no fine-tuned network, or the file cannot be written.
    """
    with local_checkpoint(address) as local:
        state = load_state(local)["method"]
        about = load_config(local)
    _require_detector(address, about)
    tensors = {name: value.contiguous().clone() for name, value in state.items()}
    metadata = {"backbone": str(about["backbone"]), _NAMES: json.dumps(about[_NAMES])}
    with _writing(path):
        safetensors.torch.save_file(tensors, path, metadata=metadata)


def export_detectron2(address: str, path: Path) -> str:
    """Write a checkpoint's backbone as detectron2's models load it (MODEL.WEIGHTS, with STRIDE_IN_1X1 False).

    Args:
        address: Address of any checkpoint that `load_encoder` reads.
        path: The new file, whose name has to end in `.pkl` for detectron2 to take it.

    Returns:
        Name of the backbone.

    Raises:
        InputError: The checkpoint cannot be read or holds no ResNet, the file's name does not fit, or it cannot be
            written.

    Source:
        facebookresearch/moco, detection/convert-pretrain-to-detectron2.py.
    """
    if path.suffix != ".pkl":
        raise InputError("out", str(path), "is not a name that detectron2 takes", "Give a file such as backbone.pkl.")
    with local_checkpoint(address) as local:
        encoder = load_encoder(local)
    weights = encoder.backbone.as_resnet().weights()
    content = {
        "model": {detectron2_name(name): value.numpy() for name, value in weights.items()},
        "__author__": "objectaware",
        "matching_heuristics": True,
    }
    with _writing(path):
        path.write_bytes(pickle.dumps(content))
    return str(encoder.config["backbone"])


def detectron2_name(name: str) -> str:
    """Return detectron2's name of a backbone's tensor: `layer1.0.bn1.weight` is `res2.0.conv1.norm.weight`."""
    parts = name.split(".")
    if parts[0].startswith("layer"):
        parts[0] = f"res{int(parts[0].removeprefix('layer')) + 1}"
    else:
        parts.insert(0, "stem")
    renamed = ".".join(f"conv{part[2:]}.norm" if part in ("bn1", "bn2", "bn3") else part for part in parts)
    return renamed.replace("downsample.0", "shortcut").replace("downsample.1", "shortcut.norm")


def _require_detector(address: str, about: Mapping[str, object]) -> None:
    if _NAMES not in about:
        problem = "holds no fine-tuned detector"
        raise InputError("checkpoint", address, problem, "Give a checkpoint of `evaluate detection`.")


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Make the file's folder, and refuse the file if it cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield
    except (OSError, safetensors.SafetensorError) as error:
        raise InputError("out", str(path), f"cannot be written ({error})", "Give another file.") from error


def _metadata(path: Path) -> dict[str, object]:
    about = safetensors_metadata(path)
    return {**about, _NAMES: json.loads(about[_NAMES])} if _NAMES in about else {**about}
