from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from objectaware.errors import InputError
from objectaware.methods.byol import BYOL
from objectaware.methods.checkpoint import load_encoder, load_state, save_checkpoint
from objectaware.methods.moco import MoCo


@pytest.mark.parametrize("method", ["moco", "byol"])
def test_an_encoder_computes_what_the_saved_method_does(tmp_path: Path, method: str) -> None:
    torch.manual_seed(0)
    network = MoCo("resnet10_narrow", queue_size=8) if method == "moco" else BYOL("resnet10_narrow")
    network = network.to(memory_format=torch.channels_last)
    images = torch.randn(4, 3, 32, 32)
    network.train()
    network(images, images)
    save_checkpoint(tmp_path, network, {"backbone": "resnet10_narrow"}, {"next_epoch": 1})
    encoder = load_encoder(tmp_path)
    network.eval()
    with torch.no_grad():
        torch.testing.assert_close(encoder.backbone(images), network.backbone(images))
        expected = network.projector(network.backbone(images))
        torch.testing.assert_close(encoder.projector(encoder.backbone(images)), expected)
    weights = load_file(tmp_path / "backbone.safetensors")
    assert weights.keys() == network.backbone.state_dict().keys()


def test_a_folder_without_checkpoint_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"holds no state\.pt"):
        load_encoder(tmp_path)


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
