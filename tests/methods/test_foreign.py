"""Checkpoints in other systems' layouts, made from a small network by renaming."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torchvision
from safetensors.torch import save_file
from torch import Tensor, nn

from objectaware.errors import InputError
from objectaware.methods.backbones import build_backbone
from objectaware.methods.checkpoint import Encoder, checkpoint_file, load_encoder, local_checkpoint

WIDTH = 384
State = dict[str, Tensor]


@pytest.fixture(scope="module")
def backbone() -> nn.Module:
    """With batch statistics and weights that no fresh network has."""
    torch.manual_seed(1)
    network = build_backbone("resnet10_narrow").train()
    with torch.no_grad():
        network(torch.randn(8, 3, 32, 32))
    return network.eval()


def _plain_head() -> nn.Sequential:
    """MoCo v2's: linear, ReLU, linear."""
    return nn.Sequential(nn.Linear(WIDTH, 24), nn.ReLU(), nn.Linear(24, 16)).eval()


def _norm_head() -> nn.Sequential:
    """BYOL's: linear, batch norm, ReLU, linear."""
    head = nn.Sequential(nn.Linear(WIDTH, 24, bias=False), nn.BatchNorm1d(24), nn.ReLU(), nn.Linear(24, 16))
    with torch.no_grad():
        head(torch.randn(32, WIDTH))
    return head.eval()


def _siamese_head() -> nn.Sequential:
    """SimSiam's end: a batch norm without weights comes last."""
    head = nn.Sequential(nn.Linear(WIDTH, 16, bias=False), nn.BatchNorm1d(16, affine=False))
    with torch.no_grad():
        head(torch.randn(32, WIDTH) + 1)
    return head.eval()


def _named(prefix: str, module: nn.Module, names: dict[str, str] | None = None) -> State:
    """A module's tensors under a prefix, its outermost parts renamed."""
    renamed = {}
    for key, value in module.state_dict().items():
        part, _, rest = key.partition(".")
        renamed[f"{prefix}{(names or {}).get(part, part)}.{rest}"] = value
    return renamed


def _moco(backbone: nn.Module, head: nn.Module) -> Any:
    state = _named("module.encoder_q.", backbone) | _named("module.encoder_q.fc.", head)
    state |= _named("module.encoder_k.", build_backbone("resnet10_narrow"))
    state |= {"module.queue": torch.zeros(16, 8), "module.queue_ptr": torch.zeros(1)}
    return {"epoch": 200, "arch": "resnet50", "state_dict": state, "optimizer": {"param_groups": [{"lr": 0.03}]}}


def _vissl(backbone: nn.Module, head: nn.Module) -> Any:
    heads = _named("", head, {"0": "0.clf.0", "2": "1.clf.0"}) | {"0.prototypes0.weight": torch.zeros(3, 16)}
    model = {"trunk": _named("_feature_blocks.", backbone), "heads": heads}
    return {"iteration": 1, "classy_state_dict": {"base_model": {"model": model, "meta": {}}}}


def _mmselfsup_0(backbone: nn.Module, head: nn.Module) -> Any:
    # The same modules are registered a second time as backbone and neck.
    parts = [("encoder_q.0.", "encoder_q.1.mlp."), ("backbone.", "neck.mlp.")]
    state = {}
    for backbone_prefix, head_prefix in parts:
        state |= _named(backbone_prefix, backbone) | _named(head_prefix, head)
    return {"meta": {"epoch": 3}, "state_dict": state}


def _mmselfsup(backbone: nn.Module, head: nn.Module) -> Any:
    neck = _named("neck.", head, {"0": "fc0", "1": "bn0", "3": "fc1"})
    # A safetensors file or a sorted one has bn0 before fc0.
    return {"state_dict": _named("backbone.", backbone) | dict(sorted(neck.items()))}


def _lightly(backbone: nn.Module, head: nn.Module) -> Any:
    numbers = {"conv1": "0", "bn1": "1", "layer1": "4", "layer2": "5", "layer3": "6", "layer4": "7"}
    state = _named("backbone.", backbone, numbers) | _named("projection_head.layers.", head)
    return {"state_dict": state | _named("backbone_momentum.", backbone, numbers), "pytorch-lightning_version": "2"}


def _lightly_named(backbone: nn.Module, head: nn.Module) -> Any:
    return {"state_dict": _named("backbone.", backbone) | _named("projection_head.layers.", head)}


def _solo_learn(backbone: nn.Module, head: nn.Module) -> Any:
    state = _named("backbone.", backbone) | _named("projector.", head) | {"classifier.weight": torch.zeros(10, WIDTH)}
    return {"state_dict": state | _named("momentum_projector.", head)}


def _older_solo_learn(backbone: nn.Module, head: nn.Module) -> Any:
    return {"state_dict": _named("encoder.", backbone) | _named("projector.", head)}


