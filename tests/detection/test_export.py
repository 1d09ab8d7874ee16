"""What others load of a checkpoint."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from objectaware.cli import run
from objectaware.config import DetectionConfig
from objectaware.detection.data import open_coco
from objectaware.detection.detect import (
    average_precision,
    category_numbers,
    detect_objects,
    detectron2_name,
    export_detector,
    export_detectron2,
    fine_tuned_detector,
    load_detector,
)
from objectaware.detection.fine_tuning import run_fine_tuning
from objectaware.errors import InputError
from objectaware.methods.backbones import build_backbone
from objectaware.methods.checkpoint import load_encoder
from objectaware.training.session import LocalSession


@pytest.fixture(scope="module")
def fine_tuned(small: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fine-tuned")
    changes = {"num_iterations": 1, "num_precise_batches": 0, "short_sides": (48,)}
    run_fine_tuning(DetectionConfig(**{**small, **changes}), LocalSession(folder))
    return folder / "checkpoint"


def _detectron2_resnet50_names() -> dict[str, tuple[int, ...]]:
    """Names and shapes of detectron2's R50-C4 with batch norm (stem, res2 … res4, and res5 in the heads).

    Written down from its modeling/backbone/resnet.py: BasicStem, BottleneckBlock, ResNet.make_stage.
    """
    shapes: dict[str, tuple[int, ...]] = {}

    def convolution(name: str, out: int, into: int, side: int) -> None:
        shapes[f"{name}.weight"] = (out, into, side, side)
        shapes.update({f"{name}.norm.{part}": (out,) for part in ("weight", "bias", "running_mean", "running_var")})
        shapes[f"{name}.norm.num_batches_tracked"] = ()

    convolution("backbone.stem.conv1", 64, 3, 7)
    into = 64
    for stage, (number, width) in enumerate(((3, 64), (4, 128), (6, 256), (3, 512)), start=2):
        prefix = "roi_heads.res5" if stage == 5 else f"backbone.res{stage}"
        for block in range(number):
            convolution(f"{prefix}.{block}.conv1", width, into, 1)
            convolution(f"{prefix}.{block}.conv2", width, width, 3)
            convolution(f"{prefix}.{block}.conv3", 4 * width, width, 1)
            if block == 0:
                convolution(f"{prefix}.{block}.shortcut", 4 * width, into, 1)
            into = 4 * width
    return shapes


def test_resnet50_s_names_match_all_of_detectron2_s() -> None:
    """By its heuristics: a name of the model ends in the checkpoint's name, after a dot (c2_model_loading.py)."""
    with torch.device("meta"):
        ours = {
            detectron2_name(name): tuple(value.shape) for name, value in build_backbone("resnet50").state_dict().items()
        }
    matched: dict[str, str] = {}
    for name, shape in _detectron2_resnet50_names().items():
        (found,) = [own for own in ours if name.endswith(f".{own}")]
        assert ours[found] == shape
        matched[found] = name
    assert set(matched) == set(ours)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("conv1.weight", "stem.conv1.weight"),
        ("bn1.running_var", "stem.conv1.norm.running_var"),
        ("layer1.0.bn2.bias", "res2.0.conv2.norm.bias"),
        ("layer4.2.conv3.weight", "res5.2.conv3.weight"),
        ("layer2.0.downsample.0.weight", "res3.0.shortcut.weight"),
        ("layer2.0.downsample.1.num_batches_tracked", "res3.0.shortcut.norm.num_batches_tracked"),
    ],
)
def test_names_are_those_of_moco_s_converter(name: str, expected: str) -> None:
    assert detectron2_name(name) == expected


def test_the_file_for_detectron2_holds_the_backbone_as_arrays(tiny_checkpoint: Path, tmp_path: Path) -> None:
    assert run(["export", "detectron2", str(tiny_checkpoint), "--out", str(tmp_path / "new" / "backbone.pkl")]) == 0
    content = pickle.loads((tmp_path / "new" / "backbone.pkl").read_bytes())
    assert (content["__author__"], content["matching_heuristics"]) == ("objectaware", True)
    weights = load_encoder(tiny_checkpoint).backbone.state_dict()
    assert len(content["model"]) == len(weights)
    assert all(isinstance(value, np.ndarray) for value in content["model"].values())
    for name, value in weights.items():
        np.testing.assert_array_equal(content["model"][detectron2_name(name)], value.numpy())


def test_another_name_than_detectron2_takes_is_refused(tiny_checkpoint: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"Give a file such as backbone\.pkl"):
        export_detectron2(str(tiny_checkpoint), tmp_path / "backbone.pth")


def _same(one: nn.Module, other: nn.Module) -> bool:
    return all(torch.equal(value, other.state_dict()[name]) for name, value in one.state_dict().items())


def test_a_fine_tuned_detector_s_file_loads_back_and_finds_the_same(
    fine_tuned: Path, small_config: DetectionConfig, tmp_path: Path
) -> None:
    export_detector(str(fine_tuned), tmp_path / "detector.safetensors")
    before, names = load_detector(str(fine_tuned), num_test_proposals=10)
    after, names_after = load_detector(str(tmp_path / "detector.safetensors"), num_test_proposals=10)
    assert _same(before, after)
    assert names == names_after
    coco = open_coco(small_config.test)
    path = Path(small_config.test.root, "annotations", "instances_val2017.json")
    numbers = {place + 1: category_numbers(path)[name] for place, name in enumerate(names)}
    found = []
    for network in (before, after):
        network.heads.score_thresh = 0.0
        detector = fine_tuned_detector(network, short_side=64, max_side=96, device=torch.device("cpu"))
        found.append(detect_objects(detector, coco, range(2), numbers))
    assert found[0] == found[1] != []
    assert {record["image_id"] for record in found[0]} == set(coco.numbers[:2])
    for kind in ("box", "mask"):
        assert average_precision(found[0], path, coco.numbers[:2], kind)[0]["ap"] >= 0


def test_the_fine_tuned_backbone_is_exported_as_any(fine_tuned: Path, tmp_path: Path) -> None:
    assert run(["export", "backbone", str(fine_tuned), "--out", str(tmp_path / "backbone.safetensors")]) == 0
    exported = load_encoder(tmp_path / "backbone.safetensors").backbone
    assert _same(exported, load_encoder(fine_tuned).backbone)


def test_a_pretrained_checkpoint_is_no_detector(tiny_checkpoint: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no fine-tuned detector"):
        export_detector(str(tiny_checkpoint), tmp_path / "detector.safetensors")
    with pytest.raises(InputError, match="no fine-tuned detector"):
        load_detector(str(tiny_checkpoint))
