import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import timm
import torch
import torchvision
from safetensors.torch import load_file

from objectaware.data.storage import Storage
from objectaware.errors import InputError
from objectaware.methods.byol import BYOL
from objectaware.methods.checkpoint import (
    export_backbone,
    load_encoder,
    load_state,
    local_checkpoint,
    save_checkpoint,
    untrained,
)
from objectaware.methods.moco import MoCo


@pytest.mark.parametrize("method", ["moco", "byol"])
def test_an_encoder_computes_what_the_saved_method_does(tmp_path: Path, method: str) -> None:
    torch.manual_seed(0)
    network = MoCo("resnet10_narrow", queue_size=8) if method == "moco" else BYOL("resnet10_narrow")
    network = network.to(memory_format=torch.channels_last)
    images = torch.randn(4, 3, 32, 32)
    network.train()
    network([images, images])
    save_checkpoint(tmp_path, network, {"backbone": "resnet10_narrow"}, {"next_epoch": 1})
    encoder = load_encoder(tmp_path)
    network.eval()
    with torch.no_grad():
        torch.testing.assert_close(encoder.backbone(images), network.backbone(images))
        expected = network.projector(network.backbone(images))
        torch.testing.assert_close(encoder.projector(encoder.backbone(images)), expected)
    weights = load_file(tmp_path / "backbone.safetensors")
    assert weights.keys() == network.backbone.state_dict().keys()


@pytest.mark.parametrize("method", [MoCo, BYOL])
def test_an_untrained_encoder_is_the_start_of_a_training_with_its_seed(tmp_path: Path, method: type) -> None:
    torch.manual_seed(0)
    network = method("resnet10_narrow")
    network.train()
    network([torch.randn(4, 3, 32, 32)] * 2)  # moves the batch norms' statistics
    save_checkpoint(tmp_path, network, {"backbone": "resnet10_narrow"}, {})
    encoder = load_encoder(tmp_path)
    before = torch.get_rng_state()
    starts = [untrained(encoder, seed) for seed in (3, 3, 4)]
    assert torch.equal(before, torch.get_rng_state())
    torch.manual_seed(3)
    fresh = method("resnet10_narrow")
    for name in ("backbone", "projector"):
        own, first, again, other = (getattr(one, name).state_dict() for one in (encoder, *starts))
        expected = getattr(fresh, name).state_dict()
        assert first.keys() == own.keys() == expected.keys()
        for key, value in expected.items():
            torch.testing.assert_close(first[key], value, rtol=0, atol=0)
            torch.testing.assert_close(again[key], value, rtol=0, atol=0)
        weight = next(key for key, value in expected.items() if value.ndim >= 2)
        assert not torch.equal(other[weight], first[weight])
        assert not torch.equal(own[weight], first[weight])
    assert not starts[0].backbone.training
    assert not starts[0].projector.training


def test_a_folder_without_checkpoint_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"holds no state\.pt"):
        load_encoder(tmp_path)


@pytest.mark.chaos(fault="a hostile checkpoint", holds="its code does not run")
def test_a_pickle_that_would_run_code_is_not_run(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return Path.touch, (Path(tmp_path / "ran"),)  # type: ignore[return-value]

    torch.save({"method": Evil()}, tmp_path / "state.pt")
    with pytest.raises(InputError, match="run code"):
        load_state(tmp_path)
    assert not (tmp_path / "ran").exists()


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "state.pt").write_bytes(b"not a checkpoint")
    with pytest.raises(InputError, match=r"state\.pt"):
        load_state(tmp_path)


def _saved(folder: Path) -> Path:
    save_checkpoint(folder, MoCo("resnet10_narrow", queue_size=8), {"backbone": "resnet10_narrow"}, {"next_epoch": 1})
    return folder


def test_the_hash_beside_a_state_is_what_sha256sum_would_write(tmp_path: Path) -> None:
    done = subprocess.run(
        ["sha256sum", "--check", "state.sha256"], cwd=_saved(tmp_path), capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, "state.pt: OK\n")


@pytest.mark.chaos(fault="a checkpoint and its hash that do not fit", holds="their names in a message")
@pytest.mark.parametrize("read", [load_state, load_encoder])
def test_a_state_that_is_not_the_one_of_its_hash_is_refused(tmp_path: Path, read: Callable[[Path], object]) -> None:
    state = _saved(tmp_path) / "state.pt"
    torch.save({**torch.load(state, weights_only=True), "next_epoch": 2}, state)
    with pytest.raises(InputError, match=r"state\.pt: does not have the hash in state\.sha256"):
        read(tmp_path)
    (tmp_path / "state.sha256").write_text("half a has")
    with pytest.raises(InputError, match=r"state\.pt: does not have the hash in state\.sha256"):
        read(tmp_path)
    (tmp_path / "state.sha256").unlink()  # a checkpoint of an earlier version has none
    read(tmp_path)


def test_the_copy_of_a_remote_checkpoint_has_its_hash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = _saved(tmp_path).joinpath("state.sha256").read_bytes()
    monkeypatch.setattr(Storage, "local_path", lambda storage, name="": None)
    with local_checkpoint(str(tmp_path)) as copy:
        assert copy != tmp_path
        assert (copy / "state.sha256").read_bytes() == expected
        load_encoder(copy)


@pytest.mark.parametrize("name", ["resnet18", "resnet50"])
def test_torchvision_and_timm_take_an_exported_backbone(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    network = getattr(torchvision.models, name)().to(memory_format=torch.channels_last).eval()
    state = {f"module.encoder_q.{key}": value for key, value in network.state_dict().items() if key[:3] != "fc."}
    torch.save({"state_dict": state}, tmp_path / "moco.pth.tar")
    assert export_backbone(str(tmp_path / "moco.pth.tar"), tmp_path / "out" / "backbone.safetensors") == name
    weights = load_file(tmp_path / "out" / "backbone.safetensors")
    assert all(value.is_contiguous() for value in weights.values())
    fresh = getattr(torchvision.models, name)().eval()
    missing, unexpected = fresh.load_state_dict(weights, strict=False)
    assert (missing, unexpected) == (["fc.weight", "fc.bias"], [])
    timms = timm.create_model(name, num_classes=0).eval()
    timms.load_state_dict(weights, strict=True)
    network = network.to(memory_format=torch.contiguous_format)  # its sums then round as the others' do
    network.fc = fresh.fc = torch.nn.Identity()
    images = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        torch.testing.assert_close(fresh(images), network(images))
        torch.testing.assert_close(timms(images), network(images))


def test_an_export_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, MoCo("resnet10_narrow", queue_size=8), {"backbone": "resnet10_narrow"}, {})
    with pytest.raises(InputError, match="out = "):
        export_backbone(str(tmp_path), tmp_path)