def _objectaware(backbone: nn.Module, head: nn.Module) -> Any:
    return {"method": _named("backbone.", backbone) | _named("projector.", head)}


def _save(content: Any, folder: Path) -> Path:
    path = folder / "foreign.pth.tar"
    torch.save(content, path)
    return path


def _assert_computes(encoder: Encoder, backbone: nn.Module, head: nn.Module) -> None:
    images = torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        features = backbone(images)
        torch.testing.assert_close(encoder.backbone(images), features)
        torch.testing.assert_close(encoder.projector(encoder.backbone(images)), head(features))


@pytest.mark.parametrize(
    ("layout", "make_head", "system"),
    [
        (_moco, _plain_head, "MoCo"),
        (_vissl, _plain_head, "VISSL"),
        (_mmselfsup_0, _plain_head, "mmselfsup 0.x"),
        (_mmselfsup, _norm_head, "mmselfsup"),
        (_lightly, _plain_head, "lightly"),
        (_lightly_named, _siamese_head, "lightly"),
        (_solo_learn, _norm_head, "solo-learn"),
        (_older_solo_learn, _norm_head, "older solo-learn or the paper's code"),
        (_objectaware, _norm_head, "objectaware"),
    ],
)
def test_backbone_and_projector_of_each_system_compute_the_same(
    layout: Callable[[nn.Module, nn.Module], Any],
    make_head: Callable[[], nn.Module],
    system: str,
    backbone: nn.Module,
    tmp_path: Path,
) -> None:
    head = make_head()
    encoder = load_encoder(_save(layout(backbone, head), tmp_path))
    _assert_computes(encoder, backbone, head)
    assert encoder.config == {"backbone": "resnet10_narrow"}
    assert encoder.notices[0].endswith(f"was read as a resnet10_narrow of {system}.")
    assert not any("no projector" in notice for notice in encoder.notices)


def test_what_is_left_over_is_named_and_counted(backbone: nn.Module, tmp_path: Path) -> None:
    encoder = load_encoder(_save(_moco(backbone, _plain_head()), tmp_path))
    number = len(backbone.state_dict())
    assert encoder.notices[1] == f"Tensors of it that are not used: encoder_k ({number}), queue (1), queue_ptr (1)."


def test_the_linear_head_of_moco_v1(backbone: nn.Module, tmp_path: Path) -> None:
    head = nn.Linear(WIDTH, 16)
    state = _named("module.encoder_q.", backbone)
    state |= {"module.encoder_q.fc.weight": head.weight.data, "module.encoder_q.fc.bias": head.bias.data}
    _assert_computes(load_encoder(_save({"state_dict": state}, tmp_path)), backbone, head)


@pytest.mark.parametrize("place", ["state_dict", "model", None])
def test_a_backbone_alone_is_its_own_projector_and_says_so(
    place: str | None, backbone: nn.Module, tmp_path: Path
) -> None:
    state = {f"module.{key}": value for key, value in backbone.state_dict().items()}
    encoder = load_encoder(_save({place: state} if place else state, tmp_path))
    _assert_computes(encoder, backbone, nn.Identity())
    assert any("holds no projector" in notice for notice in encoder.notices)


@pytest.mark.parametrize("name", ["resnet18", "resnet50"])
def test_torchvisions_networks_are_told_apart_and_keep_no_classifier(name: str, tmp_path: Path) -> None:
    network = getattr(torchvision.models, name)()
    path = tmp_path / "model.safetensors"
    save_file(network.state_dict(), path)
    encoder = load_encoder(path)
    assert encoder.config == {"backbone": name}
    assert encoder.notices[-1] == "Tensors of it that are not used: fc (2)."
    assert torch.equal(encoder.backbone.get_parameter("layer4.1.conv2.weight"), network.layer4[1].conv2.weight)


def test_counts_of_batches_may_be_missing_as_in_old_files(backbone: nn.Module, tmp_path: Path) -> None:
    state = {key: value for key, value in backbone.state_dict().items() if "num_batches" not in key}
    _assert_computes(load_encoder(_save(state, tmp_path)), backbone, nn.Identity())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"layer1.0.conv1.weight": torch.zeros(48, 48, 1, 1)}, "layer1.0.conv1.weight is 48 × 48 × 1 × 1 instead of"),
        ({"layer3.1.conv1.weight": torch.zeros(1)}, "layer3.1.conv1.weight is not in it"),
        ({"bn1.running_var": None}, "bn1.running_var is missing"),
    ],
)
def test_another_architecture_is_refused_with_what_differs(
    change: dict[str, Tensor | None], message: str, backbone: nn.Module, tmp_path: Path
) -> None:
    state = {key: value for key, value in (backbone.state_dict() | change).items() if value is not None}
    with pytest.raises(InputError, match=message) as refusal:
        load_encoder(_save({"state_dict": state}, tmp_path))
    assert refusal.value.field == "checkpoint"
    assert "compared with resnet10_narrow" in refusal.value.problem


