"""Checkpoints with the keys that other systems' own code writes.

Each class repeats the names that a system gives to what it registers, as read in its repository at the commit named;
what a file holds beside the backbone is written out, so that a wrong reading shows.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from objectaware.methods.backbones import build_backbone
from objectaware.methods.checkpoint import load_encoder

WIDTH, HIDDEN, OUT = 384, 24, 16


@dataclass(frozen=True)
class Saved:
    """A file, and what is known of it.

    Attributes:
        content: What the system saves.
        state: The state dict in it, nested mappings joined by dots.
        head: The projector in it.
        own_keys: All keys but those of residual networks.
        networks: Prefixes of the residual networks in it.
        left_over: What is not used, as the notice says; None where that is nothing.
    """

    content: Any
    state: Mapping[str, Tensor]
    head: nn.Module
    own_keys: set[str]
    networks: tuple[str, ...]
    left_over: str | None


def _fresh_backbone(seed: int = 1) -> nn.Module:
    """With batch statistics and weights that no new network has."""
    torch.manual_seed(seed)
    network = build_backbone("resnet10_narrow").train()
    with torch.no_grad():
        network(torch.randn(8, 3, 32, 32))
    return network.eval()


def _trained(head: nn.Module) -> nn.Module:
    with torch.no_grad():
        head.train()(torch.randn(32, WIDTH) + 1)
    return head.eval()


def _mlp(*, norm: bool = False) -> nn.Sequential:
    """Linear, ReLU, linear; with a batch norm after the first where asked."""
    layers = [nn.Linear(WIDTH, HIDDEN), *([nn.BatchNorm1d(HIDDEN)] if norm else []), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(HIDDEN, OUT))


def _linear_keys(*names: str) -> set[str]:
    return {f"{name}.{part}" for name in names for part in ("weight", "bias")}


def _norm_keys(*names: str) -> set[str]:
    parts = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
    return {f"{name}.{part}" for name in names for part in parts}


def _module(**parts: nn.Module | Tensor) -> nn.Module:
    """A module that has registered these under these names: modules, and tensors as buffers."""
    module = nn.Module()
    for name, part in parts.items():
        if isinstance(part, nn.Module):
            module.add_module(name, part)
        else:
            module.register_buffer(name, part)
    return module


def _queue() -> dict[str, Tensor]:
    return {"queue": torch.randn(OUT, 8), "queue_ptr": torch.zeros(1, dtype=torch.long)}


def _moco_v2(backbone: nn.Module) -> Saved:
    """facebookresearch/moco @4397a04, moco/builder.py with `--mlp`; main_moco.py saves the DistributedDataParallel."""
    head = _mlp()
    encoders = {}
    for name, network in (("encoder_q", copy.deepcopy(backbone)), ("encoder_k", _fresh_backbone(2))):
        network.fc = copy.deepcopy(head)
        encoders[name] = network
    state = _module(module=_module(**encoders, **_queue())).state_dict()
    number = len(backbone.state_dict()) + 4
    return Saved(
        {"epoch": 200, "arch": "resnet50", "state_dict": state, "optimizer": {"state": {}, "param_groups": []}},
        state,
        head,
        _linear_keys(*(f"module.encoder_{part}.fc.{layer}" for part in "qk" for layer in (0, 2)))
        | {"module.queue", "module.queue_ptr"},
        ("module.encoder_q.", "module.encoder_k."),
        f"encoder_k ({number}), queue (1), queue_ptr (1)",
    )


def _vissl(backbone: nn.Module, heads: nn.ModuleList, head: nn.Module, keys: set[str], left_over: str | None) -> Saved:
    """facebookresearch/vissl @04788de: base_ssl_model.py saves trunk and heads apart, trunks/resnext.py its blocks."""
    trunk = _module(_feature_blocks=nn.ModuleDict(dict(backbone.named_children()))).state_dict()
    model = {"trunk": trunk, "heads": heads.state_dict()}
    state = {f"{part}.{key}": value for part, values in model.items() for key, value in values.items()}
    classy = {"train_phase_idx": 199, "base_model": {"meta": {"name": "multi_input_output_model"}, "model": model}}
    content = {"phase_idx": 199, "iteration": 1, "classy_state_dict": classy}
    return Saved(content, state, head, keys, ("trunk._feature_blocks.",), left_over)


def _vissl_moco(backbone: nn.Module) -> Saved:
    """Two `mlp` heads in a row (heads/mlp.py), the first with ReLU."""
    head = _mlp()
    heads = nn.ModuleList([_module(clf=nn.Sequential(head[0], head[1])), _module(clf=nn.Sequential(head[2]))])
    return _vissl(backbone, heads, head, _linear_keys("heads.0.clf.0", "heads.1.clf.0"), None)


def _vissl_chain(backbone: nn.Module) -> Saved:
    """One head that is a chain of two modules, "Case2" of `_get_heads`: numbered twice."""
    head = _trained(_mlp(norm=True))
    assert isinstance(head, nn.Sequential)
    chain = nn.Sequential(_module(clf=head[:3]), _module(clf=nn.Sequential(head[3])))
    keys = _linear_keys("heads.0.0.clf.0", "heads.0.1.clf.0") | _norm_keys("heads.0.0.clf.1")
    return _vissl(backbone, nn.ModuleList([chain]), head, keys, None)


def _vissl_swav(backbone: nn.Module) -> Saved:
    """heads/swav_prototypes_head.py."""
    head = _trained(_mlp(norm=True))
    heads = nn.ModuleList([_module(projection_head=head, prototypes0=nn.Linear(OUT, 5, bias=False))])
    keys = _linear_keys("heads.0.projection_head.0", "heads.0.projection_head.3")
    keys |= _norm_keys("heads.0.projection_head.1") | {"heads.0.prototypes0.weight"}
    return _vissl(backbone, heads, head, keys, "heads (1)")


def _solo_learn_moco(backbone: nn.Module) -> Saved:
    """vturrisi/solo-learn @08e027a, solo/methods/mocov2plus.py; Lightning's checkpoint around it."""
    head = _mlp()
    model = _module(
        backbone=backbone,
        classifier=nn.Linear(WIDTH, 10),
        momentum_backbone=_fresh_backbone(2),
        projector=head,
        momentum_projector=copy.deepcopy(head),
        **_queue(),
    )
    projectors = (f"{name}.{layer}" for name in ("projector", "momentum_projector") for layer in (0, 2))
    return Saved(
        {"epoch": 3, "global_step": 9, "pytorch-lightning_version": "1.6.4", "state_dict": model.state_dict()},
        model.state_dict(),
        head,
        _linear_keys("classifier", *projectors) | {"queue", "queue_ptr"},
        ("backbone.", "momentum_backbone."),
        f"classifier (2), momentum_backbone ({len(backbone.state_dict())}), momentum_projector (4), queue (1), "
        "queue_ptr (1)",
    )


