"""Weights in files of this and other systems: how a file is read, and where it keeps the backbone and the projector.

Not the name but the content of a file decides how it is read, and none of it is run. Only the keys of its tensors
decide which system's layout it has. A comment at each rule names the repository and version that it describes. A system
that names its parts in several ways has one rule for each way.
"""

from __future__ import annotations

import io
import re
import warnings
import zipfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import safetensors.torch
import torch
from torch import Tensor, nn

from objectaware.errors import InputError
from objectaware.methods.backbones import RESNET_PARTS

_HEAD_BYTES = 512
_SAFETENSORS_HEADER_BYTES = 100_000_000  # safetensors refuses longer headers
_LFS_REMEDY = "Run `git lfs pull` in the repository that it is from."
_LEGACY_MAGIC = torch.serialization.MAGIC_NUMBER.to_bytes(10, "little")
"""First bytes that torch.save wrote before it wrote zip archives."""
_ZIP = b"PK\x03\x04"
_PROTOCOL = 2  # of torch.save by default
_WEIGHTS_ALONE = (
    "If you trust its source, save its weights alone where it was made: "
    "torch.save({'state_dict': torch.load(FILE, weights_only=False)['state_dict']}, 'weights.pth')."
)
_OTHER_PROTOCOL = (
    "If you trust its source, save it again where it was made, without pickle_protocol: "
    "torch.save(torch.load(FILE, weights_only=False), 'weights.pth')."
)
_SCRIPT_WEIGHTS = "Save its weights alone: torch.save(torch.jit.load(FILE).state_dict(), 'weights.pth')."
_OTHER_KINDS = (
    (b"version https://git-lfs", "is a Git LFS pointer, a few lines instead of the file", _LFS_REMEDY),
    (b"\x1f\x8b", "is compressed by gzip", "Unpack it first."),
    (b"\xfd7zXZ\x00", "is compressed by xz", "Unpack it first."),
    (b"BZh", "is compressed by bzip2", "Unpack it first."),
    (b"\x28\xb5\x2f\xfd", "is compressed by zstd", "Unpack it first."),
    (b"\x89HDF", "is an HDF5 file, as Keras writes them", "Give a file that torch.save or safetensors wrote."),
)
"""First bytes of other files that users often give, each with the kind of the file and the remedy."""
_PAGES = (b"<!doctype html", b"<html", b"<?xml")


def safetensors_metadata(path: Path) -> dict[str, str]:
    """Return the metadata of a safetensors file; empty for any other file, and for a damaged one."""
    try:
        with safetensors.safe_open(path, "pt") as file:
            return dict(file.metadata() or {})
    except safetensors.SafetensorError:  # `load_weights` reports the problem
        return {}


def load_weights(source: Path | bytes, *, field: str = "checkpoint", address: str | None = None) -> Any:  # noqa: ANN401 - whatever was saved
    """Read a file that `torch.save` or safetensors wrote, without running any code that may be in it.

    Args:
        source: The file, or its content.
        field: Name of the setting that gives the file, for messages.
        address: Address of the file, for messages; by default the path.

    Raises:
        InputError: The file is of another kind, is damaged, or pickles more than tensors and plain values.
    """
    with io.BytesIO(source) if isinstance(source, bytes) else source.open("rb") as stream:
        head = stream.read(_HEAD_BYTES)
        cause = None
        try:
            if (refusal := _other_kind(stream, head)) is None:
                return _load(source, stream, head)
        except OSError:
            raise
        except Exception as error:  # a damaged file can raise any error in the reader: IndexError, struct.error …
            refusal, cause = _failure(error, stream, head), error
    raise InputError(field, address or source, *refusal) from cause


def _is_safetensors(head: bytes) -> bool:
    """Return whether a file begins like safetensors: with the length of its header, then the header in JSON."""
    return head[8:9] == b"{" and int.from_bytes(head[:8], "little") <= _SAFETENSORS_HEADER_BYTES


def _load(source: Path | bytes, stream: BinaryIO, head: bytes) -> Any:  # noqa: ANN401 - whatever was saved
    stream.seek(0)
    if _is_safetensors(head):  # a file is mapped; reading it would hold the weights twice
        return safetensors.torch.load(source) if isinstance(source, bytes) else safetensors.torch.load_file(source)
    # PyTorch gets a stream, since it would choose the reader of a path by its suffix. Its warning about protocols other
    # than 2 is ignored, because `_failure` names the protocol.
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Detected pickle protocol")
        return torch.load(stream, map_location="cpu", weights_only=True)