def test_a_deeper_network_is_refused_in_one_line(tmp_path: Path) -> None:
    with torch.device("meta"):
        state = torchvision.models.resnet34().state_dict()
    with pytest.raises(InputError, match=r"compared with resnet18: .* and \d+ more"):
        load_encoder(_save({key: torch.empty_like(value, device="cpu") for key, value in state.items()}, tmp_path))


@pytest.mark.parametrize(
    "head",
    [
        {"0.weight": torch.zeros(24, 100), "2.weight": torch.zeros(16, 24)},
        {"0.weight": torch.zeros(24, WIDTH), "2.weight": torch.zeros(16, 25)},
        {"0.weight": torch.zeros(24, WIDTH, 1, 1)},
        {"0.weight": torch.zeros(24, WIDTH), "1.running_mean": torch.zeros(24)},
    ],
)
def test_a_projector_that_does_not_fit_is_refused(head: State, backbone: nn.Module, tmp_path: Path) -> None:
    state = _named("backbone.", backbone) | {f"projector.{key}": value for key, value in head.items()}
    with pytest.raises(InputError, match="has a projector that is not"):
        load_encoder(_save({"state_dict": state}, tmp_path))


@pytest.mark.parametrize("content", [{"blocks.0.attn.qkv.weight": torch.zeros(2)}, {"epoch": 1}, {}, 7])
def test_an_unknown_layout_is_told_with_what_the_file_holds(content: Any, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"layout that is not known: it holds (blocks\.0\.attn|epoch|nothing|a int)"):
        load_encoder(_save(content, tmp_path))


@pytest.mark.parametrize(
    "wrapped",
    [
        lambda key: f"module._orig_mod.{key}",
        lambda key: key.replace("encoder_q.", "encoder_q.module."),
        lambda key: key.replace("encoder_q.", "encoder_q._orig_mod.").replace("layer1.0.", "layer1.0._orig_mod."),
        lambda key: key.replace("layer2.", "layer2._fsdp_wrapped_module._checkpoint_wrapped_module."),
    ],
)
def test_wrappers_are_dropped_wherever_they_stand(
    wrapped: Callable[[str], str], backbone: nn.Module, tmp_path: Path
) -> None:
    head = _plain_head()
    state = _named("encoder_q.", backbone) | _named("encoder_q.fc.", head)
    renamed = {wrapped(key): value for key, value in state.items()}
    for content in ({"state_dict": renamed}, {"module": renamed}):  # the latter is DeepSpeed's
        encoder = load_encoder(_save(content, tmp_path))
        assert encoder.notices[0].endswith("of MoCo.")
        _assert_computes(encoder, backbone, head)


@pytest.mark.parametrize("is_zip", [True, False])
@pytest.mark.chaos(fault="a hostile checkpoint of another system", holds="its code does not run; a message says why")
def test_a_pickle_that_would_run_code_is_explained_and_not_run(is_zip: bool, tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple[object, tuple[Path]]:
            return Path.touch, (tmp_path / "ran",)

    path = tmp_path / "evil.pth.tar"
    torch.save({"state_dict": Evil()}, path, _use_new_zipfile_serialization=is_zip)
    with pytest.raises(InputError, match=r"would run code \(.+\); it was not loaded. If you trust its source"):
        load_encoder(path)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("name", ["a.pth", "a.safetensors"])
def test_damaged_files_are_told(name: str, backbone: nn.Module, tmp_path: Path) -> None:
    path = tmp_path / name
    if name.endswith(".pth"):
        torch.save(backbone.state_dict(), path)
    else:
        save_file(backbone.state_dict(), path)
    content = path.read_bytes()
    for damaged in (b"\x80\x02", content[:1000], content[: len(content) // 2]):
        path.write_bytes(damaged)
        with pytest.raises(
            InputError, match=r"is damaged or not a checkpoint|is a pickle that torch\.save did not write"
        ):
            load_encoder(path)


def test_a_checkpoints_file_is_found_by_the_address_of_folder_or_file(tmp_path: Path) -> None:
    folder = tmp_path / "own"
    folder.mkdir()
    (folder / "state.pt").touch()
    (folder / "config.json").touch()
    file = tmp_path / "foreign.pth"
    file.touch()
    for address in (str(folder), f"file://{folder}", str(folder / "state.pt")):
        storage, name = checkpoint_file(address)
        assert storage.local_path(name) == folder / "state.pt"
        with local_checkpoint(address) as local:
            assert local == folder
    with local_checkpoint(str(file)) as local:
        assert local == file
    with pytest.raises(InputError, match="does not exist"):
        checkpoint_file(str(tmp_path / "missing.pth"))
    with pytest.raises(InputError, match=r"holds no state\.pt"):
        checkpoint_file(str(tmp_path))