def _solo_learn_byol(backbone: nn.Module) -> Saved:
    """vturrisi/solo-learn @12f8477, solo/methods/byol.py."""
    head = _trained(_mlp(norm=True))
    predictor = nn.Sequential(nn.Linear(OUT, HIDDEN), nn.BatchNorm1d(HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, OUT))
    model = _module(backbone=backbone, projector=head, momentum_projector=copy.deepcopy(head), predictor=predictor)
    names = ("projector", "momentum_projector", "predictor")
    keys = _linear_keys(*(f"{name}.{layer}" for name in names for layer in (0, 3)))
    keys |= _norm_keys(*(f"{name}.1" for name in names))
    left_over = "momentum_projector (9), predictor (9)"
    return Saved({"state_dict": model.state_dict()}, model.state_dict(), head, keys, ("backbone.",), left_over)


def _lightly_example(backbone: nn.Module) -> Saved:
    """lightly-ai/lightly @0e4125d, examples/pytorch/moco.py: the state dict alone, the backbone's children in a row."""
    head = _mlp()
    row = nn.Sequential(*list(backbone.children())[:-1])
    model = _module(
        backbone=row,
        projection_head=_module(layers=head),
        backbone_momentum=copy.deepcopy(row),
        projection_head_momentum=_module(layers=copy.deepcopy(head)),
    )
    names = (f"{name}.layers.{layer}" for name in ("projection_head", "projection_head_momentum") for layer in (0, 2))
    left_over = f"backbone_momentum ({len(row.state_dict())}), projection_head_momentum (4)"
    return Saved(
        model.state_dict(),
        model.state_dict(),
        head,
        _linear_keys(*names),
        ("backbone.", "backbone_momentum."),
        left_over,
    )


def _lightly_benchmark(backbone: nn.Module) -> Saved:
    """lightly-ai/lightly @00283d7, benchmarks/imagenet/resnet50/mocov2.py: `backbone` is the average of queries'."""
    head = _mlp()
    model = _module(
        backbone=backbone,
        projection_head=_module(layers=head),
        query_backbone=_fresh_backbone(2),
        query_projection_head=_module(layers=_mlp()),
        online_classifier=_module(linear=nn.Linear(WIDTH, 10)),
    )
    names = (f"{name}.layers.{layer}" for name in ("projection_head", "query_projection_head") for layer in (0, 2))
    return Saved(
        {"state_dict": model.state_dict(), "hyper_parameters": {"num_classes": 10}, "optimizer_states": []},
        model.state_dict(),
        head,
        _linear_keys("online_classifier.linear", *names),
        ("backbone.", "query_backbone."),
        f"online_classifier (2), query_backbone ({len(backbone.state_dict())}), query_projection_head (4)",
    )


def _neck(head: nn.Sequential) -> nn.Module:
    """`NonLinearNeck` of mmselfsup, which registers by name: fc0, bn0, fc1."""
    return _module(fc0=head[0], bn0=head[1], fc1=head[3])


