from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat

from objectaware.data.sets.flowers102 import FlowersTruth
from objectaware.errors import InputError
from opened_parts import data_set, open_part
from published_trees import FLOWER_NUMBERS, RECTANGLES, SCALE, rectangle, write_flowers

load_flowers102 = partial(open_part, "flowers102")

IMAGES = [f"image_{number:05d}.jpg" for number in range(1, 7)]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_flowers(tmp_path / "flowers-102")  # torchvision's name
    return tmp_path / "flowers-102"


def test_parts_are_those_of_setid_with_labels_from_zero(root: Path) -> None:
    parts = {split: load_flowers102(root, split) for split in ("train", "val", "test")}
    numbers = {"train": FLOWER_NUMBERS["trnid"], "val": FLOWER_NUMBERS["valid"], "test": FLOWER_NUMBERS["tstid"]}
    for split, images in parts.items():
        assert images.image_ids == [IMAGES[number - 1] for number in numbers[split]]
    labels = parts["test"].labels
    assert labels is not None
    assert labels.tolist() == [0, 1, 2]
    assert parts["test"].class_names == ("001", "002", "003")
    assert parts["val"].read(0).shape == (30, 40, 3)


def test_redo_trains_on_the_test_part_and_the_other_way_round(root: Path) -> None:
    for redo, official in (("redo-train", "test"), ("redo-val", "val"), ("redo-test", "train")):
        assert load_flowers102(root, redo).image_ids == load_flowers102(root, official).image_ids


def test_the_folder_above_will_do(root: Path) -> None:
    assert load_flowers102(root.parent, "val").root == root / "jpg"


def test_a_pixel_is_background_by_any_of_its_channels(root: Path) -> None:
    pixels = [[(0, 9, 9), (9, 0, 9), (9, 9, 254), (9, 9, 9), (255, 255, 255), (9, 9, 253), (1, 1, 255)]]
    # The content decides the format: a lossless file under the name of a JPEG.
    for path in (root / "segmim" / "segmim_00001.jpg", root / "jpg" / "image_00001.jpg"):
        Image.fromarray(np.array(pixels, dtype=np.uint8)).save(path, format="PNG")
    mask = FlowersTruth(str(root), IMAGES[:1]).mask(0)
    np.testing.assert_array_equal(mask, [[False, False, False, True, True, True, True]])


def test_masks_are_flowers_but_for_the_noise_at_their_edges(root: Path) -> None:
    objects = FlowersTruth(str(root), IMAGES)
    assert (objects.mask(0) != rectangle(0)).any()  # else there would be no noise
    for place in range(6):
        mask, truth = objects.mask(place), rectangle(place)
        assert (mask & truth).sum() / (mask | truth).sum() > 0.75
        assert mask[truth].mean() > 0.95
        [box] = objects.boxes(place)
        np.testing.assert_allclose(box, RECTANGLES[place] / SCALE, atol=0.1)


def test_masks_are_a_download_of_their_own(root: Path) -> None:
    shutil.rmtree(root / "segmim")
    assert not data_set("flowers102", root, "train").has_truth
    assert len(load_flowers102(root, "redo-train")) == 3
    with pytest.raises(InputError, match=r"holds no .*segmim\. "):
        FlowersTruth(str(root), IMAGES)


@pytest.mark.parametrize("name", ["setid.mat", "imagelabels.mat", "jpg"])
def test_a_file_that_is_missing_is_named(root: Path, name: str) -> None:
    path = root / name
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    with pytest.raises(InputError, match=f"holds no .*{name}") as error:
        load_flowers102(root, "train")
    assert "\n" not in str(error.value)


def test_files_of_another_kind_or_release_are_named(root: Path) -> None:
    (root / "setid.mat").write_bytes(b"no MATLAB file")
    with pytest.raises(InputError, match=r"setid\.mat: holds no variable trnid"):
        load_flowers102(root, "train")
    savemat(root / "setid.mat", {"trnid": np.array([[1, 7]])})
    with pytest.raises(InputError, match="gives no label"):
        load_flowers102(root, "train")
