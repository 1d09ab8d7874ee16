"""Someone else's checkpoint through the command line, as far as boxes in COCO's format."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import torchvision
from PIL import Image
from pycocotools.coco import COCO
from torch import nn

from objectaware.cli import run

RECIPE = """\
image_size: 64
localizer: {num_iterations: 2, expansion: 2}
group_size: 4
execution: {num_crf_actors: 1, num_compute_threads: 1}
"""


def _save_in_mocos_layout(path: Path) -> None:
    torch.manual_seed(0)
    network = torchvision.models.resnet18(num_classes=128)
    network.fc = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), network.fc)
    state = {f"module.encoder_{part}.{key}": value for part in "qk" for key, value in network.state_dict().items()}
    state["module.queue"] = torch.zeros(128, 16)
    torch.save({"epoch": 200, "arch": "resnet18", "state_dict": state, "optimizer": {"state": {}}}, path)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_moco_checkpoint_gives_boxes_and_masks(
    ray_session: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos").mkdir()
    for number in range(6):
        pixels = np.random.default_rng(number).integers(0, 256, (50, 60 + number, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / "photos" / f"{number}.png")
    (tmp_path / "tiny.yaml").write_text(RECIPE)
    _save_in_mocos_layout(tmp_path / "foreign.pth.tar")
    command = ["localize", "photos", "--checkpoint", "foreign.pth.tar", "--recipe", "tiny.yaml", "--out", "found"]
    assert run([*command, "--json", "out.json"]) == 0
    assert "was read as a resnet18 of MoCo." in capsys.readouterr().err
    result = json.loads((tmp_path / "out.json").read_text())
    assert (result["num_images"], result["num_ok"]) == (6, 6)
    assert any("encoder_k" in notice for notice in result["notices"])
    coco = COCO(tmp_path / "found" / "annotations.json")
    assert sorted(image["file_name"] for image in coco.dataset["images"]) == [f"{number}.png" for number in range(6)]
    assert [path.name for path in (tmp_path / "found").glob(".tmp*")] == []