def _other_kind(stream: BinaryIO, head: bytes) -> tuple[str, str] | None:
    """Return the kind of a file that holds no weights that can be read, and the remedy; None for all other files."""
    if not head:
        return "is empty", "Copy or download it again."
    if _is_safetensors(head):  # the length of its header may begin like any of the others
        return None
    for begin, problem, remedy in _OTHER_KINDS:
        if head.startswith(begin):
            return problem, remedy
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    if text.lower().startswith(_PAGES):
        return "is a web page, perhaps an error or a login", "Download the file that the page leads to."
    if head[257:262] == b"ustar":
        return "is a tar archive", "Unpack it and give the file of weights in it."
    if head.startswith(b"\x80") and _LEGACY_MAGIC not in head:
        return "is a pickle that torch.save did not write", "Save the weights in it with torch.save."
    if _is_text(head):
        kind = "JSON" if text.startswith((b"{", b"[")) else "plain text"
        return f"is {kind}, perhaps an error message instead of the file", "Read it, and download the file again."
    return _other_archive(stream) if head.startswith(_ZIP) else None


def _is_text(head: bytes) -> bool:
    text = head.decode("utf-8-sig", errors="replace").rstrip("\ufffd")  # the head may end inside a character
    return "\ufffd" not in text and all(one.isprintable() or one.isspace() for one in text)


def _other_archive(stream: BinaryIO) -> tuple[str, str] | None:
    """Do the same as `_other_kind` for a zip archive, which may come from torch.save or from another program."""
    names = zipfile.ZipFile(stream).namelist()
    if any(name.endswith("/constants.pkl") for name in names):
        return "is a TorchScript archive, which holds a program", _SCRIPT_WEIGHTS
    if any(name.endswith("data.pkl") for name in names):
        return None
    inside = f"is a zip archive that torch.save did not write; it holds {', '.join(names[:3]) or 'nothing'}"
    return inside, "Unpack it and give the file of weights in it."


def _failure(error: Exception, stream: BinaryIO, head: bytes) -> tuple[str, str]:
    """Return what is wrong with a file that could not be read, and the remedy."""
    # PyTorch names the function or class that the pickle would have called. It has not called it.
    needed = re.search(r"GLOBAL ([\w.]+)", str(error))
    if needed is not None:
        return f"is a pickle that would run code ({needed.group(1)}); it was not loaded", _WEIGHTS_ALONE
    if "Unsupported operand" in str(error):
        if head.startswith(_ZIP):
            archive = zipfile.ZipFile(stream)
            head = archive.read(next(name for name in archive.namelist() if name.endswith("data.pkl")))
        # A pickle that names its protocol begins with this byte, and then the protocol.
        if head.startswith(b"\x80") and head[1] != _PROTOCOL:
            only = f"without running code, only protocol {_PROTOCOL} can be read"
            return f"is a pickle of protocol {head[1]}; {only}", _OTHER_PROTOCOL
    remedy = "Copy or download it again, or give a file that torch.save or safetensors wrote."
    return "is damaged or not a checkpoint", remedy


_MARK = "layer1.0.conv1.weight"
"""Torchvision's name of a tensor that every residual network has, whatever its stem."""

_WRAPPERS = frozenset({"module", "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"})
"""Parts of names that wrappers add: DistributedDataParallel, torch.compile, FSDP and its checkpoints.

If the whole network was wrapped, such a part stands at the beginning of every name. If only a part of the network was
wrapped, it stands within the names.
"""

EPSILON = 1e-5
"""Number that batch norms add to the variance, here and in torchvision."""

_USUAL_PLACES: tuple[tuple[str, ...], ...] = (("state_dict",), ("model",), ())
_NAMED = rf"((?:{'|'.join(RESNET_PARTS)})\..+)"
# Names of `nn.Sequential(*list(resnet.children())[:-1])`, which loses torchvision's names.
_NUMBERED = r"([014567]\..+)"
_VISSL_HEAD = r"heads\.((?:\d+\.)+(?:clf|projection_head)\..+)"
_NUMBERS = dict(zip("014567", RESNET_PARTS, strict=True))
"""Torchvision's names by the numbers that stand for them."""


@dataclass(frozen=True)
class Layout:
    """The names that one system gives to the parts of its checkpoints.

    Attributes:
        system: Name of the system, for messages.
        backbone: Pattern of the backbone's keys; the group is the name inside the backbone.
        projector: Pattern of the projector's keys; the group is the name inside the projector. By default it fits no
            key, for systems that save no projector.
        places: Possible places of the state dict in the file, as keys from the outside in.
        frozen_epsilon: Number that the system's frozen batch norms add to the variance. Frozen batch norms keep no
            count of batches.
    """

    system: str
    backbone: str
    projector: str = r"(?!)"
    places: tuple[tuple[str, ...], ...] = _USUAL_PLACES
    frozen_epsilon: float = EPSILON


