"""Inputs that do not fit: refused in a line before Ray starts and before MLflow has a run."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from in_process import write_colours
from objectaware.cli import run
from objectaware.tracking import TrackingStore
from replaced_ray import replace_ray

Fields = dict[str, Any]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures of two classes, a folder that holds nothing, and a file that is not a checkpoint."""
    place = tmp_path_factory.mktemp("place")
    write_colours(place / "photos", {"red": "red", "blue": "blue"}, 4)
    (place / "empty").mkdir()
    (place / "text.pth").write_text("not a network")
    return place


@pytest.fixture(autouse=True)
def nothing_starts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    # Where a test has imported MLflow before our settings of it, it reports each fresh SQLite store.
    caplog.set_level(logging.WARNING, logger="mlflow")

    def unexpected(*_: object, **__: object) -> None:
        raise AssertionError("too late")

    replace_ray(monkeypatch, unexpected)
    monkeypatch.setattr(TrackingStore, "_begin", unexpected)
    monkeypatch.setenv("OBJECTAWARE_STORAGE", str(tmp_path / "runs"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def refusal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[[list[str], Fields | None], str]:
    """Runs a command, with a recipe where it takes one, and gives the line that refuses it."""

    def call(words: list[str], recipe: Fields | None = None) -> str:
        if recipe is not None:
            (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
            words = [*words[:2], "recipe.yaml", *words[2:]]
        assert run(words) == 2
        (line,) = capsys.readouterr().err.splitlines()
        return line

    return call


def _classes(place: Path) -> Fields:
    return {"root": str(place / "photos"), "layout": "class-folders"}


PRETRAIN: Fields = {
    "backbone": "resnet10_narrow",
    "num_epochs": 1,
    "batch_size": 4,
    "method": {"queue_size": 8},
    "image_size": 32,
}


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"batch_size": 16}, "batch_size = 16: is more than the 8 images"),
        ({"policy": {"name": "background_mixup", "masks": "nowhere"}}, "holds no finished mask store"),
    ],
)
def test_pretrain(fields: Fields, problem: str, place: Path, refusal: Callable[..., str]) -> None:
    assert problem in refusal(["pretrain"], {**PRETRAIN, "data": _classes(place), **fields})


@pytest.mark.parametrize(
    ("policy", "key"), [("object_crop", "bbox"), ("object_crop", "area"), ("background_hardmix", "segmentation")]
)
def test_pretrain_on_incomplete_annotations(
    policy: str, key: str, coco: Path, tmp_path: Path, refusal: Callable[..., str]
) -> None:
    data = _changed_coco(coco, tmp_path / "incomplete", "train", lambda content: content["annotations"][-1].pop(key))
    recipe = {**PRETRAIN, "data": data, "policy": {"name": policy, "masks": "ground_truth"}}
    assert f"has no '{key}'" in refusal(["pretrain"], recipe)


@pytest.mark.parametrize(
    ("checkpoint", "options", "problem"),
    [
        ("nowhere", [], "does not exist"),
        ("text.pth", [], "text.pth: "),
        ("ours", ["--recipe", "negatives"], "is not an image of the data set"),
        ("ours", ["--recipe", "box", "--localizer", "center_box"], "localizer.side_fraction = 2"),
        ("ours", ["--localizer.num_iterations", "0"], "localizer.num_iterations = 0"),
        ("ours", ["--localizer.side_fraction", "2", "--localizer=center_box"], "localizer.side_fraction = 2"),
        ("ours", ["--recipe", "flat"], "num_iterations = 3: is named localizer.num_iterations"),
        ("ours", ["--preset", "paper"], "preset = paper: is unknown. Choose crop | mixup | scenes."),
        ("ours", ["--localizer", "gradcam"], "localizer.name = gradcam: choose center_box | classifier_cam"),
        ("ours", ["--recipe", "pack"], "layout = coco-crop: is not a folder of whole pictures"),
    ],
)
def test_localize(
    checkpoint: str,
    options: list[str],
    problem: str,
    place: Path,
    tmp_path: Path,
    tiny_checkpoint: Path,
    refusal: Callable[..., str],
    coco: Path,
) -> None:
    recipes: dict[str, Fields] = {
        "negatives": {"localizer": {"negatives": ["none.png"]}},
        "box": {"localizer": {"side_fraction": 2}},
        "flat": {"num_iterations": 3},
        "pack": {"data": {"root": str(coco), "layout": "coco-crop", "split": "train"}},
    }
    for name, fields in recipes.items():
        (tmp_path / name).write_text(yaml.safe_dump(fields))
    address = tiny_checkpoint if checkpoint == "ours" else place / checkpoint
    assert problem in refusal(["localize", str(place / "photos"), "--checkpoint", str(address), *options])


