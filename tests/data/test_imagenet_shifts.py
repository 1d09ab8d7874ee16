from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from objectaware.config import DataConfig
from objectaware.data.folder import ImageFolder, write_subset
from objectaware.data.sets.imagenet import SUPERCLASSES
from objectaware.data.sets.imagenet_shifts import CORRUPTED_VARIANTS, CORRUPTIONS
from objectaware.errors import InputError
from opened_parts import open_part
from published_classes import write_classes

load_sketch, load_renditions = partial(open_part, "imagenet-sketch"), partial(open_part, "imagenet-r")
load_stylized = partial(open_part, "stylized-imagenet")


def load_corrupted(root: Path, variant: str) -> ImageFolder:
    return open_part("imagenet-c", root, variant=variant)


# Tench, Chihuahua, mountain bike, toilet tissue: a fish, a dog, a vehicle, none of the nine.
WNIDS = ["n01440764", "n02085620", "n03792782", "n15075141"]


@pytest.mark.parametrize("above", ["sketch", "imagenet-sketch/sketch", "."])
def test_sketch_opens_from_where_it_unpacks_to(tmp_path: Path, above: str) -> None:
    write_classes(tmp_path / above, WNIDS)
    images = load_sketch(tmp_path)
    assert images.labels is not None
    assert images.labels.tolist() == [0, 151, 671, 999]


@pytest.mark.parametrize("above", ["imagenet-r", "."])
def test_renditions_are_numbered_among_all_thousand(tmp_path: Path, above: str) -> None:
    write_classes(tmp_path / above, WNIDS[1:3], suffix=".jpg")
    (tmp_path / above / "README.txt").write_text("a list of the classes")
    images = load_renditions(tmp_path)
    assert images.labels is not None
    assert images.labels.tolist() == [151, 671]


def test_stylized_images_have_splits(tmp_path: Path) -> None:
    write_classes(tmp_path / "val", WNIDS[:2], suffix=".png")
    write_classes(tmp_path / "train", WNIDS, num_images=2, suffix=".png")
    assert len(load_stylized(tmp_path, "val")) == 2
    assert len(load_stylized(tmp_path, "train")) == 8


def test_corruptions_are_fifteen_in_five_severities() -> None:
    assert sum(len(kind) for kind in CORRUPTIONS.values()) == 15
    assert len(set(CORRUPTED_VARIANTS)) == 75


@pytest.mark.parametrize("above", ["", "weather", "imagenet-c", "imagenet-c/weather"])
def test_a_corruption_may_lie_below_the_folder_of_its_archive(tmp_path: Path, above: str) -> None:
    for severity in range(1, 6):
        write_classes(tmp_path / above / "fog" / str(severity), WNIDS[: severity % 4 + 1])
    assert len(load_corrupted(tmp_path, "fog-3")) == 4
    assert load_corrupted(tmp_path, "fog-5").root == tmp_path / above / "fog" / "5"
    with pytest.raises(
        InputError, match=f"holds no class folder such as {tmp_path}/elastic_transform/2/n01440764 .*digital/elastic_tr"
    ):
        load_corrupted(tmp_path, "elastic_transform-2")


def test_the_nine_superclasses_take_the_place_of_the_classes(tmp_path: Path) -> None:
    write_classes(tmp_path, WNIDS, num_images=2)
    images = DataConfig(root=str(tmp_path), layout="imagenet-r", classes="imagenet-9").open()
    assert images.labels is not None
    assert images.labels.tolist() == [8, 8, 0, 0, 2, 2]
    assert images.class_names == SUPERCLASSES
    assert [image_id.split("/")[0] for image_id in images.image_ids[::2]] == WNIDS[:3]
    assert len(DataConfig(root=str(tmp_path), layout="imagenet-r").open()) == 8


def test_a_list_counts_before_the_superclasses_do(tmp_path: Path) -> None:
    write_classes(tmp_path, WNIDS)
    write_subset(str(tmp_path / "list.txt"), [f"{wnid}/{wnid}_0.JPEG" for wnid in WNIDS[2:]])
    images = DataConfig(
        root=str(tmp_path), layout="imagenet-sketch", subset=str(tmp_path / "list.txt"), classes="imagenet-9"
    ).open()
    assert images.image_ids == ["n03792782/n03792782_0.JPEG"]


def test_a_folder_without_any_of_them_is_refused(tmp_path: Path) -> None:
    write_classes(tmp_path, WNIDS[3:])
    with pytest.raises(InputError, match="classes = imagenet-9: has none of its 370 classes in"):
        DataConfig(root=str(tmp_path), layout="imagenet-sketch", classes="imagenet-9").open()


@pytest.mark.parametrize("layout", ["imagenet-sketch", "imagenet-r"])
def test_a_wrong_folder_names_the_class_that_was_looked_for(tmp_path: Path, layout: str) -> None:
    with pytest.raises(InputError, match=rf"holds no class folder such as {tmp_path}/.*n01440764"):
        DataConfig(root=str(tmp_path), layout=layout).open()
