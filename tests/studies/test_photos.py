"""The study on photographs, on pictures drawn in Tiny-ImageNet's layout, and the parts that it draws and compares."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from contexts import make_context
from objectaware.data.dataset import Dataset
from objectaware.data.scenes import build_scenes
from objectaware.data.storage import Storage
from objectaware.errors import InputError
from objectaware.stages.identity import recipe
from objectaware.stages.runner import Context
from objectaware.studies.photos import (
    PhotosConfig,
    _differences,
    best_box_side,
    localizer_rows,
    open_photos,
    photos_tables,
    pretrain_config,
    run_photos,
)
from stages_in_process import work_in_process
from tiny_imagenet_tree import WNIDS, write_tiny_imagenet

TINY: dict[str, Any] = {
    "num_classes": 2,
    "num_epochs": 1,
    "num_iterations": (2,),
    "coco_size": 32,
    "pretrain": {"image_size": 32, "batch_size": 8, "method": {"queue_size": 16}, "execution": {"use_gpu": False}},
    "localize": {"image_size": 32, "group_size": 8, "execution": {"use_gpu": False}},
}


def _lines(data: Any) -> list[str]:
    return Path(data.subset).read_text().split()


def test_the_halves_are_disjoint_and_of_the_drawn_classes(tmp_path: Path) -> None:
    root = write_tiny_imagenet(tmp_path, num_val=5)
    storage = Storage.from_uri(tmp_path / "runs")
    parts = {
        part: open_photos(storage, PhotosConfig(data=str(root), part=part, **TINY))
        for part in ("choosing", "reporting")
    }
    choosing, reporting = (set(_lines(photos.held_out)) for photos in parts.values())
    classes = random.Random(0).sample(sorted(WNIDS), 2)
    place = {wnid: range(5 * number, 5 * number + 5) for number, wnid in enumerate(WNIDS)}
    assert choosing | reporting == {f"val_{number}.JPEG" for wnid in classes for number in place[wnid]}
    assert len(choosing) == len(reporting) == 5
    assert {name.split("/")[0] for name in _lines(parts["reporting"].train)} == set(classes)
    assert _lines(parts["reporting"].train) == _lines(parts["choosing"].train)
    # Each of them is chosen on the same half.
    assert parts["choosing"].box_side == parts["reporting"].box_side


def test_a_class_without_boxes_is_not_drawn(tmp_path: Path) -> None:
    root = write_tiny_imagenet(tmp_path)
    (root / "train" / WNIDS[0] / f"{WNIDS[0]}_boxes.txt").unlink()
    photos = open_photos(Storage.from_uri(tmp_path / "runs"), PhotosConfig(data=str(root), **TINY))
    assert {name.split("/")[0] for name in _lines(photos.train)} == set(WNIDS[1:])
    three = PhotosConfig(data=str(root), **{**TINY, "num_classes": 3})
    with pytest.raises(InputError, match="num_classes = 3: is more than the 2 classes with boxes"):
        open_photos(Storage.from_uri(tmp_path / "runs"), three)


def test_a_list_of_the_same_content_elsewhere_has_the_same_identity(tmp_path: Path) -> None:
    config = PhotosConfig(data=str(write_tiny_imagenet(tmp_path)), **TINY)
    one, other = (open_photos(Storage.from_uri(tmp_path / name), config).train for name in ("a", "b"))
    assert one.subset != other.subset
    assert Dataset.of(one).content_hash() == Dataset.of(other).content_hash()
    assert recipe(pretrain_config(config, "moco", one, 0)) == recipe(pretrain_config(config, "moco", other, 0))


def test_the_best_box_is_the_smallest_of_those_that_are_right_most_often() -> None:
    half = np.array([[0.25, 0.25, 0.75, 0.75]])
    corner = np.array([[0.0, 0.0, 0.1, 0.1]])
    # A centred box of side s has an IoU of s² / 0.25 with the first.
    assert best_box_side([half, half, corner]) == pytest.approx(0.36, abs=0.011)
    whole = np.array([[0.0, 0.0, 1.0, 1.0]])
    assert best_box_side([whole, whole, half]) == pytest.approx(0.72, abs=0.011)


def test_each_row_stands_beside_trivial_answers_and_ablations() -> None:
    baselines = {
        "full image": {"corloc": 30.0},
        "center map + CRF": {"corloc": 40.0},
        "full image + CRF": {"corloc": 2.0},
    }

    def scores(found: float) -> dict[str, dict[str, float]]:
        row = {"same_area_corloc": 10.0}
        names = {"contracam_2": found, "contracam_2 soft": 0.0, "contracam_2_without_removal": 20.0, "untrained": 5.0}
        return {**baselines, **{name: {**row, "corloc": value} for name, value in names.items()}}

    pairs = _differences(baselines, [scores(41.0), scores(45.0)])
    assert pairs["contracam_2 − center map + CRF"] == {
        "measure": "corloc", "by_seed": (1.0, 5.0), "mean": 3.0, "std": pytest.approx(math.sqrt(8)),
    }  # fmt: skip
    assert pairs["contracam_2 − same-area box"]["mean"] == 33
    assert pairs["contracam_2 − contracam_2_without_removal"]["mean"] == 23
    assert pairs["contracam_2 − untrained"]["mean"] == 38
    assert not [name for name in pairs if " soft" in name or name.startswith("untrained − untrained")]


def test_the_rule_that_ends_iterations_is_one_row() -> None:
    config = PhotosConfig(data="photos", max_share=0.3, min_change=0.1, num_iterations=(1, 5))
    rows = localizer_rows(config)
    assert rows["contracam_stopped"]["localizer"] == {"num_iterations": 5, "min_change": 0.1, "max_share": 0.3}
    assert rows["contracam_5_without_removal"]["localizer"]["remove_negative_signals"] is False
    assert not any("max_share" in row.get("localizer", {}) for name, row in rows.items() if name != "contracam_stopped")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_study_measures_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work_in_process(monkeypatch)
    root = write_tiny_imagenet(tmp_path, num_train=8, num_val=6)
    scenes = tmp_path / "scenes"
    build_scenes(scenes, variant="multi-object", num_train=9, num_val=9, image_size=48)
    context: Context = make_context(tmp_path / "runs")
    config = PhotosConfig(data=str(root), coco=str(scenes), **TINY)
    values = run_photos(context, config, (0, 1))
    assert json.dumps(values)
    photos, coco = values["localization"]["photos"], values["localization"]["coco"]
    own = {*localizer_rows(config), "center_box"}
    for name in ("center map", "contrast map", "full image"):
        own |= {name, f"{name} + CRF"}
    assert own <= photos["mean"].keys()
    assert {*own, "best center box (oracle) + CRF"} <= coco["mean"].keys()
    assert "miou" not in photos["mean"]["contracam_2"]
    assert all(math.isfinite(one) for row in coco["mean"].values() for one in row.values())
    assert photos["mean"]["contracam_2"]["num_images"] == 6
    # Baselines do not depend on the seed.
    assert set(photos["std"]) == {row for row in photos["mean"] if row.startswith(("contracam", "untrained"))}
    assert photos["mean"]["contracam_stopped"]["mask_share"] <= photos["mean"]["contracam_2"]["mask_share"] + 1e-9
    assert set(values["accuracy"]["mean"]) == {"moco", "object_crop", "background_mixup"}
    assert len(values["accuracy"]["change"]["object_crop"]["linear"]["by_seed"]) == 2
    text = "\n".join(photos_tables(values))
    assert "contracam_stopped" in text
    assert "background_mixup − moco" in text
    assert all(Path(address).is_file() for address in values["galleries"].values())
    again = run_photos(context, config, (0, 1))
    assert again == values
