from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from objectaware.config import DataConfig
from objectaware.data.dataset import Dataset
from objectaware.data.images import UnreadableImage
from objectaware.data.sets.coco import CroppedObjects, ObjectBoxes, load_coco
from objectaware.errors import InputError


def _val(root: Path) -> Dataset:
    return Dataset.of(DataConfig(root=str(root), layout="coco", split="val"))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Image 2 (20 x 10, gray) with three objects, one of them a crowd; image 9 (8 x 6) with none."""
    annotations = [
        annotation(2, 3, [[4, 2, 8, 2, 8, 6, 4, 6]], [4, 2, 4, 4], 16),
        annotation(2, 18, [[18, 8, 19, 8, 19, 9, 18, 9]], [18, 8, 1, 1], 1),
        annotation(2, 3, {"size": [10, 20], "counts": [0, 20, 180]}, [0, 0, 2, 10], 20, is_crowd=1),
    ]
    content = {
        "images": [
            {"id": 9, "file_name": "b.jpg", "width": 8, "height": 6},
            {"id": 2, "file_name": "a.jpg", "width": 20, "height": 10},
        ],
        "annotations": annotations,
        "categories": [{"id": 18, "name": "dog"}, {"id": 3, "name": "car"}],
    }
    (tmp_path / "val2017").mkdir()
    Image.new("L", (20, 10), 50).save(tmp_path / "val2017" / "a.jpg")
    Image.new("RGB", (8, 6)).save(tmp_path / "val2017" / "b.jpg")
    (tmp_path / "annotations").mkdir()
    (tmp_path / "annotations" / "instances_val2017.json").write_text(json.dumps(content))
    return tmp_path


def annotation(
    image: int, category: int, segmentation: Any, box: list[float], area: float, is_crowd: int = 0
) -> dict[str, Any]:
    keys = {"image_id": image, "category_id": category, "iscrowd": is_crowd}
    return {**keys, "segmentation": segmentation, "bbox": box, "area": area}


def test_images_are_in_number_order(root: Path) -> None:
    coco = load_coco(root, "val")
    assert len(coco) == 2
    assert coco.images.image_ids == ["a.jpg", "b.jpg"]
    assert coco.images.root == root / "val2017"
    assert coco.images.read(0).shape == (10, 20, 3)
    assert coco.category_names == ("car", "dog")


def test_foreground_is_the_union_of_all_instances_and_crowds(root: Path) -> None:
    coco = load_coco(root, "val")
    expected = np.zeros((10, 20), dtype=bool)
    expected[2:6, 4:8] = expected[8, 18] = expected[:, :2] = True
    assert np.array_equal(coco.foreground_mask(0), expected)
    assert coco.foreground_mask(1).shape == (6, 8)
    assert not coco.foreground_mask(1).any()


def test_each_class_has_a_mask_of_its_own(root: Path) -> None:
    truth = _val(root).truth()
    assert truth.has_classes
    cars, dogs = np.zeros((10, 20), bool), np.zeros((10, 20), bool)
    cars[2:6, 4:8] = dogs[8:9, 18:19] = True
    cars[:, :2] = True  # the crowd
    masks = truth.class_masks(0)
    assert list(masks) == ["car", "dog"]
    np.testing.assert_array_equal(masks["car"], cars)
    np.testing.assert_array_equal(masks["dog"], dogs)
    assert truth.class_masks(1) == {}


def test_instances_have_relative_boxes(root: Path) -> None:
    coco = load_coco(root, "val")
    expected = [(0.2, 0.2, 0.4, 0.6), (0.9, 0.8, 0.95, 0.9), (0.0, 0.0, 0.1, 1.0)]
    assert coco.annotated_boxes(0, min_area=0).tolist() == [list(box) for box in expected]
    assert [one.category_index for one in coco.annotations(0)] == [0, 1, 0]
    assert [one.area for one in coco.annotations(0)] == [16, 1, 20]
    assert coco.annotated_boxes(1, min_area=0).shape == (0, 4)


def test_object_crops_leave_out_small_objects_and_add_the_margin(root: Path) -> None:
    first, crowd = CroppedObjects(load_coco(root, "val")).crops
    assert (first.image_index, first.label) == (0, 0)
    # 20% of the width (0.2) and height (0.4) on each side
    assert first.annotated_box == pytest.approx((0.16, 0.12, 0.44, 0.68))
    assert crowd.annotated_box == pytest.approx((0.0, 0.0, 0.12, 1.0))  # cut at the border


def test_min_area_of_object_crops_is_inclusive(root: Path) -> None:
    coco = load_coco(root, "val")
    assert [crop.label for crop in CroppedObjects(coco, min_area=0.005, margin=0).crops] == [0, 1, 0]
    assert [crop.label for crop in CroppedObjects(coco, min_area=0.0051, margin=0).crops] == [0, 0]
    assert CroppedObjects(coco, min_area=0.08, margin=0).crops[0].annotated_box == (0.2, 0.2, 0.4, 0.6)


def test_object_boxes_are_each_pictures_larger_objects_with_the_margin(root: Path) -> None:
    boxes = ObjectBoxes(load_coco(root, "val"))
    assert len(boxes) == 2
    assert boxes[0] == pytest.approx(np.array([[0.16, 0.12, 0.44, 0.68], [0.0, 0.0, 0.12, 1.0]]))
    assert boxes[1].shape == (0, 4)
    assert len(ObjectBoxes(load_coco(root, "val"), min_area=0.08)[0]) == 1  # more than, not at least


def test_boxes_are_cut_at_the_border(root: Path) -> None:
    path = root / "annotations" / "instances_val2017.json"
    content = json.loads(path.read_text())
    content["annotations"] = [annotation(2, 3, [], [-4, 5, 40, 10], 100)]
    path.write_text(json.dumps(content))
    coco = load_coco(root, "val")
    assert coco.annotated_boxes(0, min_area=0.4).tolist() == [[0.0, 0.5, 1.0, 1.0]]
    assert CroppedObjects(coco).crops[0].annotated_box == pytest.approx((0.0, 0.4, 1.0, 1.0))


def test_malformed_segmentation_is_refused_with_the_picture(root: Path) -> None:
    path = root / "annotations" / "instances_val2017.json"
    path.write_text(path.read_text().replace('"counts": [0, 20, 180]', '"counts": [0, 20, 1]'))
    with pytest.raises(InputError, match=r"a\.jpg: cannot be drawn \(a run-length code does not fill"):
        load_coco(root, "val").foreground_mask(0)


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("val2017/a.jpg", "Name it a.jpg, as that folder does"),
        ("val2017\\\\a.jpg", "Name it a.jpg, as that folder does"),
        ("http://images.cocodataset.org/val2017/a.jpg", "Name it a.jpg, as that folder does"),
        ("c.jpg", "which holds a.jpg"),
    ],
)
@pytest.mark.parametrize("layout", ["coco", "coco-crop"])
def test_a_file_none_of_whose_pictures_is_there_is_refused(root: Path, layout: str, name: str, remedy: str) -> None:
    path = root / "annotations" / "instances_val2017.json"
    path.write_text(path.read_text().replace("a.jpg", name).replace("b.jpg", "d.jpg"))
    with pytest.raises(
        InputError, match=r"instances_val2017\.json: names .*jpg and 1 more, none of which is in"
    ) as error:
        DataConfig(root=str(root), layout=layout, split="val").open()
    assert remedy in str(error.value)


def test_a_command_reads_what_it_uses_alone(root: Path) -> None:
    path = root / "annotations" / "instances_val2017.json"
    content = json.loads(path.read_text())
    for entry in content["annotations"]:
        del entry["area"], entry["bbox"]
    del content["categories"]
    path.write_text(json.dumps(content))
    assert len(_val(root).images) == 2
    assert _val(root).truth_of(["a.jpg"], needs_boxes=False)[0].any()
    with pytest.raises(InputError, match="has no 'categories'"):
        DataConfig(root=str(root), layout="coco-crop", split="val").open()
    del content["annotations"]
    content["images"][1] = {"id": 2, "file_name": "a.jpg"}
    path.write_text(json.dumps(content))
    assert len(_val(root).images) == 2
    with pytest.raises(InputError, match="has no 'height'"):
        _val(root).truth_of(["a.jpg"])


@pytest.mark.parametrize("key", ["area", "bbox"])
def test_what_boxes_need_is_looked_at_where_they_are_wanted(root: Path, key: str) -> None:
    path = root / "annotations" / "instances_val2017.json"
    content = json.loads(path.read_text())
    del content["annotations"][2][key]
    path.write_text(json.dumps(content))
    with pytest.raises(InputError, match=rf"annotations\[2\] has no '{key}'"):
        _val(root).truth_of(["b.jpg"])
    assert _val(root).truth_of(["a.jpg"], needs_boxes=False)[0].any()


def test_boxes_need_no_category(root: Path) -> None:
    path = root / "annotations" / "instances_val2017.json"
    path.write_text(path.read_text().replace('"category_id": 3', '"category_id": null'))
    assert len(_val(root).truth_of(["a.jpg"]).boxes(0)) == 2
    assert len(ObjectBoxes(load_coco(root, "val"))[0]) == 2


def test_annotations_of_unlisted_pictures_are_left_out_and_said(root: Path) -> None:
    path = root / "annotations" / "instances_val2017.json"
    content = json.loads(path.read_text())
    assert _val(root).truth_of(["a.jpg"]).notice == ""
    content["annotations"][1:1] = [annotation(77, 3, [], [0, 0, 1, 1], 1), annotation(78, 3, [], [0, 0, 1, 1], 1)]
    path.write_text(json.dumps(content))
    coco = load_coco(root, "val")
    assert len(coco.annotations(0)) == 3
    notice = _val(root).truth_of(["a.jpg"]).notice
    assert "2 annotations are of images that it does not list" in notice
    assert "annotations[1] of image 77" in notice


def test_a_first_picture_that_no_system_follows_is_a_row(root: Path) -> None:
    (root / "val2017" / "a.jpg").unlink()
    (root / "val2017" / "a.jpg").symlink_to("x" * 300)
    images = load_coco(root, "val").images
    assert images.image_ids == ["a.jpg", "b.jpg"]
    with pytest.raises(UnreadableImage, match="File name too long"):
        images.read(0)


def test_a_first_picture_that_may_not_be_looked_at_is_a_row(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a link into a folder that this user may not enter; permissions do not hold for root."""
    stat = os.stat

    def refuse(path: Any, **options: Any) -> os.stat_result:
        if isinstance(path, Path) and path.name == "a.jpg":
            raise PermissionError(errno.EACCES, "Permission denied")
        return stat(path, **options)

    monkeypatch.setattr(os, "stat", refuse)
    assert load_coco(root, "val").images.image_ids == ["a.jpg", "b.jpg"]


