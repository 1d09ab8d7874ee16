from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from torchvision import transforms
from torchvision.transforms.functional import resized_crop

from objectaware.data.images import UnreadableImage
from objectaware.data.sets.coco import CroppedObjects, load_coco
from objectaware.evaluate.features import evaluation_view


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


@pytest.mark.parametrize("box", [(40, 20, 20, 60), (20, 50, 100, 20), (40, 30, 40, 40)])
def test_the_network_sees_of_an_object_what_the_published_code_shows(
    tmp_path: Path, box: tuple[int, int, int, int]
) -> None:
    """create_coco-objects.py of the published code stores `resized_crop(…, 256)`; Resize(256), CenterCrop(224) follow.

    Torchvision takes the single number 256 for the short side, so that the object keeps its proportions.
    """
    (tmp_path / "train2017").mkdir()
    (tmp_path / "annotations").mkdir()
    rows, columns = np.mgrid[:120, :160].astype(np.uint8)
    photo = Image.fromarray(np.stack([columns, 2 * rows, np.full_like(rows, 90)], axis=2))
    photo.save(tmp_path / "train2017" / "1.png")
    x, y, width, height = box
    corners = [x, y, x + width, y, x + width, y + height, x, y + height]
    one = {"image_id": 1, "category_id": 7, "iscrowd": 0, "bbox": box, "area": width * height}
    content = {
        "images": [{"id": 1, "file_name": "1.png", "width": 160, "height": 120}],
        "categories": [{"id": 7, "name": "dog"}],
        "annotations": [{**one, "segmentation": [corners]}],
    }
    (tmp_path / "annotations" / "instances_train2017.json").write_text(json.dumps(content))
    seen = evaluation_view(CroppedObjects(load_coco(tmp_path, "train")).read(0), 224, center_crop=True).astype(int)
    region = (y - height // 5, x - width // 5, height + 2 * (height // 5), width + 2 * (width // 5))
    view = transforms.Compose([transforms.Resize(256), transforms.CenterCrop(224)])
    published = np.asarray(view(resized_crop(photo, *region, 256))).astype(int)
    # A row of pixels is 2 brighter than the one above it; a box's edge may lie one pixel further out.
    assert np.abs(seen - published).max() <= 3
    squashed = np.asarray(view(resized_crop(photo, *region, [256, 256]))).astype(int)
    assert width == height or np.abs(seen - squashed).max() > 10
