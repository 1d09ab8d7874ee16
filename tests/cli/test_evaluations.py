"""The evaluations as commands, on scenes, over Ray."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from objectaware.cli import run
from objectaware.data.scenes import build_scenes
from objectaware.data.sets.coco import load_coco

SMALL = [*("--image_size", "32"), *("--center_crop", "false"), *("--execution.num_workers", "2")]


def evaluated(*words: str) -> Any:
    """What a command writes."""
    assert run(["evaluate", *words, *SMALL, "--json", "out.json"]) == 0
    return json.loads(Path("out.json").read_text())


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_every_evaluation_reads_the_features_that_were_computed_once(
    ray_session: None,
    tiny_checkpoint: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("objectaware.stages.features.PART_SIZE", 32)
    build_scenes(Path("scenes"), variant="multi-object", num_train=40, num_val=40, image_size=48)
    names = load_coco("scenes", "val").category_names
    data = "{root: scenes, layout: coco-crop, split: val}"
    train = "{root: scenes, layout: coco-crop, split: train}"
    Path("linear.yaml").write_text(
        f"checkpoint: {tiny_checkpoint}\ntrain: {train}\nnum_penalties: 3\ntests: {{fog-1: {data}, fog-2: {train}}}\n"
    )
    Path("knn.yaml").write_text(f"checkpoint: {tiny_checkpoint}\ntrain: {train}\ntests: {{val: {data}}}\n")
    Path("two.yaml").write_text(f"checkpoint: {tiny_checkpoint}\ndata: {data}\nclass_names: [{names[0]}, {names[1]}]\n")
    linear = evaluated("linear", "linear.yaml")
    parts = sorted(Path("runs", "features").glob("*/*"))
    written = {path: path.stat().st_mtime_ns for path in parts}
    assert len(parts) > 2 * 2 * 2  # two sets of more than two parts, two files each
    shift = evaluated("shift", "linear.yaml", "--checkpoints", str(tiny_checkpoint), str(tiny_checkpoint))
    assert shift["mean"]["fog"] == pytest.approx(sum(linear["accuracies"].values()) / 2)
    assert shift["identities"] == [linear["identity"]] * 2
    neighbours = evaluated("knn", "knn.yaml")
    assert 0 <= neighbours["accuracies"]["val"] <= 100
    assert {path: path.stat().st_mtime_ns for path in parts} == written
    error = evaluated("few-shot", "two.yaml", "--num_shots", "2")["error"]
    assert 0 <= error["mean"] <= 100
    distance = evaluated("class-distance", "two.yaml", "--perplexity", "2")
    assert distance["distance"] > 0
    assert Path(distance["folder"], "embedding.png").exists()
    printed = capsys.readouterr().out
    assert "Accuracy under shift, mean over 2 checkpoints" in printed
    assert "tsne" not in printed
