"""Labels cross from one data set to another by the names of their classes, and every measure says what it is over."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from in_process import Tasks, write_colours
from objectaware.config import DataConfig, DetectionConfig, PretrainConfig
from objectaware.data.scenes import build_scenes
from objectaware.data.storage import Storage
from objectaware.errors import InputError
from objectaware.evaluate.linear import VARIANTS
from objectaware.localize.mask_store import MaskRow
from objectaware.stages.background import BackgroundConfig, background
from objectaware.stages.class_distance import ClassDistanceConfig, class_distance
from objectaware.stages.detection import detection
from objectaware.stages.few_shot import FewShotConfig, few_shot
from objectaware.stages.identity import data_hash, delete_outputs
from objectaware.stages.knn import KnnConfig, knn
from objectaware.stages.linear import LinearConfig, linear
from objectaware.stages.localization import LocalizationConfig, localization
from objectaware.stages.localizers import LocalizersConfig, localizers
from objectaware.stages.registry import all_stages
from objectaware.stages.runner import Context, StageResult
from objectaware.stages.shift import shift
from stage_runs import run_as
from stages_in_process import work_in_process

CPU = {"image_size": 32, "execution": {"use_gpu": False}}
COLOURS = {"ant": "red", "bee": "yellow", "cat": "blue", "dog": "lime", "elk": "white"}
SOME = {name: COLOURS[name] for name in ("ant", "bee", "cat")}


def _linear(checkpoint: Path, train: DataConfig, **tests: DataConfig) -> LinearConfig:
    fields = {"checkpoint": str(checkpoint), "train": train, "tests": tests, "holdout_size": 5, "num_penalties": 3}
    return LinearConfig.model_validate({**fields, **CPU})


def _knn(checkpoint: Path, train: DataConfig, **tests: DataConfig) -> KnnConfig:
    fields = {"checkpoint": str(checkpoint), "train": train, "tests": tests, "num_neighbours": 3}
    return KnnConfig.model_validate({**fields, **CPU})


Measure = Callable[..., StageResult]


@pytest.fixture(params=["linear", "knn"])
def measure(request: pytest.FixtureRequest, context: Context, tasks: Tasks, tiny_checkpoint: Path) -> Measure:
    """Measures test sets by a classifier of a training set."""
    kinds: dict[str, tuple[Measure, Callable[..., Any]]] = {"linear": (linear, _linear), "knn": (knn, _knn)}
    run, config = kinds[request.param]
    return lambda train, **tests: run(context, config(tiny_checkpoint, train, **tests))


def _shown(context: Context) -> str:
    stream = context.services.progress._stream
    assert isinstance(stream, io.StringIO)
    return stream.getvalue()


def test_a_class_folder_absent_from_the_test_set_shifts_no_label(
    measure: Measure, context: Context, tmp_path: Path
) -> None:
    train = write_colours(tmp_path / "train", COLOURS, 4)
    without_first = {name: colour for name, colour in COLOURS.items() if name != "ant"}
    values = measure(train, val=write_colours(tmp_path / "val", without_first, 2)).values
    assert values["accuracies"] == {"val": 100.0}
    coverage = values["coverage"]["val"]
    assert (coverage["num_samples"], coverage["num_classes"], coverage["untested_classes"]) == (8, 4, ["ant"])
    assert "val: measured over 8 samples of 4 classes; no sample shows ant" in _shown(context)


def test_a_class_that_training_lacks_is_named_and_left_out(measure: Measure, context: Context, tmp_path: Path) -> None:
    train = write_colours(tmp_path / "train", {name: COLOURS[name] for name in ("bee", "cat", "dog")}, 4)
    result = measure(train, val=write_colours(tmp_path / "val", COLOURS, 2))
    assert result.values["accuracies"] == {"val": 100.0}
    coverage = result.values["coverage"]["val"]
    assert coverage["unknown_classes"] == {"ant": 2, "elk": 2}
    assert (coverage["num_samples"], coverage["left_out"]) == (6, {"class unknown to training": 4})
    assert "4 left out (class unknown to training); training does not know ant, elk" in _shown(context)
    client = context.services.tracking.server.client
    path = client.download_artifacts(str(result.run_id), "tables/coverage.csv", str(tmp_path))
    assert "val,class unknown to training,elk,2" in Path(path).read_text()


def test_class_folders_with_other_names_are_refused_before_features_are_computed(
    measure: Measure, tasks: Tasks, tmp_path: Path
) -> None:
    train = write_colours(tmp_path / "train", SOME, 2)
    other = write_colours(tmp_path / "val", {name.upper(): colour for name, colour in SOME.items()}, 2)
    with pytest.raises(InputError, match="test val = ANT, BEE, CAT: has no class in common with training"):
        measure(train, good=train, val=other)
    assert tasks.calls == []


def test_a_training_set_of_one_class_is_refused_before_features_are_computed(
    measure: Measure, tasks: Tasks, tmp_path: Path
) -> None:
    train = write_colours(tmp_path / "train", {"ant": "red"}, 2)
    with pytest.raises(InputError, match="train = ant: shows only one class, and a classifier needs two"):
        measure(train, val=train)
    assert tasks.calls == []


def _write_coco(root: Path, split: str, categories: Mapping[int, str], num_images: int) -> None:
    """Pictures that show an object of each category, a square of its class's colour."""
    (root / f"{split}2017").mkdir(parents=True)
    (root / "annotations").mkdir(exist_ok=True)
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    used = {number: name for number, name in categories.items() if name in COLOURS}
    generator = np.random.default_rng(len(split))
    for number in range(1, num_images + 1):
        pixels = np.zeros((48, 48 * len(used), 3), dtype=np.int64)
        for place, (category, name) in enumerate(used.items()):
            pixels[:, place * 48 : place * 48 + 48] = np.asarray(Image.new("RGB", (1, 1), COLOURS[name]))
            left = place * 48 + 8
            square = [left, 8, left + 32, 8, left + 32, 40, left, 40]
            one = {"id": len(annotations) + 1, "image_id": number, "category_id": category, "iscrowd": 0}
            annotations.append({**one, "bbox": [left, 8, 32, 32], "area": 1024, "segmentation": [square]})
        noisy = (pixels + generator.integers(-20, 21, pixels.shape)).clip(0, 255).astype(np.uint8)
        Image.fromarray(noisy).save(root / f"{split}2017" / f"{number}.png")
        images.append({"id": number, "file_name": f"{number}.png", "width": noisy.shape[1], "height": 48})
    listed = [{"id": number, "name": name} for number, name in categories.items()]
    content = {"images": images, "annotations": annotations, "categories": listed}
    (root / "annotations" / f"instances_{split}2017.json").write_text(json.dumps(content))


