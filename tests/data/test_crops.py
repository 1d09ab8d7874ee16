from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from objectaware.data.images import UnreadableImage
from objectaware.data.sets.coco import CroppedObjects, load_coco


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A picture of 40 × 20 whose red is the column, with a large, a small and a cut-off object; a broken picture."""
    boxes = [(1, 7, [10, 5, 10, 5]), (1, 3, [0, 0, 1, 1]), (1, 3, [35, 15, 5, 5]), (2, 3, [0, 0, 10, 10])]
    annotations = [
        {
            "image_id": image,
            "category_id": category,
            "iscrowd": 0,
            "bbox": [x, y, width, height],
            "area": width * height,
            "segmentation": [[x, y, x + width, y, x + width, y + height, x, y + height]],
        }
        for image, category, (x, y, width, height) in boxes
    ]
    images = [{"id": number, "file_name": f"{number}.png", "width": 40, "height": 20} for number in (1, 2)]
    categories = [{"id": 7, "name": "dog"}, {"id": 3, "name": "car"}]
    (tmp_path / "train2017").mkdir()
    columns = np.tile(np.arange(40, dtype=np.uint8), (20, 1))
    rows = np.tile(np.arange(20, dtype=np.uint8)[:, None], (1, 40))
    Image.fromarray(np.stack([columns, rows, rows], axis=2)).save(tmp_path / "train2017" / "1.png")
    (tmp_path / "train2017" / "2.png").write_bytes(b"broken")
    (tmp_path / "annotations").mkdir()
    content = {"images": images, "annotations": annotations, "categories": categories}
    (tmp_path / "annotations" / "instances_train2017.json").write_text(json.dumps(content))
    return tmp_path


def test_objects_are_cut_out_with_their_margin_and_labelled(root: Path) -> None:
    objects = CroppedObjects(load_coco(root, "train"))
    # The object of one pixel, 1/800 of the picture, is left out.
    assert objects.image_ids == ["1.png#0", "1.png#1", "2.png#2"]
    assert len(objects) == 3
    assert [objects.class_names[label] for label in objects.labels] == ["dog", "car", "car"]
    assert objects.files.root == root / "train2017"
    dog = objects.read(0)
    # x from 10 - 2 to 20 + 2, y from 5 - 1 to 10 + 1.
    assert dog.shape == (7, 14, 3)
    assert dog[0, 0].tolist() == [8, 4, 4]
    assert dog[-1, -1].tolist() == [21, 10, 10]


def test_a_margin_ends_at_the_border(root: Path) -> None:
    car = CroppedObjects(load_coco(root, "train")).read(1)
    assert car.shape == (6, 6, 3)
    assert car[-1, -1].tolist() == [39, 19, 19]


def test_area_and_margin_are_settings(root: Path) -> None:
    objects = CroppedObjects(load_coco(root, "train"), min_area=0.001, margin=0.0)
    assert len(objects) == 4
    assert objects.read(0).shape == (5, 10, 3)


def test_an_object_of_a_broken_picture_cannot_be_read(root: Path) -> None:
    with pytest.raises(UnreadableImage):
        CroppedObjects(load_coco(root, "train")).read(2)
