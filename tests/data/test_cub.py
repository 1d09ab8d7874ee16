from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from objectaware.data.sets.cub import CubTruth
from objectaware.errors import InputError
from opened_parts import open_part
from published_trees import CUB_NAMES, RECTANGLES, SCALE, rectangle, write_cub

load_cub = partial(open_part, "cub")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_cub(tmp_path / "CUB_200_2011")
    return tmp_path / "CUB_200_2011"


def test_the_official_parts_have_labels_in_the_order_of_the_classes_numbers(root: Path) -> None:
    train, test = load_cub(root, "train"), load_cub(root, "test")
    assert (train.image_ids, test.image_ids) == (CUB_NAMES[:4], CUB_NAMES[4:])
    assert train.class_names == ("001.Black", "002.Laysan_Albatross")
    assert train.labels is not None
    assert train.labels.tolist() == [1, 1, 1, 0]
    assert train.read(0).shape == (30, 40, 3)


def test_the_folder_above_will_do(root: Path) -> None:
    assert load_cub(root.parent, "train").root == load_cub(root, "train").root == root / "images"


def test_redos_parts_go_by_its_numbers(root: Path) -> None:
    """In `datasets.py` of ReDO 0 is training, 1 validation (788 images) and 2 test (1,000)."""
    parts = {part: load_cub(root, f"redo-{part}").image_ids for part in ("train", "val", "test")}
    assert parts == {"train": CUB_NAMES[:2], "val": CUB_NAMES[2:4], "test": CUB_NAMES[4:]}
    (root / "train_val_test_split.txt").rename(root / "redo_split.txt")
    assert load_cub(root, "redo-val").image_ids == CUB_NAMES[2:4]


def test_a_split_of_redo_that_is_not_there_is_said_where_to_get(root: Path) -> None:
    (root / "train_val_test_split.txt").unlink()
    with pytest.raises(InputError, match=r"train_val_test_split\.txt: does not exist.*mickaelChen/ReDO.*redo_split"):
        load_cub(root, "redo-train")


@pytest.mark.parametrize("beside", [False, True])
def test_masks_are_birds_for_most_annotators_and_boxes_the_published_ones(tmp_path: Path, beside: bool) -> None:
    root = tmp_path / "CUB_200_2011"
    write_cub(root, segmentations=tmp_path / "segmentations" if beside else None)
    objects = CubTruth(str(root), CUB_NAMES[::-1])
    assert objects.has_masks
    for index, place in enumerate(reversed(range(6))):
        np.testing.assert_array_equal(objects.mask(index), rectangle(place))
        np.testing.assert_allclose(objects.boxes(index), [RECTANGLES[place] / SCALE])


def test_without_the_second_download_there_are_boxes_alone(root: Path) -> None:
    shutil.rmtree(root / "segmentations")
    objects = CubTruth(str(root), CUB_NAMES[:1])
    assert not objects.has_masks
    assert "segmentations" in objects.notice
    assert objects.boxes(0).shape == (1, 4)


def test_a_mask_that_is_missing_or_damaged_is_named(root: Path) -> None:
    objects = CubTruth(str(root), CUB_NAMES)
    path = root / "segmentations" / "001.Black" / "Black_0.png"
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(InputError, match=r"Black_0\.png: is not a picture"):
        objects.mask(3)
    path.unlink()
    with pytest.raises(InputError, match=r"Black_0\.png: does not exist"):
        objects.mask(3)


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("images.txt", None, r"holds no .*images\.txt"),
        ("images", None, r"holds no .*images\. "),
        ("classes.txt", None, r"classes\.txt: does not exist"),
        ("classes.txt", "1 001.Black\n", r"classes\.txt: has no line for 2"),
        ("image_class_labels.txt", "1 2\n2 x\n", r"no number with 1 int behind it in line 2"),
        ("train_test_split.txt", "1 1\n", r"train_test_split\.txt: has no line for 2"),
        ("train_test_split.txt", "".join(f"{n} 0\n" for n in range(1, 7)), "no image of the part train"),
    ],
)
def test_what_is_missing_or_malformed_is_named(root: Path, name: str, content: str | None, problem: str) -> None:
    path = root / name
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    if content is not None:
        path.write_text(content)
    with pytest.raises(InputError, match=problem) as error:
        load_cub(root, "train")
    assert "\n" not in str(error.value)