def _mmselfsup_0_moco(backbone: nn.Module) -> Saved:
    """open-mmlab/mmselfsup @0c88e8d: encoder_q is backbone and `MoCoV2Neck` in a row, and registered again as both."""
    head = _mlp()
    query = nn.Sequential(backbone, _module(mlp=head))
    model = _module(encoder_q=query, encoder_k=copy.deepcopy(query), backbone=query[0], neck=query[1], **_queue())
    number = len(backbone.state_dict())
    prefixes = ("encoder_q.1", "encoder_k.1", "neck")
    return Saved(
        {"meta": {"epoch": 200}, "state_dict": model.state_dict()},
        model.state_dict(),
        head,
        _linear_keys(*(f"{prefix}.mlp.{layer}" for prefix in prefixes for layer in (0, 2))) | {"queue", "queue_ptr"},
        ("encoder_q.0.", "encoder_k.0.", "backbone."),
        f"backbone ({number}), encoder_k ({number + 4}), neck (4), queue (1), queue_ptr (1)",
    )


def _mmselfsup_moco(backbone: nn.Module) -> Saved:
    """open-mmlab/mmselfsup @3c4825a: encoder_k is mmengine's `ExponentialMovingAverage` of backbone and neck."""
    head = _mlp()
    neck = _module(mlp=head)
    average = _module(module=copy.deepcopy(nn.Sequential(backbone, neck)), steps=torch.zeros((), dtype=torch.long))
    model = _module(backbone=backbone, neck=neck, encoder_k=average, **_queue())
    keys = _linear_keys(*(f"{prefix}.mlp.{layer}" for prefix in ("neck", "encoder_k.module.1") for layer in (0, 2)))
    return Saved(
        {"meta": {"epoch": 200}, "state_dict": model.state_dict()},
        model.state_dict(),
        head,
        keys | {"encoder_k.steps", "queue", "queue_ptr"},
        ("backbone.", "encoder_k.module.0."),
        f"encoder_k ({len(backbone.state_dict()) + 5}), queue (1), queue_ptr (1)",
    )


def _mmselfsup_byol(backbone: nn.Module) -> Saved:
    """open-mmlab/mmselfsup @1e16016: `NonLinearNeck` with bias, and a predictor of the same kind in the head."""
    head = _trained(_mlp(norm=True))
    assert isinstance(head, nn.Sequential)
    predictor = _module(fc0=nn.Linear(OUT, HIDDEN), bn0=nn.BatchNorm1d(HIDDEN), fc1=nn.Linear(HIDDEN, OUT))
    model = _module(backbone=backbone, neck=_neck(head), head=_module(predictor=predictor))
    keys = _linear_keys(*(f"{name}.fc{layer}" for name in ("neck", "head.predictor") for layer in (0, 1)))
    keys |= _norm_keys("neck.bn0", "head.predictor.bn0")
    return Saved({"state_dict": model.state_dict()}, model.state_dict(), head, keys, ("backbone.",), "head (9)")


SYSTEMS: dict[str, tuple[str, Callable[[nn.Module], Saved]]] = {
    "MoCo v2": ("MoCo", _moco_v2),
    "VISSL MoCo": ("VISSL", _vissl_moco),
    "VISSL chain": ("VISSL", _vissl_chain),
    "VISSL SwAV": ("VISSL", _vissl_swav),
    "solo-learn MoCo": ("solo-learn", _solo_learn_moco),
    "solo-learn BYOL": ("solo-learn", _solo_learn_byol),
    "lightly example": ("lightly", _lightly_example),
    "lightly benchmark": ("lightly", _lightly_benchmark),
    "mmselfsup 0.x MoCo": ("mmselfsup 0.x", _mmselfsup_0_moco),
    "mmselfsup 1.x MoCo": ("mmselfsup", _mmselfsup_moco),
    "mmselfsup 1.x BYOL": ("mmselfsup", _mmselfsup_byol),
}


@pytest.mark.parametrize("name", SYSTEMS)
def test_what_a_system_saves_is_read_whole(name: str, tmp_path: Path) -> None:
    system, save = SYSTEMS[name]
    backbone = _fresh_backbone()
    saved = save(backbone)
    assert {key for key in saved.state if not _is_of_network(key, saved)} == saved.own_keys
    path = tmp_path / "checkpoint.pth.tar"
    torch.save(saved.content, path)
    encoder = load_encoder(path)
    _assert_computes(encoder.backbone, encoder.projector, backbone, saved.head)
    said = f"{path} was read as a resnet10_narrow of {system}."
    left_over = [] if saved.left_over is None else [f"Tensors of it that are not used: {saved.left_over}."]
    assert list(encoder.notices) == [said, *left_over]


def _is_of_network(key: str, saved: Saved) -> bool:
    parts = ("conv1.", "bn1.", "layer", *(f"{number}." for number in (0, 1, 4, 5, 6, 7)))
    return any(key.removeprefix(prefix).startswith(parts) for prefix in saved.networks if key.startswith(prefix))


def _assert_computes(found: nn.Module, projector: nn.Module, backbone: nn.Module, head: nn.Module) -> None:
    images = torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        features = backbone(images)
        torch.testing.assert_close(found(images), features)
        torch.testing.assert_close(projector(features), head(features))