@pytest.fixture(scope="module")
def coco(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from objectaware.data.scenes import build_scenes

    root = tmp_path_factory.mktemp("coco")
    build_scenes(root, variant="multi-object", num_train=9, num_val=9, image_size=32, seed=0)
    return root


def _changed_coco(coco: Path, root: Path, split: str, change: Callable[[Any], object]) -> Fields:
    """Writes the data set with other annotations of a split, and gives the split as a recipe's field."""
    (root / "annotations").mkdir(parents=True)
    for name in ("train2017", "val2017"):
        (root / name).symlink_to(coco / name)
    for file in (coco / "annotations").glob("instances_*.json"):
        content = json.loads(file.read_text())
        if split in file.name:
            change(content)
        (root / "annotations" / file.name).write_text(json.dumps(content))
    return {"root": str(root), "layout": "coco", "split": split}


@pytest.mark.parametrize("command", ["linear", "knn", "shift"])
@pytest.mark.parametrize(
    ("checkpoint", "test", "problem"),
    [
        ("text.pth", {"root": "photos", "layout": "class-folders"}, "text.pth: "),
        ("ours", {"root": "photos"}, "layout = folder: has no labels"),
        ("ours", {"root": "empty", "layout": "class-folders"}, "empty: "),
    ],
)
def test_evaluations_on_labels(
    command: str,
    checkpoint: str,
    test: Fields,
    problem: str,
    place: Path,
    tiny_checkpoint: Path,
    refusal: Callable[..., str],
) -> None:
    address = tiny_checkpoint if checkpoint == "ours" else place / checkpoint
    tests = {"test": {**test, "root": str(place / test["root"])}}
    recipe = {"checkpoint": str(address), "train": _classes(place), "tests": tests, "image_size": 32}
    assert problem in refusal(["evaluate", command], recipe)


@pytest.mark.parametrize("options", [[], ["--checkpoints", "{checkpoint}"]])
def test_few_shot_of_a_class_that_is_not_there(
    options: list[str], place: Path, tiny_checkpoint: Path, refusal: Callable[..., str]
) -> None:
    recipe = {"checkpoint": str(tiny_checkpoint), "data": _classes(place), "class_names": ["red", "green"]}
    words = [word.format(checkpoint=tiny_checkpoint) for word in options]
    assert "class_names = green" in refusal(["evaluate", "few-shot", *words], recipe)


def test_localization_without_masks(coco: Path, refusal: Callable[..., str]) -> None:
    recipe = {"data": {"root": str(coco), "layout": "coco", "split": "val"}, "masks": {"ours": str(coco / "nowhere")}}
    assert "does not exist or is empty" in refusal(["evaluate", "localization"], recipe)


def test_localizers_look_at_the_last_row_first(coco: Path, tiny_checkpoint: Path, refusal: Callable[..., str]) -> None:
    recipe = {
        "data": {"root": str(coco), "layout": "coco", "split": "val"},
        "checkpoint": str(tiny_checkpoint),
        "localizers": {"ours": {"localizer": "contracam"}},
        "masks": {"others": str(coco / "nowhere")},
    }
    assert "does not exist or is empty" in refusal(["evaluate", "localizers"], recipe)


@pytest.mark.parametrize(
    ("fields", "problem"), [({"batch_size": 64}, "is more than the"), ({"checkpoint": "text.pth"}, "text.pth: ")]
)
def test_detection(
    fields: Fields, problem: str, place: Path, coco: Path, tiny_checkpoint: Path, refusal: Callable[..., str]
) -> None:
    if "checkpoint" in fields:
        fields = {"checkpoint": str(place / fields["checkpoint"])}
    sides = {"data": "train", "test": "val"}
    data = {part: {"root": str(coco), "layout": "coco", "split": split} for part, split in sides.items()}
    recipe = {**data, "checkpoint": str(tiny_checkpoint), "batch_size": 2, **fields}
    assert problem in refusal(["evaluate", "detection"], recipe)


@pytest.mark.parametrize("key", ["bbox", "area", "segmentation", "category_id"])
def test_detection_on_an_incomplete_test(
    key: str, coco: Path, tiny_checkpoint: Path, tmp_path: Path, refusal: Callable[..., str]
) -> None:
    test = _changed_coco(coco, tmp_path / "incomplete", "val", lambda content: content["annotations"][-1].pop(key))
    data = {"root": str(coco), "layout": "coco", "split": "train"}
    recipe = {"data": data, "test": test, "checkpoint": str(tiny_checkpoint), "batch_size": 2}
    assert f"has no '{key}'" in refusal(["evaluate", "detection"], recipe)


@pytest.mark.parametrize("part", ["data", "test"])
def test_detection_with_two_categories_of_one_name(
    part: str, coco: Path, tiny_checkpoint: Path, tmp_path: Path, refusal: Callable[..., str]
) -> None:
    splits = {"data": "train", "test": "val"}
    recipe: Fields = {name: {"root": str(coco), "layout": "coco", "split": split} for name, split in splits.items()}
    recipe[part] = _changed_coco(coco, tmp_path / "twice", splits[part], _name_alike)
    recipe |= {"checkpoint": str(tiny_checkpoint), "batch_size": 2}
    assert "categories 1 and 2 are both named 'crane'" in refusal(["evaluate", "detection"], recipe)


def _name_alike(content: Any) -> None:
    for category in content["categories"]:
        if category["id"] in (1, 2):
            category["name"] = "crane"
