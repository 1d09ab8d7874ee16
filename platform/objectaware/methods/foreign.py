"""Checkpoints of other systems: where each keeps the state dict, the backbone and the projector.

Layouts are told by their keys alone. Each rule names the repository and version whose layout it is; forms of one
system that differ in naming have a rule each.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from objectaware.errors import InputError
from objectaware.methods.backbones import RESNET_PARTS

_MARK = "layer1.0.conv1.weight"
"""A tensor that every residual network has, whatever its stem, under torchvision's name."""

_WRAPPERS = frozenset({"module", "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"})
"""Parts of names that wrappers add where they wrap: DistributedDataParallel, torch.compile, FSDP and its checkpoints.

They stand before every name where the whole network was wrapped, and within the names where a part of it was.
"""

EPSILON = 1e-5
"""What our batch norms, as torchvision's, add to the variance."""

_USUAL_PLACES: tuple[tuple[str, ...], ...] = (("state_dict",), ("model",), ())
_NAMED = rf"((?:{'|'.join(RESNET_PARTS)})\..+)"
# Of `nn.Sequential(*list(resnet.children())[:-1])`, which loses torchvision's names.
_NUMBERED = r"([014567]\..+)"
_NUMBERS = dict(zip("014567", RESNET_PARTS, strict=True))


@dataclass(frozen=True)
class Layout:
    """How one system names what it saves.

    Attributes:
        system: Its name, for messages.
        backbone: Matches the backbone's keys; the group is the name inside the backbone.
        projector: Matches the projector's keys; the group is the name inside the projector. None where the system
            saves none.
        places: Where the state dict may lie in the file: keys from the outside in.
        frozen_epsilon: What the system's frozen batch norms, which keep no count of batches, add to the variance.
    """

    system: str
    backbone: str
    projector: str | None
    places: tuple[tuple[str, ...], ...] = _USUAL_PLACES
    frozen_epsilon: float = EPSILON

    def backbone_name(self, key: str) -> str | None:
        """Torchvision's name of a backbone's tensor; None for any other."""
        found = re.fullmatch(self.backbone, key)
        if found is None:
            return None
        part, _, rest = found.group(1).partition(".")
        return f"{_NUMBERS.get(part, part)}.{rest}"

    def projector_name(self, key: str) -> str | None:
        """Name of a projector's tensor inside the projector; None for any other."""
        found = None if self.projector is None else re.fullmatch(self.projector, key)
        return None if found is None else found.group(1)


LAYOUTS = (
    # This project's state.pt, given without its folder.
    Layout("objectaware", rf"backbone\.{_NAMED}", r"projector\.(.+)", places=(("method",),)),
    # facebookresearch/moco @4397a04: fc (v1), fc.0 and fc.2 (v2).
    Layout("MoCo", rf"encoder_q\.{_NAMED}", r"encoder_q\.fc\.(.+)"),
    # facebookresearch/vissl @04788de: heads are numbered, and their parts again where a head is a chain of several;
    # `mlp` has clf, `swav_head` projection_head.
    Layout(
        "VISSL",
        rf"trunk\._feature_blocks\.{_NAMED}",
        r"heads\.((?:\d+\.)+(?:clf|projection_head)\..+)",
        places=(("classy_state_dict", "base_model", "model"),),
    ),
    # open-mmlab/mmselfsup 0.x @0c88e8d: encoder_q (MoCo) and online_net (BYOL) hold backbone and neck in a row.
    Layout("mmselfsup 0.x", rf"(?:encoder_q|online_net)\.0\.{_NAMED}", r"(?:encoder_q|online_net)\.1\.(.+)"),
    # open-mmlab/mmselfsup 1.x @3d44156.
    Layout("mmselfsup", rf"backbone\.{_NAMED}", r"neck\.(.+)"),
    # lightly-ai/lightly 1.x @0e4125d: in the examples the backbone's children in a row …
    Layout("lightly", rf"backbone\.{_NUMBERED}", r"projection_head\.layers\.(.+)"),
    # … in its benchmarks the backbone under its own names.
    Layout("lightly", rf"backbone\.{_NAMED}", r"projection_head\.layers\.(.+)"),
    # vturrisi/solo-learn @08e027a.
    Layout("solo-learn", rf"backbone\.{_NAMED}", r"projector\.(.+)"),
    # solo-learn before it renamed the encoder, and alinlab/object-aware-contrastive @afa4b75, the paper's own code.
    Layout("older solo-learn or the paper's code", rf"encoder\.{_NAMED}", r"projector\.(.+)"),
    # pytorch/vision 0.29, models/detection. Its published Faster and Mask R-CNN were trained without an epsilon
    # (`overwrite_eps`, pytorch/vision #2933).
    Layout("torchvision's detection", rf"backbone\.body\.{_NAMED}", None, frozen_epsilon=0.0),
    # pytorch/vision 0.29 and huggingface/pytorch-image-models 1.0; what many publish of their backbone.
    Layout("torchvision or timm", _NAMED, None),
)
"""In this order. A rule that finds a projector too is taken before one that finds a backbone alone."""


