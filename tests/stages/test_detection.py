"""The stage `detection` under Ray, from a checkpoint to average precision and files for others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import mlflow
import pytest
from safetensors import safe_open

from objectaware.cli import run
from objectaware.data.scenes import build_scenes

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

RECIPE = """\
checkpoint: checkpoint
data: {root: images, layout: coco, split: train}
test: {root: images, layout: coco, split: val}
decay_iterations: []
num_warmup_iterations: 2
batch_size: 2
test_short_side: 96
max_side: 160
num_regions: 16
num_train_proposals: 100
num_test_proposals: 20
num_precise_batches: 2
short_sides: [96]
"""


def _subset(place: Path, split: str, number: int) -> str:
    """A list of a part's first images."""
    content = json.loads((place / "images" / "annotations" / f"instances_{split}2017.json").read_text())
    names = sorted(image["file_name"] for image in content["images"])[:number]
    (place / f"{split}.txt").write_text("".join(f"{name}\n" for name in names))
    return str(place / f"{split}.txt")


def _evaluate(place: Path, *overrides: str) -> dict[str, Any]:
    (place / "recipe.yaml").write_text(RECIPE)
    arguments = ["evaluate", "detection", str(place / "recipe.yaml"), "--json", str(place / "out.json")]
    assert run([*arguments, "--storage", str(place / "runs"), *overrides]) == 0
    values: dict[str, Any] = json.loads((place / "out.json").read_text())
    return values


def _losses(place: Path, run_id: str) -> list[float]:
    """The loss curve in MLflow, by iteration."""
    client = mlflow.MlflowClient(f"sqlite:///{place / 'runs' / 'mlflow.db'}")
    history = client.get_metric_history(run_id, "loss")
    assert [point.step for point in history] == [6, 12, 18, 24]
    return [point.value for point in history]


@pytest.fixture(params=["scenes", "coco-mini"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with `images` in COCO's layout and `checkpoint`."""
    monkeypatch.chdir(tmp_path)
    if request.param == "scenes":
        build_scenes(tmp_path / "images", variant="multi-object", num_train=24, num_val=9, image_size=96)
    else:
        data = request.getfixturevalue("shared_dir") / "data" / "coco-mini"
        if not data.is_dir():
            pytest.skip(f"{data} is not here")
        (tmp_path / "images").symlink_to(data)
    (tmp_path / "checkpoint").symlink_to(request.getfixturevalue("tiny_checkpoint"))
    return tmp_path


def test_the_loss_falls_precision_is_computed_and_the_exports_load(ray_session: None, place: Path) -> None:
    from objectaware.detection.detect import load_detector

    subset = ["--data.subset", _subset(place, "train", 12), "--test.subset", _subset(place, "val", 6)]
    values = _evaluate(place, *subset, "--num_iterations", "24", "--log_interval", "6")
    assert {"ap", "ap50", "ap75"} <= set(values["box"])
    assert 0 <= values["box_ap"] <= 100
    assert 0 <= values["mask_ap"] <= 100
    assert values["box_by_category"].keys() == values["mask_by_category"].keys() != set()
    results = json.loads((Path(values["folder"]) / "detections.json").read_text())
    assert all({"image_id", "category_id", "bbox", "score", "segmentation"} <= set(result) for result in results)

    exported = place / "detector.safetensors"
    assert run(["export", "detector", values["checkpoint"], "--out", str(exported)]) == 0
    network, names = load_detector(str(exported))
    with safe_open(exported, "pt") as file:
        assert set(file.keys()) == set(network.state_dict())
    assert len(names) >= 9
    assert run(["export", "detectron2", values["checkpoint"], "--out", str(place / "backbone.pkl")]) == 0

    losses = _losses(place, values["run_id"])
    assert losses[-1] < losses[0]

    again = _evaluate(place, *subset, "--num_iterations", "24", "--log_interval", "6")
    assert again["identity"] == values["identity"]
    assert again["box_ap"] == values["box_ap"]
