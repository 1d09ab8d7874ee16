"""Average precision of detections that are known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pycocotools import mask as coco_mask

from objectaware.detection.detect import Kind, average_precision, category_numbers


def _truth(scenes: Path) -> tuple[Path, dict[str, Any]]:
    path = scenes / "annotations" / "instances_val2017.json"
    return path, json.loads(path.read_text())


def _results(content: dict[str, Any]) -> list[dict[str, Any]]:
    names = ("image_id", "category_id", "bbox", "segmentation")
    return [{name: one[name] for name in names} | {"score": 1.0} for one in content["annotations"]]


def _run_lengths(polygons: list[list[float]]) -> dict[str, Any]:
    (code,) = coco_mask.frPyObjects(polygons, 64, 64)
    return {"size": list(code["size"]), "counts": code["counts"].decode()}


@pytest.mark.parametrize("kind", ["box", "mask"])
def test_the_truth_has_an_average_precision_of_100(scenes: Path, kind: Kind) -> None:
    path, content = _truth(scenes)
    numbers = [image["id"] for image in content["images"]]
    measures, by_category = average_precision(_results(content), path, numbers, kind)
    assert [measures[name] for name in ("ap", "ap50", "ap75")] == pytest.approx([100.0] * 3)
    present = {one["category_id"] for one in content["annotations"]}
    assert by_category == {one["name"]: pytest.approx(100.0) for one in content["categories"] if one["id"] in present}


def test_boxes_moved_by_a_quarter_count_at_low_overlap_only(scenes: Path) -> None:
    path, content = _truth(scenes)
    results = _results(content)
    for result in results:
        x, y, width, height = result["bbox"]
        result["bbox"] = [x + width / 4, y, width, height]  # IoU 0.75 / 1.25 = 0.6
    measures, _ = average_precision(results, path, [image["id"] for image in content["images"]], "box")
    assert measures["ap50"] == pytest.approx(100)
    assert measures["ap75"] == 0
    assert measures["ap"] == pytest.approx(30)  # of 0.50, 0.55 … 0.95 the first three


def test_wrong_classes_and_no_detections_have_none(scenes: Path) -> None:
    path, content = _truth(scenes)
    numbers = [image["id"] for image in content["images"]]
    wrong = _results(content)
    for result in wrong:
        result["category_id"] = result["category_id"] % len(content["categories"]) + 1
    for results in (wrong, []):
        for kind in ("box", "mask"):
            assert average_precision(results, path, numbers, kind)[0]["ap"] == 0


def test_images_left_out_do_not_count(scenes: Path) -> None:
    path, content = _truth(scenes)
    first = content["images"][0]["id"]
    results = [one for one in _results(content) if one["image_id"] == first]
    assert average_precision(results, path, [first], "box")[0]["ap"] == pytest.approx(100)
    numbers = [image["id"] for image in content["images"]]
    assert average_precision(results, path, numbers, "box")[0]["ap"] < 100


def test_small_masks_are_told_by_the_mask_s_area(tmp_path: Path) -> None:
    """A thin diagonal is small, though its box is not."""
    segmentation = [[0.0, 0.0, 4.0, 0.0, 60.0, 56.0, 60.0, 60.0, 56.0, 60.0, 0.0, 4.0]]
    annotation = {"id": 1, "image_id": 1, "category_id": 1, "bbox": [0, 0, 60, 60], "area": 460.0, "iscrowd": 0}
    content = {
        "images": [{"id": 1, "file_name": "1.png", "width": 64, "height": 64}],
        "annotations": [annotation | {"segmentation": segmentation}],
        "categories": [{"id": 1, "name": "rod"}],
    }
    path = tmp_path / "truth.json"
    path.write_text(json.dumps(content))
    wrong = {"image_id": 1, "category_id": 1, "bbox": [0, 0, 60, 60], "score": 0.9}
    right = wrong | {"segmentation": _run_lengths(segmentation), "score": 0.5}
    # The better-scored miss is as small as the object, and so counts against the small ones.
    missed = wrong | {"segmentation": _run_lengths([[60.0, 0.0, 63.0, 0.0, 63.0, 60.0, 60.0, 60.0]])}
    measures, _ = average_precision([missed, right], path, [1], "mask")
    assert measures["ap_small"] == pytest.approx(50)


def test_categories_are_numbered_as_in_the_file(scenes: Path) -> None:
    path, content = _truth(scenes)
    assert category_numbers(path) == {one["name"]: one["id"] for one in content["categories"]}


def test_what_a_file_may_lack_does_not_change_the_score(scenes: Path, tmp_path: Path) -> None:
    """Numbers of annotations that are missing or begin at 0, and `iscrowd` that is missing or a truth value."""
    path, content = _truth(scenes)
    results, numbers = _results(content), [image["id"] for image in content["images"]]
    expected, _ = average_precision(results, path, numbers, "box")
    for place, annotation in enumerate(content["annotations"]):
        annotation["iscrowd"] = False
        annotation["id"] = place
        if place % 2:
            del annotation["iscrowd"]
    (tmp_path / "from_0.json").write_text(json.dumps(content))
    for annotation in content["annotations"]:
        del annotation["id"]
    (tmp_path / "without.json").write_text(json.dumps(content))
    for name in ("from_0.json", "without.json"):
        assert average_precision(results, tmp_path / name, numbers, "box")[0] == pytest.approx(expected)
