"""`evaluate background` on a Backgrounds Challenge that was made of a data set with masks and labels."""

from __future__ import annotations

from pathlib import Path

from in_process import Tasks
from objectaware.data.challenge import build_challenge
from objectaware.data.dataset import DataConfig
from objectaware.data.scenes import build_scenes
from objectaware.data.sets.backgrounds_challenge import VARIANTS
from objectaware.stages.background import BackgroundConfig, background
from objectaware.stages.runner import Context


def test_a_built_challenge_is_evaluated(context: Context, tasks: Tasks, tiny_checkpoint: Path, tmp_path: Path) -> None:
    build_scenes(tmp_path / "scenes", variant="single-object", num_train=9, num_val=108, image_size=32)
    scenes = DataConfig(root=str(tmp_path / "scenes"), layout="backgrounds-challenge", split="val")
    classes = ["02_square", "00_disk", "07_heart"]
    built = build_challenge(
        scenes, tmp_path / "challenge", classes=classes, num_per_class=5, image_size=32, num_processes=1
    )
    assert built.num_pictures == {part: dict.fromkeys(classes, 5) for part in ("train", "val")}
    fields = {"checkpoint": str(tiny_checkpoint), "root": str(built.folder), "image_size": 32, "holdout_fraction": 0.2}
    config = BackgroundConfig.model_validate({**fields, "execution": {"use_gpu": False}})
    values = background(context, config).values
    assert values["accuracies"].keys() == {*VARIANTS, "bg_gap"}
    assert {one["num_samples"] for one in values["coverage"].values()} == {15}