def test_a_file_whose_names_no_system_takes_is_refused(root: Path) -> None:
    path = root / "annotations" / "instances_val2017.json"
    path.write_text(path.read_text().replace('"a.jpg"', f'"deep/{"x" * 300}.jpg"').replace('"b.jpg"', '"deep/b.jpg"'))
    with pytest.raises(InputError, match=r"none of which is in .*val2017"):
        load_coco(root, "val")


def test_missing_parts_are_named(root: Path) -> None:
    with pytest.raises(InputError, match="train2017"):
        load_coco(root, "train")
    (root / "train2017").mkdir()
    with pytest.raises(InputError, match=r"instances_train2017\.json: cannot be opened"):
        load_coco(root, "train")


@pytest.mark.parametrize("split", ["train", "val"])
def test_real_photos(shared_dir: Path, split: Any) -> None:
    coco = load_coco(shared_dir / "data" / "coco-mini", split)
    assert len(coco) == 100
    assert len(coco.category_names) == 80
    assert coco.category_names[0] == "person"
    assert sum(len(coco.annotations(index)) for index in range(100)) == {"train": 746, "val": 712}[split]
    for index in range(100):
        assert coco.images.read(index).shape[:2] == coco.foreground_mask(index).shape
        assert coco.foreground_mask(index).any() == bool(coco.annotations(index))
