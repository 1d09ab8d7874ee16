"""Checkpoints of other systems: where each system keeps the state dict, the backbone and the projector.

Only the keys of a file decide which layout it has. A comment at each rule names the repository and version that it
describes. A system that names its parts in several ways has one rule for each way.
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
_NUMBERS = dict(zip("014567", RESNET_PARTS, strict=True))


@dataclass(frozen=True)
class Layout:
    """The names that one system gives to the parts of its checkpoints.

    Attributes:
        system: Name of the system, for messages.
        backbone: Pattern of the backbone's keys; the group is the name inside the backbone.
        projector: Pattern of the projector's keys; the group is the name inside the projector. None if the system
            saves no projector.
        places: Possible places of the state dict in the file, as keys from the outside in.
        frozen_epsilon: Number that the system's frozen batch norms add to the variance. Frozen batch norms keep no
            count of batches.
    """

    system: str
    backbone: str
    projector: str | None
    places: tuple[tuple[str, ...], ...] = _USUAL_PLACES
    frozen_epsilon: float = EPSILON

    def backbone_name(self, key: str) -> str | None:
        """Return torchvision's name of a backbone's tensor; None for any other tensor."""
        found = re.fullmatch(self.backbone, key)
        if found is None:
            return None
        part, _, rest = found.group(1).partition(".")
        return f"{_NUMBERS.get(part, part)}.{rest}"

    def projector_name(self, key: str) -> str | None:
        """Return the name of a projector's tensor inside the projector; None for any other tensor."""
        found = None if self.projector is None else re.fullmatch(self.projector, key)
        return None if found is None else found.group(1)


LAYOUTS = (
    # This project's state.pt, given without its folder.
    Layout("objectaware", rf"backbone\.{_NAMED}", r"projector\.(.+)", places=(("method",),)),
    # facebookresearch/moco @4397a04: fc (v1), fc.0 and fc.2 (v2).
    Layout("MoCo", rf"encoder_q\.{_NAMED}", r"encoder_q\.fc\.(.+)"),
    # facebookresearch/vissl @04788de: heads are numbered. The parts of a head that is a chain are numbered, too.
    # `mlp` has clf, `swav_head` has projection_head.
    Layout(
        "VISSL",
        rf"trunk\._feature_blocks\.{_NAMED}",
        r"heads\.((?:\d+\.)+(?:clf|projection_head)\..+)",
        places=(("classy_state_dict", "base_model", "model"),),
    ),
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
    Layout("torchvision's detection", rf"backbone\.body\.{_NAMED}", None, frozen_epsilon=0.0),
    # pytorch/vision 0.29 and huggingface/pytorch-image-models 1.0. Many projects publish their backbones in this form.
    Layout("torchvision or timm", _NAMED, None),
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
