from __future__ import annotations

from pathlib import Path

import pytest

from objectaware.data.published import PUBLISHED_SETS, check_published, published_data, published_set
from objectaware.data.scenes import build_scenes
from objectaware.errors import InputError

PARTS = [pytest.param(one.name, part, id=f"{one.name}: {part}") for one in PUBLISHED_SETS for part in one.parts]


@pytest.mark.parametrize(("name", "part"), PARTS)
def test_every_part_is_a_configuration(name: str, part: str) -> None:
    data = published_data(name, part, "data")
    assert data.root == str(Path("data", published_set(name).folder).absolute())
    assert set(published_set(name).num_images) <= set(published_set(name).parts)


def test_names_and_what_goes_with_them_are_whole() -> None:
    assert len({one.name for one in PUBLISHED_SETS}) == len(PUBLISHED_SETS)
    assert all(one.licence and one.source and one.folder for one in PUBLISHED_SETS)


def test_a_set_is_found_by_its_name_however_it_is_written() -> None:
    assert published_set("backgrounds-challenge") is published_set("Backgrounds Challenge")
    with pytest.raises(InputError, match=r"data set = MNIST: is not known\. Use one of: COCO, "):
        published_set("MNIST")
    with pytest.raises(InputError, match=r"part = test: is no part of COCO\. Use one of: train, val\."):
        published_data("COCO", "test", "data")


def test_sets_lie_where_the_user_says() -> None:
    assert published_data("COCO", "val", "data", {"COCO": "/mnt/photos"}).root == "/mnt/photos"
    assert published_data("COCO", "val", "/data", {"ImageNet": "/mnt/photos"}).root == "/data/COCO"


def test_a_check_tells_what_is_there_and_what_is_missing(tmp_path: Path) -> None:
    build_scenes(tmp_path, variant="single-object", num_train=9, num_val=9, image_size=32)
    check = check_published("Backgrounds Challenge", tmp_path)
    assert {part.part: part.num_images for part in check.found}["mixed_rand"] == 9
    assert not check.is_whole, "9 of 4,050 images"
    (tmp_path / "only_fg" / "val").rename(tmp_path / "elsewhere")
    missing = check_published("Backgrounds Challenge", tmp_path).missing
    assert [part.part for part in missing] == ["only_fg"]
    assert str(tmp_path / "only_fg" / "val") in missing[0].problem
