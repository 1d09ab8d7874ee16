from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from objectaware.config import DataConfig
from objectaware.data.catalog import open_images
from objectaware.data.crops import CroppedObjects
from objectaware.data.scenes import build_scenes
from objectaware.data.truth import GroundTruth
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
    original = open_images(single, "backgrounds-challenge", split="val")
    assert len(original) == 9
    assert original.root.parts[-2:] == ("original", "val")
    mixed = open_images(single, "backgrounds-challenge", split="val", variant="mixed_rand")
    assert mixed.root.parts[-2:] == ("mixed_rand", "val")
    pictures = open_images(several, "coco", split="train")
    assert len(pictures) == 9
    assert pictures.labels is None
    objects = open_images(several, "coco-crop", split="train")
    assert isinstance(objects, CroppedObjects)
    assert len(objects) > 9


def test_folders_of_photos(single: Path) -> None:
    folder = single / "original" / "train"
    plain, labelled = open_images(folder, "folder"), open_images(folder, "class-folders")
    assert plain.image_ids == labelled.image_ids
    assert plain.labels is None
    assert labelled.labels is not None
    assert len(set(labelled.labels.tolist())) == 9


def test_a_configuration_opens_what_its_fields_say(single: Path) -> None:
    config = DataConfig(root=str(single), layout="backgrounds-challenge", split="val", variant="only_fg")
    expected = open_images(single, "backgrounds-challenge", split="val", variant="only_fg")
    opened = config.open()
    assert (opened.root, opened.image_ids) == (expected.root, expected.image_ids)


def test_an_unknown_layout_is_named(single: Path) -> None:
    with pytest.raises(InputError, match="layout = tar"):
        open_images(single, "tar", split="val")


def test_true_masks_cover_the_objects_of_their_own_picture(single: Path) -> None:
    images = open_images(single, "backgrounds-challenge", split="val")
    foregrounds = open_images(single, "backgrounds-challenge", split="val", variant="only_fg")
    masks = GroundTruth(single, "backgrounds-challenge", "val", images.image_ids)
    assert len(masks) == 9
    for index in range(9):
        # only_fg is black outside the object; the pictures are JPEG, hence not exactly.
        pixels = foregrounds.read(index).astype(int).sum(axis=2)
        assert pixels[masks[index]].mean() > 5 * pixels[~masks[index]].mean()


def test_true_masks_of_coco_are_the_union_of_the_instances(several: Path) -> None:
    images = open_images(several, "coco", split="val")
    objects = open_images(several, "coco-crop", split="val")
    masks = GroundTruth(several, "coco", "val", images.image_ids)
    assert len(masks) == 9
    assert all(masks[index].shape == (32, 32) and masks[index].any() for index in range(9))
    assert sum(masks[index].sum() for index in range(9)) < 9 * 32 * 32
    assert {name.split("#")[0] for name in objects.image_ids} <= set(images.image_ids)
    assert masks[0].dtype == np.bool_


def test_layouts_without_masks_are_refused(single: Path) -> None:
    with pytest.raises(InputError, match="has neither true masks nor true boxes"):
        GroundTruth(single, "folder", "val", [])
