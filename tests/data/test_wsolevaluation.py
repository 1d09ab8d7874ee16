from __future__ import annotations

from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from pydantic import ValidationError

from objectaware.config import DataConfig
from objectaware.data.truth import GroundTruth
from objectaware.errors import InputError
from opened_parts import data_set, open_part
from published_trees import HEIGHT, RECTANGLES, SCALE, WIDTH, rectangle, write_boxes, write_masks


def load_wsolevaluation(root: Path, metadata: Path, split: str) -> Any:
    return open_part("wsolevaluation", root, split, metadata=str(metadata))


def has_objects(metadata: Path, split: str) -> bool:
    return data_set("wsolevaluation", "", split, metadata=str(metadata)).has_truth


def wsolevaluation_objects(root: Path, metadata: Path, split: str, image_ids: list[str]) -> GroundTruth:
    return data_set("wsolevaluation", root, split, metadata=str(metadata)).truth_of(image_ids)


@pytest.fixture
def metadata(tmp_path: Path) -> Path:
    return tmp_path / "metadata" / "ILSVRC"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "images of it"


def test_images_come_in_the_order_of_the_list_with_labels_by_name(root: Path, metadata: Path) -> None:
    names = write_boxes(root, metadata)
    images = load_wsolevaluation(root, metadata, "test")
    assert images.image_ids == names
    assert images.labels is not None
    assert images.labels.tolist() == [0, 1, 2, 0, 1, 2]
    assert images.class_names == ("0", "1", "2")
    assert images.read(0).shape == (HEIGHT, WIDTH, 3)


def test_an_image_may_have_several_boxes(root: Path, metadata: Path) -> None:
    names = write_boxes(root, metadata)
    objects = wsolevaluation_objects(root, metadata, "test", names[::-1])
    assert not objects.has_masks
    np.testing.assert_allclose(objects.boxes(0), [RECTANGLES[5] / SCALE])
    np.testing.assert_allclose(objects.boxes(5), np.array([(0, 0, 2, 3), RECTANGLES[0]]) / SCALE)


def test_images_may_lie_below_images_or_in_folders_of_their_classes(root: Path, metadata: Path, tmp_path: Path) -> None:
    names = write_boxes(root / "images", metadata)
    assert load_wsolevaluation(root, metadata, "test").root == root / "images"
    by_class = tmp_path / "imagenet"
    for place, name in enumerate(names):
        path = by_class / "val" / f"n0000000{place % 2}" / Path(name).name
        path.parent.mkdir(parents=True, exist_ok=True)
        (root / "images" / name).rename(path)
    images = load_wsolevaluation(by_class, metadata, "test")
    assert images.image_ids[1] == "val/n00000001/ILSVRC2012_val_00000001.JPEG"
    objects = wsolevaluation_objects(by_class, metadata, "test", images.image_ids[1:2])
    np.testing.assert_allclose(objects.boxes(0), [RECTANGLES[1] / SCALE])


def test_masks_are_united_and_ignored_regions_yield_to_them(root: Path, metadata: Path) -> None:
    names = write_masks(root, metadata)
    objects = wsolevaluation_objects(root, metadata, "test", names)
    assert objects.has_masks
    first = objects.mask(0)
    assert first.shape == (224, 224)
    assert first[-1, -1]
    assert first.sum() > objects.mask(2).sum()
    for place in range(1, 6):
        np.testing.assert_array_equal(objects.mask(place), _at_224(rectangle(place)))
        ignored = np.zeros((HEIGHT, WIDTH), dtype=bool)
        ignored[24:] = ignored[:6] = place % 2 == 1
        np.testing.assert_array_equal(objects.ignored(place), _at_224(ignored & ~rectangle(place)))
        assert objects.boxes(place).shape == (0, 4)


def _at_224(mask: np.ndarray) -> np.ndarray:
    return cv2.resize(mask.astype(np.float32), (224, 224), interpolation=cv2.INTER_NEAREST) > 0.5


def test_parts_without_objects_are_told(root: Path, metadata: Path) -> None:
    write_boxes(root, metadata)
    assert has_objects(metadata, "test")
    assert not has_objects(metadata, "train")
    (metadata / "test" / "localization.txt").write_text("")
    assert not has_objects(metadata, "test")
    with pytest.raises(InputError, match=r"localization\.txt: is empty"):
        wsolevaluation_objects(root, metadata, "test", [])


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("image_ids.txt", None, r"test/image_ids\.txt: does not exist.*metadata/ILSVRC"),
        ("class_labels.txt", "a.jpg,0\n", r"class_labels\.txt: has no line for val/ILSVRC2012_val_00000000"),
        ("class_labels.txt", "a.jpg,b\n", "no path with 1 whole numbers behind it in line 1"),
        ("localization.txt", "a.jpg,1,2,3,4\n", r"localization\.txt: has no line for val"),
        ("localization.txt", "a.jpg,1,2,3.5,4\n", "no path with 4 whole numbers behind it in line 1"),
        ("image_sizes.txt", None, r"image_sizes\.txt: does not exist"),
    ],
)
def test_what_is_missing_or_malformed_is_named(
    root: Path, metadata: Path, name: str, content: str | None, problem: str
) -> None:
    names = write_boxes(root, metadata)
    path = metadata / "test" / name
    path.unlink() if content is None else path.write_text(content)

    def load_all() -> None:
        load_wsolevaluation(root, metadata, "test")
        wsolevaluation_objects(root, metadata, "test", names)

    with pytest.raises(InputError, match=problem) as error:
        load_all()
    assert "\n" not in str(error.value)


def test_the_folder_of_metadata_must_be_given(root: Path) -> None:
    with pytest.raises(ValidationError, match="metadata is missing"):
        DataConfig.model_validate({"root": str(root), "layout": "wsolevaluation", "split": "test"})


def test_images_that_are_elsewhere_are_named(root: Path, metadata: Path, tmp_path: Path) -> None:
    write_boxes(root, metadata)
    with pytest.raises(InputError, match=r"holds no .*elsewhere/val/ILSVRC2012_val_00000000\.JPEG"):
        load_wsolevaluation(tmp_path / "elsewhere", metadata, "test")
