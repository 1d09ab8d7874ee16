from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from objectaware.config import DataConfig
from objectaware.data.coco import CroppedObjects
from objectaware.data.dataset import Dataset
from objectaware.data.scenes import build_scenes
from objectaware.errors import InputError


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("single")
    build_scenes(root, variant="single-object", num_train=18, num_val=9, image_size=32, seed=0)
    return root


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("several")
    build_scenes(root, variant="multi-object", num_train=9, num_val=9, image_size=32, seed=0)
    return root


def test_layouts_with_splits(single: Path, several: Path) -> None:
    original = DataConfig(root=str(single), layout="backgrounds-challenge", split="val").open()
    assert len(original) == 9
    assert original.root.parts[-2:] == ("original", "val")
    mixed = DataConfig(root=str(single), layout="backgrounds-challenge", split="val", variant="mixed_rand").open()
    assert mixed.root.parts[-2:] == ("mixed_rand", "val")
    pictures = DataConfig(root=str(several), layout="coco", split="train").open()
    assert len(pictures) == 9
    assert pictures.labels is None
    objects = DataConfig(root=str(several), layout="coco-crop", split="train").open()
    assert isinstance(objects, CroppedObjects)
    assert len(objects) > 9


def test_folders_of_photos(single: Path) -> None:
    folder = single / "original" / "train"
    plain, labelled = (
        DataConfig(root=str(folder), layout="folder").open(),
        DataConfig(root=str(folder), layout="class-folders").open(),
    )
    assert plain.image_ids == labelled.image_ids
    assert plain.labels is None
    assert labelled.labels is not None
    assert len(set(labelled.labels.tolist())) == 9


def test_a_configuration_opens_what_its_fields_say(single: Path) -> None:
    config = DataConfig(root=str(single), layout="backgrounds-challenge", split="val", variant="only_fg")
    expected = DataConfig(root=str(single), layout="backgrounds-challenge", split="val", variant="only_fg").open()
    opened = config.open()
    assert (opened.root, opened.image_ids) == (expected.root, expected.image_ids)


def test_true_masks_cover_the_objects_of_their_own_picture(single: Path) -> None:
    images = DataConfig(root=str(single), layout="backgrounds-challenge", split="val").open()
    foregrounds = DataConfig(root=str(single), layout="backgrounds-challenge", split="val", variant="only_fg").open()
    masks = Dataset(DataConfig(root=str(single), layout="backgrounds-challenge", split="val")).truth_of(
        images.image_ids
    )
    assert len(masks) == 9
    for index in range(9):
        # only_fg is black outside the object; the pictures are JPEG, hence not exactly.
        pixels = foregrounds.read(index).astype(int).sum(axis=2)
        assert pixels[masks[index]].mean() > 5 * pixels[~masks[index]].mean()


def test_true_masks_of_coco_are_the_union_of_the_instances(several: Path) -> None:
    images = DataConfig(root=str(several), layout="coco", split="val").open()
    objects = DataConfig(root=str(several), layout="coco-crop", split="val").open()
    masks = Dataset(DataConfig(root=str(several), layout="coco", split="val")).truth_of(images.image_ids)
    assert len(masks) == 9
    assert all(masks[index].shape == (32, 32) and masks[index].any() for index in range(9))
    assert sum(masks[index].sum() for index in range(9)) < 9 * 32 * 32
    assert {name.split("#")[0] for name in objects.image_ids} <= set(images.image_ids)
    assert masks[0].dtype == np.bool_


def test_layouts_without_masks_are_refused(single: Path) -> None:
    with pytest.raises(InputError, match="has neither true masks nor true boxes"):
        Dataset(DataConfig(root=str(single), layout="folder")).truth_of([])