LAYOUTS = (
    # This project's state.pt, given without its folder.
    Layout("objectaware", rf"backbone\.{_NAMED}", r"projector\.(.+)", places=(("method",),)),
    # facebookresearch/moco @4397a04: fc (v1), fc.0 and fc.2 (v2).
    Layout("MoCo", rf"encoder_q\.{_NAMED}", r"encoder_q\.fc\.(.+)"),
    # facebookresearch/vissl @04788de: heads are numbered. The parts of a head that is a chain are numbered, too.
    # `mlp` has clf, `swav_head` has projection_head.
    Layout("VISSL", rf"trunk\._feature_blocks\.{_NAMED}", _VISSL_HEAD, (("classy_state_dict", "base_model", "model"),)),
    # open-mmlab/mmselfsup 0.x @0c88e8d: encoder_q (MoCo) and online_net (BYOL) are sequences of backbone and neck.
    Layout("mmselfsup 0.x", rf"(?:encoder_q|online_net)\.0\.{_NAMED}", r"(?:encoder_q|online_net)\.1\.(.+)"),
    # open-mmlab/mmselfsup 1.x @3d44156.
    Layout("mmselfsup", rf"backbone\.{_NAMED}", r"neck\.(.+)"),
    # lightly-ai/lightly 1.x @0e4125d: its examples have a sequence of the backbone's children …
    Layout("lightly", rf"backbone\.{_NUMBERED}", r"projection_head\.layers\.(.+)"),
    # … and its benchmarks have the backbone under its own names.
    Layout("lightly", rf"backbone\.{_NAMED}", r"projection_head\.layers\.(.+)"),
    # vturrisi/solo-learn @08e027a.
    Layout("solo-learn", rf"backbone\.{_NAMED}", r"projector\.(.+)"),
    # solo-learn before it renamed the encoder, and alinlab/object-aware-contrastive @afa4b75, the paper's own code.
    Layout("older solo-learn or the paper's code", rf"encoder\.{_NAMED}", r"projector\.(.+)"),
    # pytorch/vision 0.29, models/detection. Its published Faster and Mask R-CNN were trained without an epsilon
    # (`overwrite_eps`, pytorch/vision #2933).
    Layout("torchvision's detection", rf"backbone\.body\.{_NAMED}", frozen_epsilon=0.0),
    # pytorch/vision 0.29 and huggingface/pytorch-image-models 1.0. Many projects publish their backbones in this form.
    Layout("torchvision or timm", _NAMED),
)
"""Layouts in the order in which they are tried. A rule that also finds a projector wins over rules that find only a
backbone."""


@dataclass(frozen=True)
class ForeignWeights:
    """The content of another system's checkpoint.

    Attributes:
        system: Name of the system whose layout the checkpoint has.
        backbone: Tensors under torchvision's names.
        projector: Tensors by their name inside the projector; empty if there is no projector.
        left_over: Number of tensors that are not used, by the first part of their names.
    """

    system: str
    backbone: Mapping[str, Tensor]
    projector: Mapping[str, Tensor]
    left_over: Mapping[str, int]


def find_weights(content: object, address: str) -> ForeignWeights:
    """Find backbone and projector in a loaded checkpoint of a system in `LAYOUTS`.

    Args:
        content: Content of the file.
        address: Address of the file, for messages.

    Raises:
        InputError: The layout is not known.
    """
    found = [weights for layout in LAYOUTS if (weights := _apply(layout, content)) is not None]
    if not found:
        systems = ", ".join(dict.fromkeys(layout.system for layout in LAYOUTS))
        problem = f"has a layout that is not known: it holds {_first_names(content)}"
        remedy = f"Give a residual network as saved by {systems}; or save its state dict under torchvision's names."
        raise InputError("checkpoint", address, problem, remedy)
    return next((weights for weights in found if weights.projector), found[0])


def _apply(layout: Layout, content: object) -> ForeignWeights | None:
    """Sort the tensors of a checkpoint by a system's names; return None if it has no backbone under these names."""
    for place in layout.places:
        backbone: dict[str, Tensor] = {}
        projector: dict[str, Tensor] = {}
        left_over: Counter[str] = Counter()
        for key, value in _flat(_inner(content, place)).items():
            if found := re.fullmatch(layout.backbone, key):
                part, _, rest = found[1].partition(".")
                backbone[f"{_NUMBERS.get(part, part)}.{rest}"] = value
            elif found := re.fullmatch(layout.projector, key):
                projector[found[1]] = value
            else:
                left_over[key.partition(".")[0]] += 1
        if _MARK in backbone:
            return ForeignWeights(layout.system, _thawed(backbone, layout.frozen_epsilon), projector, left_over)
    return None


