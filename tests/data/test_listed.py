from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from objectaware.errors import InputError
from opened_parts import open_part
from published_classes import write_picture

load_food, load_pets = partial(open_part, "food-101"), partial(open_part, "oxford-iiit-pets")


def write_food(folder: Path) -> None:
    (folder / "meta").mkdir(parents=True)
    # Out of order, and without a newline at the end.
    (folder / "meta" / "classes.txt").write_text("waffles\napple_pie\nbeignets")
    (folder / "meta" / "train.txt").write_text("waffles/11\napple_pie/12\napple_pie/10\n")
    (folder / "meta" / "test.txt").write_text("beignets/3\n\n")
    for name in ("waffles/11", "apple_pie/12", "apple_pie/10", "beignets/3"):
        write_picture(folder / "images" / f"{name}.jpg")


@pytest.mark.parametrize("above", ["", "food-101"])
def test_food_is_what_its_lists_name(tmp_path: Path, above: str) -> None:
    write_food(tmp_path / above)
    images = load_food(tmp_path, "train")
    assert images.image_ids == ["waffles/11.jpg", "apple_pie/12.jpg", "apple_pie/10.jpg"]
    assert images.labels is not None
    assert images.labels.tolist() == [2, 0, 0]
    assert images.class_names == ("apple_pie", "beignets", "waffles") == load_food(tmp_path, "test").class_names
    assert images.read(2).shape == (8, 8, 3)


def test_lists_of_food_that_are_missing_or_wrong_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"holds no {tmp_path}/meta/test.txt"):
        load_food(tmp_path, "test")
    write_food(tmp_path)
    (tmp_path / "meta" / "test.txt").write_text("soup/3")
    with pytest.raises(InputError, match=r"names soup/3, whose class is not in classes\.txt"):
        load_food(tmp_path, "test")
    (tmp_path / "meta" / "classes.txt").unlink()
    with pytest.raises(InputError, match=f"holds no {tmp_path}/meta/classes.txt"):
        load_food(tmp_path, "train")


def write_pets(folder: Path) -> None:
    (folder / "annotations").mkdir(parents=True)
    # Breeds are not in the order of their names: cats have capitals, and the list goes through them by number.
    header = "#Image CLASS-ID SPECIES BREED ID\n#ID: 1:37 Class ids\n"
    (folder / "annotations" / "trainval.txt").write_text(
        f"{header}american_bulldog_100 2 2 1\nAbyssinian_100 1 1 1\ngreat_pyrenees_7 3 2 2"
    )
    (folder / "annotations" / "test.txt").write_text("great_pyrenees_8 3 2 2\nAbyssinian_201 1 1 1\n")
    for stem in ("american_bulldog_100", "Abyssinian_100", "great_pyrenees_7", "great_pyrenees_8", "Abyssinian_201"):
        write_picture(folder / "images" / f"{stem}.jpg")
    (folder / "images" / "Abyssinian_100.mat").write_bytes(b"is there, too")


@pytest.mark.parametrize("above", ["", "oxford-iiit-pet"])
def test_pets_are_numbered_by_breed_as_the_lists_do_it(tmp_path: Path, above: str) -> None:
    write_pets(tmp_path / above)
    train, test = load_pets(tmp_path, "train"), load_pets(tmp_path, "test")
    assert train.image_ids == ["american_bulldog_100.jpg", "Abyssinian_100.jpg", "great_pyrenees_7.jpg"]
    assert train.labels is not None
    assert train.labels.tolist() == [1, 0, 2]
    assert train.class_names == ("Abyssinian", "american_bulldog", "great_pyrenees")
    assert test.labels is not None
    assert test.labels.tolist() == [2, 0]
    assert train.read(0).shape == (8, 8, 3)


@pytest.mark.parametrize("line", ["Abyssinian_1", "Abyssinian_1 0 1 1", "Abyssinian_1 cat 1 1", "beagle_5 1 2 3"])
def test_a_line_of_another_form_is_named(tmp_path: Path, line: str) -> None:
    write_pets(tmp_path)
    (tmp_path / "annotations" / "test.txt").write_text(f"Abyssinian_201 1 1 1\n{line}\n")
    with pytest.raises(InputError, match=f"{tmp_path}/annotations/test.txt: has a line of another form: {line}"):
        load_pets(tmp_path, "test")


def test_missing_lists_of_pets_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"holds no {tmp_path}/annotations/trainval.txt"):
        load_pets(tmp_path, "train")
