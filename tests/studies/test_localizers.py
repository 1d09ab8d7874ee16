"""All localizers, and masks of another system, in one table by one command."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from objectaware.cli import run
from objectaware.data.scenes import build_scenes
from objectaware.data.sets.coco import load_coco
from objectaware.methods.checkpoint import save_checkpoint
from objectaware.methods.moco import MoCo

RECIPE = """\
data: {root: scenes, layout: coco, split: val}
checkpoint: checkpoint
shared: {image_size: 48, group_size: 8, execution: {num_compute_threads: 1, num_crf_actors: 1}}
localizers:
  contracam: {localizer: {num_iterations: 2}, execution: {num_compute_threads: 1, record_iterations: true}}
  untrained: {localizer: {num_iterations: 2}, untrained: true}
  giraffes: {localizer: {num_iterations: 1, negatives: [NEGATIVE]}}
  classifier_cam: {localizer: classifier_cam}
  integrated_gradients: {localizer: {name: integrated_gradients, num_gradients: 2}}
  smoothgrad: {localizer: {name: smoothgrad, num_gradients: 2}}
  center_box: {localizer: {name: center_box, side_fraction: 0.6}}
  full_image: {localizer: full_image, crf: false}
linear:
  train: {root: scenes, layout: coco-crop, split: train}
  tests: {val: {root: scenes, layout: coco-crop, split: val}}
  image_size: 32
  center_crop: false
  num_penalties: 3
masks: {truth: truth}
"""


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_every_localizer_is_in_the_table(
    ray_session: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    build_scenes(Path("scenes"), variant="multi-object", num_train=60, num_val=12, image_size=48)
    torch.manual_seed(0)
    Path("checkpoint").mkdir()
    config = {"backbone": "resnet10_narrow"}
    save_checkpoint(Path("checkpoint"), MoCo("resnet10_narrow", queue_size=8), config, {"optimizer": {}})
    coco = load_coco("scenes", "val")
    Path("truth").mkdir()
    for index, image_id in enumerate(coco.images.image_ids):
        np.save(Path("truth", Path(image_id).stem), coco.foreground_mask(index))
    Path("all.yaml").write_text(RECIPE.replace("NEGATIVE", coco.images.image_ids[0]))
    assert run(["evaluate", "localizers", "all.yaml", "--json", "out.json"]) == 0
    table, values = capsys.readouterr().out, json.loads(Path("out.json").read_text())
    for title in ("mIoU at 0.5", "mIoU at 1/255", "MaxBoxAccV2 (oracle threshold)", "PxAP", "CorLoc"):
        assert title in table
    scores = values["scores"]
    # The checkpoint is itself that of a network with the random weights of seed 0.
    assert scores["untrained"] == pytest.approx(scores["contracam"])
    refined = [
        "contracam",
        "untrained",
        "giraffes",
        "classifier_cam",
        "integrated_gradients",
        "smoothgrad",
        "center_box",
    ]
    assert {*refined, *(f"{name} soft" for name in refined), "full_image", "truth"} <= scores.keys()
    for baseline in ("best center box (oracle)", "center map", "contrast map", "full image"):
        assert {baseline, f"{baseline} + CRF"} <= scores.keys()
        assert f"{baseline} + CRF " in table
    assert "Medium objects (5–40% of the picture), " in table
    assert all("crf_miou" in scores[name] for name in refined)
    assert (scores["truth"]["miou"], scores["truth"]["miou_1_255"]) == pytest.approx((1, 1), abs=0.01)
    assert scores["truth"]["px_ap"] == 100
    # The whole picture, through the store as without it; hard masks stay as they are in the CRF.
    assert scores["full_image"]["miou"] == pytest.approx(scores["full image"]["miou"], abs=1e-6)
    assert scores["center_box"]["miou"] == pytest.approx(scores["center_box soft"]["miou"])
    assert all(row["num_images"] == 12 for row in scores.values() if "num_images" in row)
    assert sum(values["boxes_per_image"]["truth"].values()) == 12
    assert Path(values["masks"]["contracam"], "iterations.npz").exists()