@dataclass(frozen=True)
class ForeignWeights:
    """What a checkpoint of another system holds.

    Attributes:
        system: Whose layout it has.
        backbone: Tensors under torchvision's names.
        projector: Tensors by their name inside the projector; empty where there is none.
        left_over: How many tensors are not used, by the outermost part of their names.
    """

    system: str
    backbone: Mapping[str, Tensor]
    projector: Mapping[str, Tensor]
    left_over: Mapping[str, int]


def find_weights(content: object, address: str) -> ForeignWeights:
    """Finds backbone and projector in a loaded checkpoint of a system that `LAYOUTS` knows.

    Args:
        content: What the file held.
        address: Of the file, for messages.

    Raises:
        InputError: The layout is not known.
    """
    found = [weights for layout in LAYOUTS if (weights := _apply(layout, content)) is not None]
    if not found:
        systems = ", ".join(dict.fromkeys(layout.system for layout in LAYOUTS))
        raise InputError(
            "checkpoint",
            address,
            f"has a layout that is not known: it holds {_first_names(content)}",
            f"Give a residual network as saved by {systems}; or save its state dict under torchvision's names.",
        )
    return next((weights for weights in found if weights.projector), found[0])


def _apply(layout: Layout, content: object) -> ForeignWeights | None:
    for place in layout.places:
        backbone: dict[str, Tensor] = {}
        projector: dict[str, Tensor] = {}
        left_over: Counter[str] = Counter()
        for key, value in _flat(_inner(content, place)).items():
            if (name := layout.backbone_name(key)) is not None:
                backbone[name] = value
            elif (name := layout.projector_name(key)) is not None:
                projector[name] = value
            else:
                left_over[key.partition(".")[0]] += 1
        if _MARK in backbone:
            return ForeignWeights(layout.system, _thawed(backbone, layout.frozen_epsilon), projector, left_over)
    return None


def _thawed(backbone: dict[str, Tensor], epsilon: float) -> dict[str, Tensor]:
    """Weights whose frozen batch norms, made for another epsilon, give the same with ours."""
    if epsilon == EPSILON or any(name.endswith("num_batches_tracked") for name in backbone):
        return backbone
    change = epsilon - EPSILON
    return {name: value + change if name.endswith("running_var") else value for name, value in backbone.items()}


def _inner(content: object, place: tuple[str, ...]) -> Mapping[object, object]:
    for key in place:
        content = content.get(key) if isinstance(content, Mapping) else None
    return content if isinstance(content, Mapping) else {}


def _flat(content: Mapping[object, object]) -> dict[str, Tensor]:
    """Returns the tensors in nested mappings by dotted names, without wrappers' parts."""
    tensors: dict[str, Tensor] = {}
    for key, value in content.items():
        if isinstance(value, Tensor):
            tensors[without_wrappers(str(key))] = value
        elif isinstance(value, Mapping):
            tensors |= {without_wrappers(f"{key}.{inner}"): tensor for inner, tensor in _flat(value).items()}
    return tensors


def without_wrappers(name: str) -> str:
    """Drops what wrapping the network or a part of it has added to a tensor's name, wherever it stands."""
    return ".".join(part for part in name.split(".") if part not in _WRAPPERS)


def _first_names(content: object) -> str:
    if not isinstance(content, Mapping):
        return f"a {type(content).__name__}"
    names = [*_flat(content)] or [str(key) for key in content]
    return f"{', '.join(names[:4])} and {len(names) - 4} more" if len(names) > 4 else ", ".join(names) or "nothing"