def _thawed(backbone: dict[str, Tensor], epsilon: float) -> dict[str, Tensor]:
    """Adjust the variances of frozen batch norms, so that they give the same results with this project's epsilon."""
    if epsilon == EPSILON or any(name.endswith("num_batches_tracked") for name in backbone):
        return backbone
    change = epsilon - EPSILON
    return {name: value + change if name.endswith("running_var") else value for name, value in backbone.items()}


def _inner(content: object, place: tuple[str, ...]) -> Mapping[object, object]:
    for key in place:
        content = content.get(key) if isinstance(content, Mapping) else None
    return content if isinstance(content, Mapping) else {}


def _flat(content: Mapping[object, object]) -> dict[str, Tensor]:
    """Return the tensors in nested mappings by dotted names, without the parts that wrappers add to names."""
    tensors: dict[str, Tensor] = {}
    for key, value in content.items():
        if isinstance(value, Tensor):
            tensors[without_wrappers(str(key))] = value
        elif isinstance(value, Mapping):
            tensors |= {without_wrappers(f"{key}.{inner}"): tensor for inner, tensor in _flat(value).items()}
    return tensors


def without_wrappers(name: str) -> str:
    """Remove the parts that wrappers of the network, or of a part of it, have added to a tensor's name."""
    return ".".join(part for part in name.split(".") if part not in _WRAPPERS)


def _first_names(content: object) -> str:
    if not isinstance(content, Mapping):
        return f"a {type(content).__name__}"
    names = [*_flat(content)] or [str(key) for key in content]
    return f"{', '.join(names[:4])} and {len(names) - 4} more" if len(names) > 4 else ", ".join(names) or "nothing"


def head_from_weights(weights: Mapping[str, Tensor], in_features: int, address: str) -> nn.Sequential:
    """Build the projector to which weights belong: linear layers and batch norms in the order of their numbers.

    ReLU precedes every linear layer but the first, as in the heads of all systems in `LAYOUTS`.

    Args:
        weights: Weights by name. A layer's name contains its number (`0.weight`, `fc1.bias`), unless there is only
            one layer.
        in_features: Width of the pooled feature.
        address: Address of the weights, for messages.

    Returns:
        Module from (N, in_features) to (N, D).

    Raises:
        InputError: The weights are not such a head, or the head is for features of another width.
    """
    by_layer: dict[str, dict[str, Tensor]] = {}
    for key, value in weights.items():
        name, _, part = key.rpartition(".")
        by_layer.setdefault(name, {})[part] = value
    layers: list[nn.Module] = []
    width = in_features
    for name in sorted(by_layer, key=lambda name: (_numbers(name), "running_mean" in by_layer[name])):
        layer = _layer(by_layer[name], width)
        if layer is None:
            parts = ", ".join(f"{part} {list(value.shape)}" for part, value in by_layer[name].items())
            problem = f"has a projector that is not linear layers and batch norms from {in_features} features on: "
            remedy = "Give a checkpoint with such a projector, or one that holds only the backbone."
            raise InputError("checkpoint", address, f"{problem}{name or 'it'} holds {parts}", remedy)
        if isinstance(layer, nn.Linear):
            width = layer.out_features
            layers += [nn.ReLU(inplace=True)] if layers else []
        layers.append(layer)
    return nn.Sequential(*layers)


def _numbers(name: str) -> list[int]:
    return [int(digits) for digits in re.findall(r"\d+", name)]


def _layer(parts: Mapping[str, Tensor], width: int) -> nn.Module | None:
    """Build the layer on `width` features to which tensors belong; None if they belong to no known kind of layer."""
    layer: nn.Module
    if "running_mean" in parts:
        layer = nn.BatchNorm1d(width, affine="weight" in parts)
        parts = {"num_batches_tracked": torch.tensor(0), **parts}
    elif "weight" in parts and parts["weight"].ndim == 2:
        layer = nn.Linear(width, len(parts["weight"]), bias="bias" in parts)
    else:
        return None
    shapes = {key: value.shape for key, value in layer.state_dict().items()}
    if shapes != {key: value.shape for key, value in parts.items()}:
        return None
    layer.load_state_dict(parts)
    return layer