@pytest.mark.parametrize("split", ["train", "val"])
def test_an_unused_category_on_one_side_changes_nothing(measure: Measure, tmp_path: Path, split: str) -> None:
    lists = {"train": {5: "ant", 6: "bee", 7: "cat"}, "val": {1: "ant", 2: "bee", 3: "cat"}}
    lists[split] = {0: "aardvark", **lists[split]}
    for name, categories in lists.items():
        _write_coco(tmp_path, name, categories, 3)
    train, val = (DataConfig(root=str(tmp_path), layout="coco-crop", split=name) for name in ("train", "val"))
    values = measure(train, val=val).values
    assert values["accuracies"] == {"val": 100.0}
    assert values["coverage"]["val"]["left_out"] == {}
    assert values["coverage"]["val"]["untested_classes"] == []


def test_an_unused_category_is_no_output_of_a_detector(tmp_path: Path) -> None:
    from objectaware.detection.data import TrainingImages, open_coco

    found = []
    for name, unused in (("plain", {}), ("more", {1: "aardvark", 8: "yak"})):
        _write_coco(tmp_path / name, "train", {5: "ant", 7: "bee"} | unused, 1)
        data = DataConfig(root=str(tmp_path / name), layout="coco", split="train")
        images = TrainingImages(open_coco(data), short_sides=(48,), max_side=200, seed=0)
        found.append((images.category_names, images.load(0, epoch=0, iteration=0)[1]["labels"].tolist()))
    assert found == [(("ant", "bee"), [1, 2])] * 2


