"""Scoring of masks against the truth of each published layout, without Ray."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from pydantic import ValidationError

from objectaware.config import DataConfig
from objectaware.data.dataset import Dataset
from objectaware.data.folder import ImageFolder
from objectaware.data.storage import Storage
from objectaware.errors import InputError
from objectaware.evaluate.mask_scores import MaskScores, best_center_box
from objectaware.localize.baselines import center_map, contrast_map
from objectaware.localize.center_box import center_box
from objectaware.localize.mask_store import MaskRow, write_shard
from objectaware.localize.objects import dense_crf
from objectaware.stages.identity import recipe
from objectaware.stages.localization import (
    BEST_CENTER_BOX,
    CENTER_MAP,
    CONTRAST_MAP,
    FULL_IMAGE,
    LocalizationConfig,
    baseline_names,
    localization,
    looks_at_pictures,
    measure_baseline,
    measure_masks,
    measure_truth,
)
from objectaware.stages.runner import Context
from published_trees import KINDS, write_part

OF_MASKS = {"miou", "miou_1_255", "px_ap"}
OF_BOXES = {"max_box_acc_v2", "corloc"}
SAME_AREA = {"same_area_miou": OF_MASKS, "same_area_corloc": OF_BOXES}
COUNTS = {"mask_share", "num_images", "num_missing"}


def _write_masks(folder: Path, image_ids: list[str], masks: list[np.ndarray]) -> str:
    for image_id, mask in zip(image_ids, masks, strict=True):
        path = (folder / image_id).with_suffix(".png")
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(mask.astype(np.uint8) * 255).save(path)
    return str(folder)


def _perfect(data: DataConfig) -> tuple[list[str], list[np.ndarray]]:
    """For each image its true mask, or where there are boxes alone the largest of them, filled."""
    images = data.open()
    assert isinstance(images, ImageFolder)
    truth = Dataset.of(data).truth()
    if truth.has_masks:
        return images.image_ids, [truth[index] for index in range(len(truth))]
    masks = []
    for index in range(len(truth)):
        boxes = truth.boxes(index) * np.array([40, 30, 40, 30])
        x0, y0, x1, y1 = max(boxes.round().astype(int), key=lambda box: (box[2] - box[0]) * (box[3] - box[1]))
        mask = np.zeros((30, 40), dtype=bool)
        mask[y0:y1, x0:x1] = True
        masks.append(mask)
    return images.image_ids, masks


def _baselines(config: LocalizationConfig) -> dict[str, dict[str, float]]:
    """The rows of all baselines."""
    truths = Dataset.of(config.data).truth()
    names = baseline_names(truths, looks_at_pictures(config, truths))
    return {row: cells for name in names for row, cells in measure_baseline(config, name)["scores"].items()}


@pytest.mark.parametrize("kind", KINDS)
def test_the_truth_itself_has_all_of_the_measures_that_its_layout_allows(tmp_path: Path, kind: str) -> None:
    data = write_part(tmp_path, kind)
    image_ids, masks = _perfect(data)
    system = _write_masks(tmp_path / "masks", image_ids, masks)
    config = LocalizationConfig(data=data, masks={"truth": system}, image_size=224)
    values = measure_masks(config, "truth")
    has_masks, has_ignored, has_boxes = KINDS[kind]
    scores = values["scores"]["truth"]
    expected = (OF_MASKS if has_masks else set()) | (OF_BOXES if has_boxes else set())
    same_area = {name for name, beside in SAME_AREA.items() if beside <= expected}
    assert scores.keys() == expected | same_area | COUNTS
    assert scores["num_images"] == len(image_ids)
    assert len(values["boxes_per_image"]) == len(image_ids)
    if has_masks:
        assert scores["miou"] == pytest.approx(1, abs=0.05)  # flowers lose their specks
        assert scores["px_ap"] == pytest.approx(100, abs=1)
    if kind not in ("coco", "flowers102", "voc-masks"):  # objects that touch, noise, and a border that is left out
        assert all(scores[measure] == 100 for measure in expected & OF_BOXES)
    baselines = _baselines(config.model_copy(update={"image_size": 48}))
    names = {FULL_IMAGE, CENTER_MAP}
    names |= {BEST_CENTER_BOX} if has_masks and not has_ignored else set()
    names |= {CONTRAST_MAP} if has_masks else set()
    assert set(baselines) == names | ({f"{name} + CRF" for name in names} if has_masks else set())
    assert all(math.isfinite(value) for row in baselines.values() for value in row.values())
    for name, row in baselines.items():
        gains = {"crf_miou", "crf_corloc"} if name.endswith("CRF") else set()
        assert row.keys() - gains == scores.keys()
    assert len(measure_truth(config)["boxes_per_image"]) == len(image_ids)


def test_masks_that_are_named_truth_leave_the_baselines(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def in_process(function: Callable[..., Any], tasks: Sequence[tuple[Any, ...]], **_: object) -> list[Any]:
        return [function(*task) for task in tasks]

    monkeypatch.setattr("objectaware.stages.localization.run_tasks", in_process)
    data = write_part(tmp_path, "cub")
    system = _write_masks(tmp_path / "masks", *_perfect(data))
    rows = {}
    for name in ("truth", "ours"):
        values = localization(context, LocalizationConfig(data=data, masks={name: system}, image_size=224)).values
        rows[name] = [{row.replace(name, "masks") for row in values[part]} for part in ("scores", "coverage")]
    assert rows["truth"] == rows["ours"]
    assert {FULL_IMAGE, "masks"} <= rows["truth"][0]


def test_ignored_pixels_change_nothing(tmp_path: Path) -> None:
    """Masks that also cover what is ignored, and masks that do not, are worth the same."""
    data = write_part(tmp_path, "wsolevaluation-masks")
    image_ids, masks = _perfect(data)
    truth = Dataset.of(data).truth()
    more = [mask | ignored for index, mask in enumerate(masks) if (ignored := truth.ignored(index)) is not None]
    addresses = {
        "exact": _write_masks(tmp_path / "exact", image_ids, masks),
        "more": _write_masks(tmp_path / "more", image_ids, more),
        "all": _write_masks(tmp_path / "all", image_ids, [np.ones((30, 40), dtype=bool)] * 6),
    }
    config = LocalizationConfig(data=data, masks=addresses, image_size=224)
    scores = {name: measure_masks(config, name)["scores"][name] for name in addresses}
    for measure in OF_MASKS:
        assert scores["exact"][measure] == scores["more"][measure]
        assert scores["exact"][measure] > scores["all"][measure]
    counted = sum(~ignored for index in range(6) if (ignored := truth.ignored(index)) is not None)
    assert scores["all"]["px_ap"] == pytest.approx(100 * sum(masks).sum() / counted.sum())


def test_the_center_map_of_boxes_is_the_best_centred_box_at_each_iou(tmp_path: Path) -> None:
    data = write_part(tmp_path, "wsolevaluation")
    config = LocalizationConfig(data=data, masks={}, image_size=64)
    scores = _baselines(config)
    assert scores[CENTER_MAP].keys() == scores[FULL_IMAGE].keys() == {*OF_BOXES, "same_area_corloc", *COUNTS}
    assert scores[CENTER_MAP]["max_box_acc_v2"] >= scores[FULL_IMAGE]["max_box_acc_v2"]
    truth = Dataset.of(data).truth()
    boxes = [truth.boxes(index) * 64 for index in range(6)]
    best = [max(_num_hits(boxes, side, iou) for side in range(2, 65, 2)) for iou in (0.3, 0.5, 0.7)]
    assert scores[CENTER_MAP]["max_box_acc_v2"] == pytest.approx(100 * np.mean(best) / 6, abs=6)


def _num_hits(boxes: list[np.ndarray], side: int, iou: float) -> int:
    edges = np.array([32 - side / 2, 32 + side / 2])
    hits = 0
    for each in boxes:
        ious = []
        for x0, y0, x1, y1 in each:
            shared = max(min(edges[1], x1) - max(edges[0], x0), 0) * max(min(edges[1], y1) - max(edges[0], y0), 0)
            ious.append(shared / (side**2 + (x1 - x0) * (y1 - y0) - shared))
        hits += max(ious) >= iou
    return hits


def test_the_best_center_box_has_the_measures_of_its_mask(tmp_path: Path) -> None:
    """As a user would get them who gave that mask for every image."""
    data = write_part(tmp_path, "backgrounds-challenge")
    image_ids = data.open().image_ids
    truth = Dataset.of(data).truth()
    masks = [truth[index] for index in range(len(truth))]
    side_fraction, _ = best_center_box(masks)
    system = _write_masks(tmp_path / "masks", image_ids, [center_box(64, 64, side_fraction)] * len(masks))
    config = LocalizationConfig(data=data, masks={"box": system}, image_size=64)
    found = _baselines(config)[BEST_CENTER_BOX]
    assert found == pytest.approx(measure_masks(config, "box")["scores"]["box"])
    assert {"corloc", "max_box_acc_v2", "miou", "px_ap"} <= found.keys()


@pytest.mark.parametrize("name", [BEST_CENTER_BOX, CENTER_MAP, CONTRAST_MAP, FULL_IMAGE])
def test_every_baseline_is_scored_before_and_after_the_crf_of_its_picture(tmp_path: Path, name: str) -> None:
    """As the masks of a localizer that finds the same map in each picture."""
    data = write_part(tmp_path, "cub")
    dataset = Dataset.of(data)
    truth = dataset.truth()
    before, after = MaskScores(64), MaskScores(64)
    for index in range(len(truth)):
        image = np.array(Image.fromarray(dataset.images.read(index)).resize((64, 64), Image.Resampling.BILINEAR))
        box = center_box(64, 64, best_center_box([truth[0], truth[1]])[0])
        soft = {
            BEST_CENTER_BOX: box.astype(np.float32),
            CENTER_MAP: center_map(64),
            CONTRAST_MAP: contrast_map(image, window=13),
            FULL_IMAGE: np.ones((64, 64), dtype=np.float32),
        }[name]
        is_hard = name in (BEST_CENTER_BOX, FULL_IMAGE)
        before.add(soft, truth[index], truth.boxes(index))
        after.add(dense_crf(image, np.where(soft > 0, 0.7, 0.3) if is_hard else soft), truth[index], truth.boxes(index))
    scores = measure_baseline(LocalizationConfig(data=data, masks={}, image_size=64), name)["scores"]
    assert scores[name] == pytest.approx(before.result(), abs=1e-3)
    refined = scores[f"{name} + CRF"]
    gain = refined.pop("crf_miou")
    assert refined.pop("crf_corloc") == refined["corloc"] - scores[name]["corloc"]
    assert refined == pytest.approx(after.result(), rel=0.01)
    assert gain == pytest.approx(after.result()["miou"] - before.result()["miou"], abs=0.01)
    assert (abs(gain) < 1e-6) == (name == FULL_IMAGE)  # all others gain or lose


def test_baselines_look_at_no_picture_where_they_are_not_to(tmp_path: Path) -> None:
    data = write_part(tmp_path, "cub")
    config = LocalizationConfig(data=data, masks={}, image_size=64, picture_baselines=False)
    assert set(_baselines(config)) == {BEST_CENTER_BOX, CENTER_MAP, FULL_IMAGE}
    part = write_part(tmp_path / "b", "wsolevaluation")
    boxes = LocalizationConfig(data=part, masks={}, image_size=48, picture_baselines=True)
    rows = _baselines(boxes)
    assert set(rows) == {f"{name}{end}" for name in (CENTER_MAP, CONTRAST_MAP, FULL_IMAGE) for end in ("", " + CRF")}
    assert {"corloc", "max_box_acc_v2", "crf_corloc"} <= rows["center map + CRF"].keys()


def test_pictures_that_cannot_be_read_are_left_out_of_baselines_as_of_masks(tmp_path: Path) -> None:
    data = write_part(tmp_path, "backgrounds-challenge")
    images = data.open()
    assert isinstance(images, ImageFolder)
    config = LocalizationConfig(data=data, masks={}, image_size=64)
    images.path(0).write_bytes(b"not a picture")
    num_readable = len(images) - 1
    values = measure_baseline(config, CENTER_MAP)
    for row in (CENTER_MAP, "center map + CRF"):
        assert values["scores"][row]["num_images"] == num_readable
    assert values["coverage"]["baselines: masks"]["left_out"] == {"unreadable": 1}
    for index in range(len(images)):
        images.path(index).write_bytes(b"not a picture")
    rows = _baselines(config)
    assert set(rows) == {BEST_CENTER_BOX, CENTER_MAP, FULL_IMAGE}
    assert rows[CENTER_MAP]["num_images"] == len(images)
    with pytest.raises(InputError, match="none that can be read"):
        measure_baseline(config.model_copy(update={"picture_baselines": True}), CENTER_MAP)


def test_a_layout_without_truth_is_refused_by_naming_those_with(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match=r"folder has neither true masks nor true boxes; those that have: .*voc"):
        LocalizationConfig(data=DataConfig(root=str(tmp_path)), masks={})


def test_the_user_is_told_of_masks_that_were_not_downloaded(tmp_path: Path) -> None:
    data = write_part(tmp_path, "cub")
    config = LocalizationConfig(data=data, masks={}, image_size=64)
    assert measure_truth(config)["notice"] == ""
    (tmp_path / "cub" / "segmentations").rename(tmp_path / "elsewhere")
    values = measure_truth(config)
    assert "segmentations" in values["notice"]
    assert set(_baselines(config)) == {FULL_IMAGE, CENTER_MAP}


def test_another_truth_is_another_identity_and_another_place_is_not(tmp_path: Path) -> None:
    data = write_part(tmp_path, "wsolevaluation")
    before = Dataset.of(data).truth().content_hash(verify=True)
    moved = write_part(tmp_path / "moved", "wsolevaluation")
    assert Dataset.of(moved).truth().content_hash(verify=True) == before
    masks = {"some": "masks"}
    assert recipe(LocalizationConfig(data=moved, masks=masks)) == recipe(LocalizationConfig(data=data, masks=masks))
    path = tmp_path / "metadata" / "wsolevaluation" / "test" / "localization.txt"
    path.write_text(path.read_text().replace(",0,0,2,3", ",0,0,3,3"))
    assert Dataset.of(data).truth().content_hash(verify=True) != before


def test_other_variants_of_the_challenge_have_no_truth(tmp_path: Path) -> None:
    data = write_part(tmp_path, "backgrounds-challenge")
    assert Dataset.of(data).find_truth()[0] is not None
    mixed = data.model_copy(update={"variant": "mixed_rand"})
    assert Dataset.of(mixed).find_truth() == (None, "")


def test_a_store_in_which_no_image_was_read_is_not_scored(tmp_path: Path) -> None:
    data = write_part(tmp_path, "cub")
    image_ids = data.open().image_ids
    store = Storage.from_uri(tmp_path / "store")
    write_shard(store, 0, [MaskRow(image_id, 0, 0, status="failed", error="empty") for image_id in image_ids])
    store.write_json("store.json", {"config": {"crf": False}})
    config = LocalizationConfig(data=data, masks={"system": store.uri}, image_size=224)
    with pytest.raises(InputError, match="has no mask of any of the 2 images"):
        measure_masks(config, "system")


@pytest.mark.parametrize("checkpoint", ["nowhere://bucket/network", f"/{'x' * 300}"])
def test_masks_are_scored_though_their_network_cannot_be_looked_at(
    context: Context, tmp_path: Path, checkpoint: str
) -> None:
    store = Storage.from_uri(tmp_path / "store")
    store.write_json("store.json", {"identity": "i", "config": {"checkpoint": checkpoint}})
    config = LocalizationConfig(data=write_part(tmp_path, "cub"), masks={"system": store.uri})
    assert localization.work is not None
    assert localization.work(context, config).networks == []


@pytest.mark.parametrize("crf", [False, True])
def test_a_picture_that_was_read_and_not_localized_counts_as_one_without_a_mask(tmp_path: Path, crf: bool) -> None:
    """Failing where there are no negatives makes a localizer no better; images that cannot be read are left out."""
    data = write_part(tmp_path, "cub")
    image_ids, masks = _perfect(data)
    store = Storage.from_uri(tmp_path / "store")
    soft = masks[0].astype(np.float32)
    found = MaskRow(image_ids[0], 40, 30, cam=soft, refined=soft if crf else None, mask=masks[0])
    store.write_json("store.json", {"config": {"crf": crf}})
    config = LocalizationConfig(data=data, masks={"system": store.uri}, image_size=224)
    results = {}
    for width, height in ((40, 30), (0, 0)):
        write_shard(store, 0, [found, MaskRow(image_ids[1], width, height, status="failed", error="why")])
        results[height] = measure_masks(config, "system")
    for row in ("system", "system soft")[: 1 + crf]:
        read, unread = results[30]["scores"][row], results[0]["scores"][row]
        assert (read["num_images"], read["num_missing"], unread["num_images"]) == (2, 1, 1)
        assert read["miou"] == pytest.approx(unread["miou"] / 2)
        assert (read["corloc"], unread["corloc"]) == (50, 100)
    has_gains = {name for name in results[0]["scores"]["system"] if name.startswith("crf_")}
    assert has_gains == ({"crf_miou", "crf_corloc"} if crf else set())
    assert results[30]["coverage"]["system: masks"]["left_out"] == {}
    assert results[0]["coverage"]["system: masks"]["left_out"] == {"unreadable": 1}


def test_what_the_crf_adds_is_the_refined_row_minus_the_soft_one(tmp_path: Path) -> None:
    data = write_part(tmp_path, "cub")
    image_ids, masks = _perfect(data)
    store = Storage.from_uri(tmp_path / "store")
    refined = [mask.astype(np.float32) for mask in masks]
    soft = [np.ones_like(mask) for mask in refined]
    rows = [
        MaskRow(one, 40, 30, cam=before, refined=after, mask=after > 0)
        for one, before, after in zip(image_ids, soft, refined, strict=True)
    ]
    write_shard(store, 0, rows)
    store.write_json("store.json", {"config": {"crf": True}})
    values = measure_masks(LocalizationConfig(data=data, masks={"system": store.uri}, image_size=224), "system")
    assert [*values["by_size"]] == ["small", "medium", "large"]
    tables = [values["scores"], *filter(None, values["by_size"].values())]
    assert len(tables) == 2  # all of these birds are of one size
    for rows_of in tables:
        gains, before = rows_of["system"], rows_of["system soft"]
        assert gains["crf_miou"] == pytest.approx(1 - before["miou"], abs=0.02)
        assert gains["crf_miou"] > 0.5
        assert gains["crf_corloc"] == gains["corloc"] - before["corloc"]
        assert "crf_miou" not in before
