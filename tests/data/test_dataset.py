from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from objectaware.config import DataConfig
from objectaware.data.dataset import Dataset, TrainingImages
from objectaware.data.images import UnreadableImage
from objectaware.data.scenes import build_scenes
from objectaware.data.sets.coco import CroppedObjects
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
    masks = Dataset.of(DataConfig(root=str(single), layout="backgrounds-challenge", split="val")).truth_of(
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
    masks = Dataset.of(DataConfig(root=str(several), layout="coco", split="val")).truth_of(images.image_ids)
    assert len(masks) == 9
    assert all(masks[index].shape == (32, 32) and masks[index].any() for index in range(9))
    assert sum(masks[index].sum() for index in range(9)) < 9 * 32 * 32
    assert {name.split("#")[0] for name in objects.image_ids} <= set(images.image_ids)
    assert masks[0].dtype == np.bool_


def test_layouts_without_masks_are_refused(single: Path) -> None:
    with pytest.raises(InputError, match="has neither true masks nor true boxes"):
        Dataset.of(DataConfig(root=str(single), layout="folder")).truth_of([])


class NamedFiles:
    """Pictures of 300 bytes, filled with their index; counts how often each is decoded."""

    def __init__(self, number: int, broken: tuple[int, ...] = ()) -> None:
        self.image_ids = [f"{index}.png" for index in range(number)]
        self.decoded: Counter[int] = Counter()
        self._broken = broken

    def __len__(self) -> int:
        return len(self.image_ids)

    def read(self, index: int) -> NDArray[np.uint8]:
        self.decoded[index] += 1
        if index in self._broken:
            raise UnreadableImage("the file is empty")
        return np.full((10, 10, 3), index, dtype=np.uint8)


def _first_pixels(images: TrainingImages) -> list[int]:
    return [int(images.read(index)[0, 0, 0]) for index in range(len(images))]


def test_images_are_decoded_once_while_they_fit() -> None:
    files = NamedFiles(5)
    images = TrainingImages(files, max_bytes=2 * 300)
    for _ in range(3):
        assert _first_pixels(images) == [0, 1, 2, 3, 4]
    assert files.decoded == {0: 1, 1: 1, 2: 3, 3: 3, 4: 3}


def test_nothing_is_kept_without_memory() -> None:
    files = NamedFiles(2)
    images = TrainingImages(files, max_bytes=0)
    assert _first_pixels(images) + _first_pixels(images) == [0, 1, 0, 1]
    assert files.decoded == {0: 2, 1: 2}


def test_the_next_readable_image_stands_in_for_a_broken_one() -> None:
    files = NamedFiles(5, broken=(1, 2, 4))
    images = TrainingImages(files, max_bytes=10_000)
    assert _first_pixels(images) == [0, 3, 3, 3, 0]
    assert images.unreadable == dict.fromkeys(("1.png", "2.png", "4.png"), "the file is empty")
    assert _first_pixels(images) == [0, 3, 3, 3, 0]
    assert files.decoded == dict.fromkeys(range(5), 1)
    assert len(images) == 5


def test_a_data_set_without_any_readable_image_is_refused() -> None:
    with pytest.raises(InputError, match="none that can be read"):
        TrainingImages(NamedFiles(2, broken=(0, 1)), max_bytes=0).read(1)


def test_threads_do_not_keep_more_than_fits() -> None:
    files = NamedFiles(40)
    images = TrainingImages(files, max_bytes=10 * 300)
    with ThreadPoolExecutor(4) as pool:
        for _ in range(3):
            assert [int(pixels[0, 0, 0]) for pixels in pool.map(images.read, range(40))] == list(range(40))
    before = files.decoded.copy()
    _first_pixels(images)
    assert sum((files.decoded - before).values()) == 30
