from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray
from pycocotools.coco import COCO

from objectaware.config import DataConfig
from objectaware.data import scenes
from objectaware.data.dataset import Dataset
from objectaware.data.scenes import build_scenes
from objectaware.data.scenes.outlines import CLASS_NAMES
from objectaware.data.scenes.pictures import draw_plan, render_scene, render_variants
from objectaware.data.sets.backgrounds_challenge import VARIANTS
from objectaware.data.sets.coco import load_coco
from objectaware.errors import InputError
from opened_parts import open_part

SMALL: dict[str, Any] = {"num_train": 18, "num_val": 9, "image_size": 48}


def contents(root: Path) -> dict[str, bytes]:
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def read(path: Path) -> NDArray[np.uint8]:
    image = cv2.imread(str(path))
    assert image is not None
    return image[:, :, ::-1].astype(np.uint8)


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("scenes") / "single"
    build_scenes(out, variant="single-object", **SMALL)
    return out


@pytest.fixture(scope="module")
def multi(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("scenes") / "multi"
    build_scenes(out, variant="multi-object", **SMALL)
    return out


@pytest.mark.parametrize("variant", ["single-object", "multi-object"])
def test_same_seed_gives_the_same_bytes(variant: Any, tmp_path: Path, single: Path, multi: Path) -> None:
    build_scenes(tmp_path / "again", variant=variant, **SMALL)
    assert contents(tmp_path / "again") == contents(single if variant == "single-object" else multi)


def test_a_picture_does_not_depend_on_how_many_there_are(tmp_path: Path, single: Path) -> None:
    build_scenes(tmp_path / "fewer", variant="single-object", **(SMALL | {"num_train": 9}))
    fewer, more = contents(tmp_path / "fewer"), contents(single)
    pictures = [name for name in fewer if name != "scenes.json"]
    assert len(pictures) == 9 * 18
    assert all(fewer[name] == more[name] for name in pictures)


def test_other_seed_gives_other_pictures(tmp_path: Path, single: Path) -> None:
    build_scenes(tmp_path / "other", variant="single-object", seed=1, **SMALL)
    first, second = contents(single), contents(tmp_path / "other")
    assert first.keys() == second.keys()
    assert not any(first[name] == second[name] for name in first)


def test_train_and_val_pictures_differ(single: Path) -> None:
    for class_folder in (single / "original" / "val").iterdir():
        [val] = class_folder.iterdir()
        train = [path.read_bytes() for path in (single / "original" / "train" / class_folder.name).iterdir()]
        assert val.read_bytes() not in train


def test_backgrounds_challenge_layout_is_read_by_its_loader(single: Path) -> None:
    for variant in VARIANTS:
        for split, count in (("train", 18), ("val", 9)):
            dataset = open_part("backgrounds-challenge", single, split, variant=variant)
            assert len(dataset) == count
            assert dataset.class_names[4] == "04_plus sign"
            assert [name[3:] for name in dataset.class_names] == list(CLASS_NAMES)
            assert dataset.labels is not None
            assert np.bincount(dataset.labels).tolist() == [count // 9] * 9
    data = Dataset.of(DataConfig(root=str(single), layout="backgrounds-challenge", split="val"))
    originals, truth = data.images, data.truth()
    for index in range(len(originals)):
        mask = truth.mask(index)
        assert mask.dtype == bool
        assert mask.shape == originals.read(index).shape[:2] == (48, 48)


def test_files_hold_what_was_drawn(single: Path) -> None:
    for index in range(9):
        plan = draw_plan(0, "val", index, variant="single-object", correlation=0.9)
        pictures, mask = render_variants(plan, 48)
        place = f"val/{index:02d}_{CLASS_NAMES[index]}/val_{index:06d}"
        assert np.array_equal(np.load(single / "fg_mask" / f"{place}.npy"), mask)
        for variant, picture in pictures.items():
            error = np.abs(read(single / variant / f"{place}.JPEG").astype(int) - picture)
            assert error.mean() < 6, variant
        assert read(single / "only_fg" / f"{place}.JPEG")[~mask].mean() < 4
        assert read(single / "no_fg" / f"{place}.JPEG")[mask].mean() < 4


def test_coco_annotations_equal_the_drawn_masks(multi: Path) -> None:
    for split, count in (("train", 18), ("val", 9)):
        coco = COCO(str(multi / "annotations" / f"instances_{split}2017.json"))
        assert len(coco.getImgIds()) == count
        assert [category["name"] for category in coco.loadCats(coco.getCatIds())] == list(CLASS_NAMES)
        for index, image_id in enumerate(sorted(coco.getImgIds())):
            plan = draw_plan(0, split, index, variant="multi-object", correlation=0.9)  # type: ignore[arg-type]
            picture, masks = render_scene(plan, 48)  # type: ignore[arg-type]
            annotations = coco.loadAnns(coco.getAnnIds(image_id))
            assert [annotation["category_id"] - 1 for annotation in annotations] == list(plan.classes)
            for annotation, mask in zip(annotations, masks, strict=True):
                assert np.array_equal(coco.annToMask(annotation).astype(bool), mask)
                assert annotation["area"] == mask.sum()
                x, y, width, height = annotation["bbox"]
                assert mask[y : y + height, x : x + width].sum() == mask.sum()
                assert mask[y].any()
                assert mask[y + height - 1].any()
                assert mask[:, x].any()
                assert mask[:, x + width - 1].any()
            [record] = coco.loadImgs(image_id)
            written = read(multi / f"{split}2017" / record["file_name"])
            assert np.abs(written.astype(int) - picture).mean() < 6


def test_coco_layout_is_read_by_its_loader(multi: Path) -> None:
    dataset = load_coco(multi, "val")
    plan = draw_plan(0, "val", 2, variant="multi-object", correlation=0.9)
    _, masks = render_scene(plan, 48)
    assert np.array_equal(dataset.foreground_mask(2), masks.any(axis=0))
    assert [one.category_index for one in dataset.annotations(2)] == list(plan.classes)


def test_single_object_in_the_coco_layout_shows_the_same_pictures(tmp_path: Path, single: Path) -> None:
    build_scenes(tmp_path / "coco", variant="single-object", layout="coco", **SMALL)
    first = (tmp_path / "coco" / "val2017" / "000000000001.jpg").read_bytes()
    assert first == (single / "original" / "val" / "00_disk" / "val_000000.JPEG").read_bytes()


def test_finished_folder_is_left_alone(single: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in single.rglob("*")}
    build_scenes(single, variant="single-object", **SMALL)
    assert {path: path.stat().st_mtime_ns for path in single.rglob("*")} == before


def test_marker_records_the_parameters(single: Path) -> None:
    assert json.loads((single / "scenes.json").read_text()) == {
        "name": "scenes",
        "format_version": 3,
        "variant": "single-object",
        "layout": "backgrounds-challenge",
        "num_train": 18,
        "num_val": 9,
        "image_size": 48,
        "correlation": 0.9,
        "seed": 0,
    }


def test_interrupted_build_is_completed(tmp_path: Path, multi: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "scenes"
    written = 0
    write_jpeg = scenes.write_jpeg

    def stop_after_five(path: Path, image: NDArray[np.uint8]) -> None:
        nonlocal written
        if written == 5:
            path.write_bytes(b"half a pict")
            raise KeyboardInterrupt
        written += 1
        write_jpeg(path, image)

    with monkeypatch.context() as patch:
        patch.setattr(scenes, "write_jpeg", stop_after_five)
        with pytest.raises(KeyboardInterrupt):
            build_scenes(out, variant="multi-object", **SMALL)
    assert not (out / "scenes.json").exists()
    with pytest.raises(InputError, match="other parameters"):
        build_scenes(out, variant="multi-object", seed=1, **SMALL)
    build_scenes(out, variant="multi-object", **SMALL)
    assert contents(out) == contents(multi)


@pytest.mark.parametrize("written", ["", '{\n  "name": "sce'])
def test_a_build_killed_while_it_claims_its_folder_is_begun_again(tmp_path: Path, single: Path, written: str) -> None:
    (tmp_path / ".scenes-unfinished.json").write_text(written)
    build_scenes(tmp_path, variant="single-object", **SMALL)
    assert contents(tmp_path) == contents(single)


def test_a_half_built_folder_of_other_parameters_is_refused(tmp_path: Path) -> None:
    (tmp_path / ".scenes-unfinished.json").write_text("{}\n")
    with pytest.raises(InputError, match="other parameters"):
        build_scenes(tmp_path, variant="single-object", **SMALL)


def test_finished_folder_of_other_parameters_is_refused(single: Path) -> None:
    with pytest.raises(InputError, match="other parameters") as refusal:
        build_scenes(single, variant="single-object", correlation=0.5, **SMALL)
    assert refusal.value.field == "out"


def test_foreign_folder_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "photo.jpg").write_bytes(b"mine")
    with pytest.raises(InputError, match="not scenes") as refusal:
        build_scenes(tmp_path, variant="single-object", **SMALL)
    assert refusal.value.field == "out"
    assert contents(tmp_path) == {"photo.jpg": b"mine"}


def test_file_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "scenes").write_text("mine")
    with pytest.raises(InputError, match="is a file"):
        build_scenes(tmp_path / "scenes", variant="single-object", **SMALL)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("correlation", -0.1),
        ("correlation", 1.5),
        ("correlation", float("nan")),
        ("image_size", 31),
        ("num_train", 8),
        ("num_val", 0),
        ("seed", -1),
        ("variant", "no-object"),
        ("layout", "voc"),
    ],
)
def test_impossible_parameters_are_refused_before_anything_is_written(field: str, value: Any, tmp_path: Path) -> None:
    with pytest.raises(InputError) as refusal:
        build_scenes(tmp_path / "scenes", **({"variant": "single-object"} | SMALL | {field: value}))
    assert refusal.value.field == field
    assert not (tmp_path / "scenes").exists()


def test_several_objects_do_not_fit_the_backgrounds_challenge_layout(tmp_path: Path) -> None:
    with pytest.raises(InputError) as refusal:
        build_scenes(tmp_path / "scenes", variant="multi-object", layout="backgrounds-challenge", **SMALL)
    assert refusal.value.field == "layout"
