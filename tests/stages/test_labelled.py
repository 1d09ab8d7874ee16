"""Which images an evaluation looks at."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from in_process import write_colours
from objectaware.config import DataConfig
from objectaware.data.dataset import Dataset
from objectaware.errors import InputError
from objectaware.stages.features import open_labelled


def write_coco(root: Path, shown: list[list[str]], names: list[str]) -> None:
    """A COCO folder whose pictures show the named objects side by side, each a large square."""
    (root / "val2017").mkdir(parents=True)
    (root / "annotations").mkdir()
    images, annotations = [], []
    for number, objects in enumerate(shown, start=1):
        pixels = np.zeros((40, 120, 3), dtype=np.uint8)
        for place, name in enumerate(objects):
            pixels[:, place * 40 : place * 40 + 30, names.index(name)] = 200
            box = [place * 40, 0, 30, 40]
            square = [place * 40, 0, place * 40 + 30, 0, place * 40 + 30, 40, place * 40, 40]
            annotations.append(
                {
                    "id": len(annotations) + 1,
                    "image_id": number,
                    "category_id": names.index(name) + 1,
                    "bbox": box,
                    "area": 1200,
                    "segmentation": [square],
                    "iscrowd": 0,
                }
            )
        Image.fromarray(pixels).save(root / "val2017" / f"{number:012d}.png")
        images.append({"id": number, "file_name": f"{number:012d}.png", "width": 120, "height": 40})
    categories = [{"id": number, "name": name} for number, name in enumerate(names, start=1)]
    content = {"images": images, "annotations": annotations, "categories": categories}
    (root / "annotations" / "instances_val2017.json").write_text(json.dumps(content))


SHOWN = [["zebra"], ["giraffe", "zebra"], ["cow"], ["giraffe", "cow"], [], ["zebra", "zebra"]]


@pytest.fixture
def coco(tmp_path: Path) -> Path:
    write_coco(tmp_path / "coco", SHOWN, ["cow", "zebra", "giraffe"])
    return tmp_path / "coco"


def test_whole_pictures_count_that_show_one_of_the_classes_alone(coco: Path) -> None:
    data = DataConfig(root=str(coco), layout="coco", split="val")
    found = open_labelled(Dataset.of(data), ("giraffe", "zebra"))
    # Other objects beside it do not matter; the picture that shows both is of neither class.
    assert found.labels.tolist() == [1, -1, -1, 0, -1, 1]
    assert found.indices.tolist() == [0, 3, 5]
    assert found.class_names == ("giraffe", "zebra")


def test_a_subset_of_the_pictures_keeps_its_order(coco: Path, tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text("000000000006.png\n000000000004.png\n")
    data = DataConfig(root=str(coco), layout="coco", split="val", subset=str(tmp_path / "list.txt"))
    images = data.open()
    labels = {"000000000004.png": 0, "000000000006.png": 1}
    found = open_labelled(Dataset.of(data), ("giraffe", "zebra"))
    assert found.labels.tolist() == [labels[one] for one in images.image_ids]


def test_objects_are_numbered_as_the_classes_are_named(coco: Path) -> None:
    data = DataConfig(root=str(coco), layout="coco-crop", split="val")
    assert open_labelled(Dataset.of(data), ("giraffe", "zebra")).labels.tolist() == [1, 0, 1, -1, 0, -1, 1, 1]
    assert open_labelled(Dataset.of(data)).labels.tolist() == [1, 2, 1, 0, 2, 0, 1, 1]


def test_all_classes_of_a_labelled_data_set(tmp_path: Path) -> None:
    data = write_colours(tmp_path / "colours", {"grass": "green", "brick": "red"}, 2)
    found = open_labelled(Dataset.of(data))
    assert found.labels.tolist() == [0, 0, 1, 1]
    assert found.class_names == ("brick", "grass")
    assert open_labelled(Dataset.of(data), ("grass", "brick")).labels.tolist() == [1, 1, 0, 0]


def test_unknown_classes_and_unlabelled_pictures_are_refused(coco: Path, tmp_path: Path) -> None:
    data = DataConfig(root=str(coco), layout="coco", split="val")
    with pytest.raises(InputError, match=r"class_names = lion: is not a class.*cow, zebra, giraffe"):
        open_labelled(Dataset.of(data), ("lion", "zebra"))
    with pytest.raises(InputError, match="has no labels"):
        open_labelled(Dataset.of(DataConfig(root=str(coco))))