def test_a_detector_is_not_trained_for_a_test_without_its_categories(
    context: Context, tmp_path: Path, tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("objectaware.stages.detection.train_on_ray", None)
    _write_coco(tmp_path, "train", {1: "ant", 2: "bee"}, 1)
    _write_coco(tmp_path, "val", {1: "cat", 2: "dog"}, 1)
    data, test = ({"root": str(tmp_path), "layout": "coco", "split": split} for split in ("train", "val"))
    more = {"batch_size": 1, "execution": {"use_gpu": False}}
    fields = {"checkpoint": str(tiny_checkpoint), "data": data, "test": test, **more}
    with pytest.raises(InputError, match="test = cat, dog: has no class in common with training, which knows ant, bee"):
        detection(context, DetectionConfig.model_validate(fields))


def test_precision_is_over_the_categories_that_the_detector_knows(tmp_path: Path) -> None:
    from objectaware.stages.detection import annotation_file, object_coverage, open_test, score

    _write_coco(tmp_path, "val", {1: "ant", 2: "bee", 3: "cat"}, 2)
    test = {"root": str(tmp_path), "layout": "coco", "split": "val"}
    config = DetectionConfig.model_validate({"published": "network.pth", "test": test})
    truth = json.loads(annotation_file(config).read_text())["annotations"]
    names = ("image_id", "category_id", "bbox")
    records = [{name: one[name] for name in names} | {"score": 1.0} for one in truth if one["category_id"] != 2]
    known = ["ant", "cat", "yak"]
    measures, by_category = score(config, records, known)["box"]
    assert measures["ap"] == pytest.approx(100.0)
    assert by_category == {"ant": pytest.approx(100.0), "cat": pytest.approx(100.0)}
    coverage = object_coverage(open_test(config), known)
    assert (coverage.num_samples, coverage.unknown_classes, coverage.untested_classes) == (4, {"bee": 2}, ("yak",))


def test_renamed_classes_are_other_data(tmp_path: Path) -> None:
    _write_coco(tmp_path / "one", "val", {1: "ant", 2: "bee"}, 1)
    crops = DataConfig(root=str(tmp_path / "one"), layout="coco-crop", split="val")
    before = data_hash(crops)
    path = tmp_path / "one" / "annotations" / "instances_val2017.json"
    path.write_text(path.read_text().replace('"bee"', '"cat"'))
    assert data_hash(crops) != before


def test_supervised_training_on_one_class_is_refused(tmp_path: Path) -> None:
    from objectaware.training.inputs import open_inputs

    data = write_colours(tmp_path / "train", {"ant": "red"}, 4)
    config = PretrainConfig.model_validate({"data": data, "method": "supervised", "batch_size": 2})
    with pytest.raises(InputError, match="data = ant: shows only one class"):
        open_inputs(config)


# Every kind of stage, each with something planted that cannot be right.


def _break(data: DataConfig) -> None:
    """Makes one picture of a class folder unreadable."""
    next(Path(data.root).glob("bee/*.png")).write_bytes(b"no picture")


def _classified(run: Callable[..., StageResult], make: Callable[..., Any]) -> Callable[..., dict[str, Any]]:
    def measured(context: Context, checkpoint: Path, place: Path) -> dict[str, Any]:
        val = write_colours(place / "val", {**SOME, "yak": "grey"}, 3)
        _break(val)
        train = write_colours(place / "train", SOME, 4)
        values = run(context, make(checkpoint, train, **{"fog-1": val})).values
        return dict(values["coverage"]["fog-1"])

    return measured


def _background(context: Context, checkpoint: Path, place: Path) -> dict[str, Any]:
    names = {"00_ant": "red", "01_bee": "yellow"}
    write_colours(place / "original" / "train", names, 4)
    for variant in VARIANTS:
        data = write_colours(place / variant / "val", {**names, "02_yak": "grey"}, 3)
        Path(data.root, "01_bee", "0.png").write_bytes(b"no picture")
    fields = {"checkpoint": str(checkpoint), "root": str(place), "center_crop": False, "holdout_fraction": 0.2, **CPU}
    values = background(context, BackgroundConfig.model_validate(fields)).values
    assert values["coverage"].keys() == set(VARIANTS)
    return dict(values["coverage"]["mixed_rand"])


def _contextual(run: Callable[..., StageResult], config: type[Any], **more: Any) -> Callable[..., dict[str, Any]]:
    def measured(context: Context, checkpoint: Path, place: Path) -> dict[str, Any]:
        data = write_colours(place / "data", {**SOME, "yak": "grey"}, 4)
        _break(data)
        fields = {"checkpoint": str(checkpoint), "data": data, "class_names": ["ant", "bee"], **more, **CPU}
        return dict(run(context, config.model_validate(fields)).values["coverage"]["data"])

    return measured


def _detection(context: Context, checkpoint: Path, place: Path) -> dict[str, Any]:
    _write_coco(place, "train", {1: "ant", 2: "bee"}, 2)
    _write_coco(place, "val", {4: "bee", 5: "cat"}, 2)
    data, test = ({"root": str(place), "layout": "coco", "split": split} for split in ("train", "val"))
    sizes = {"short_sides": [48], "test_short_side": 48, "max_side": 96, "num_regions": 4, "num_train_proposals": 8}
    length = {"num_iterations": 2, "batch_size": 2, "decay_iterations": [], "num_warmup_iterations": 1}
    more = {"num_test_proposals": 4, "num_precise_batches": 1, "execution": {"use_gpu": False}}
    fields = {"checkpoint": str(checkpoint), "data": data, "test": test, **sizes, **length, **more}
    values = detection(context, DetectionConfig.model_validate(fields)).values
    assert values["box_by_category"].keys() == {"bee"}
    return dict(values["coverage"]["test"])


def _scenes(place: Path) -> DataConfig:
    build_scenes(place, variant="single-object", num_train=9, num_val=9, image_size=32, seed=0)
    data = DataConfig(root=str(place), layout="backgrounds-challenge", split="val", variant="original")
    images = data.open()
    (Path(place, "original", "val") / images.image_ids[0]).write_bytes(b"no picture")
    return data


def _localization(context: Context, checkpoint: Path, place: Path) -> dict[str, Any]:
    from objectaware.localize.mask_store import write_shard

    data = _scenes(place)
    soft = np.ones((32, 32), dtype=np.float32)
    first, *others = data.open().image_ids
    rows = [MaskRow(first, 0, 0, status="failed", error="no picture"), *(MaskRow(one, 32, 32, soft) for one in others)]
    store = Storage.from_uri(place / "masks")
    write_shard(store, 0, rows)
    store.write_json("store.json", {"identity": "x", "config": {"crf": False}})
    config = LocalizationConfig(data=data, masks={"ours": str(place / "masks")}, image_size=32)
    return dict(localization(context, config).values["coverage"]["ours: masks"])


def _localizers(context: Context, checkpoint: Path, place: Path) -> dict[str, Any]:
    data = _scenes(place)
    fields = {
        "checkpoint": str(checkpoint),
        "data": data,
        "localizers": {"ours": {"localizer": "contracam", "crf": False}},
        "shared": {"image_size": 32, "group_size": 9, "execution": {"use_gpu": False}},
    }
    values = localizers(context, LocalizersConfig.model_validate(fields)).values
    return dict(values["coverage"]["ours: masks"])


_KNOWN_AND_READ = {"class unknown to training": 3, "unreadable": 1}
_OF_TWO = {"of none of the classes that count": 8, "unreadable": 1}
PLANTED: dict[str, tuple[Callable[[Context, Path, Path], dict[str, Any]], int, dict[str, int]]] = {
    "linear": (_classified(linear, _linear), 8, _KNOWN_AND_READ),
    "shift": (_classified(shift, _linear), 8, _KNOWN_AND_READ),
    "knn": (_classified(knn, _knn), 8, _KNOWN_AND_READ),
    "background": (_background, 5, _KNOWN_AND_READ),
    "few_shot": (
        _contextual(few_shot, FewShotConfig, num_shots=1),
        5,
        {**_OF_TWO, "shown to the classifier": 2},
    ),
    "class_distance": (_contextual(class_distance, ClassDistanceConfig, perplexity=2, num_points=3), 7, _OF_TWO),
    "detection": (_detection, 2, {"class unknown to training": 2}),
    "localization": (_localization, 8, {"unreadable": 1}),
    "localizers": (_localizers, 8, {"unreadable": 1}),
}
"""For each kind of stage that measures: what runs it, the samples of its measures, and those that it leaves out."""


def test_every_kind_of_stage_that_measures_is_tried() -> None:
    assert PLANTED.keys() == {kind for kind, stage in all_stages().items() if stage.measures}


@pytest.mark.parametrize("kind", PLANTED)
def test_a_measure_is_over_what_could_be_right_and_says_how_much_that_is(
    context: Context, tiny_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    work_in_process(monkeypatch)
    measured, num_samples, left_out = PLANTED[kind]
    coverage = measured(context, tiny_checkpoint, tmp_path)
    assert (coverage["num_samples"], coverage["left_out"]) == (num_samples, left_out)
    for stage in all_stages().values():
        written = context.services.storage.child(stage.kind)
        for folder in {name.partition("/")[0] for name, _, _ in written.list_files()}:
            assert delete_outputs(written.child(folder), stage.outputs) == [], "files that --fresh would leave"


@pytest.mark.parametrize("stage", [kind for kind, one in all_stages().items() if one.measures and one.version])
def test_a_stage_that_does_not_say_what_its_measures_are_over_fails(context: Context, stage: str) -> None:
    config = PretrainConfig.model_validate({"data": {"root": "photos"}})
    with pytest.raises(AssertionError, match="does not say what its measures are over"):
        run_as(context, stage, "title", config, {"data": stage}, lambda *_: {"coverage": {}}, tags={})
