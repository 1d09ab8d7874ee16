"""A Backgrounds Challenge out of drawn pictures with known masks, and of real photos where they are at hand."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from objectaware.augment.background import largest_empty_rectangle, tile
from objectaware.cli import run
from objectaware.data.challenge import (
    MIXED,
    PARTS,
    build_challenge,
    challenge_variants,
    square_window,
    why_unfit,
)
from objectaware.data.dataset import DataConfig
from objectaware.data.scenes.pictures import tile_over_box
from objectaware.data.sets.backgrounds_challenge import VARIANTS
from objectaware.errors import InputError
from opened_parts import data_set, open_part
from published_trees import write_cub, write_voc

COCO_MINI = Path(__file__).parents[3] / "shared" / "data" / "coco-mini"
SIZE = 32
GROUNDS = {"ant": (200, 30, 30), "bee": (30, 200, 30), "cow": (30, 30, 200)}
"""Colour of the background of each class."""
HEIGHT, WIDTH = 40, 60

Rectangle = tuple[int, int, int, int]
"""Top, left, height and width."""


def rectangle(shape: tuple[int, int], *places: Rectangle) -> NDArray[np.bool_]:
    mask = np.zeros(shape, dtype=bool)
    for top, left, height, width in places:
        mask[top : top + height, left : left + width] = True
    return mask


def write_coco(root: Path, split: str, pictures: Sequence[Mapping[str, Sequence[Rectangle]]]) -> None:
    """Write pictures by their objects: gray ones, on the ground of the class of the first."""
    folder = root / f"{split}2017"
    folder.mkdir(parents=True)
    names = list(GROUNDS)
    content: dict[str, Any] = {"images": [], "annotations": []}
    content["categories"] = [{"id": number, "name": name} for number, name in enumerate(names)]
    for number, objects in enumerate(pictures):
        ground = GROUNDS[next(iter(objects), "ant")]
        mask = rectangle((HEIGHT, WIDTH), *(one for places in objects.values() for one in places))
        pixels = np.where(mask[:, :, None], np.full(3, 100 + number), ground).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")
        content["images"].append({"id": number, "file_name": f"{number}.png", "width": WIDTH, "height": HEIGHT})
        for name, places in objects.items():
            for top, left, height, width in places:
                right, bottom = left + width, top + height
                polygon = [left, top, right, top, right, bottom, left, bottom]
                one = {"image_id": number, "category_id": names.index(name), "segmentation": [polygon]}
                box = [left, top, width, height]
                content["annotations"].append({**one, "bbox": box, "area": width * height, "iscrowd": 0})
    path = root / "annotations" / f"instances_{split}2017.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content))


OBJECT = (10, 15, 16, 20)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Per split four pictures of each class, one of them with two objects, and one of two classes."""
    classes = [*GROUNDS] * 4
    pictures = [{name: [OBJECT] if place > 2 else [OBJECT, (30, 40, 4, 4)]} for place, name in enumerate(classes)]
    for split in ("train", "val"):
        write_coco(tmp_path / "coco", split, [*pictures, {"ant": [OBJECT], "bee": [(30, 40, 4, 4)]}])
    return tmp_path / "coco"


def coco(root: Path, split: str = "val") -> DataConfig:
    return DataConfig(root=str(root), layout="coco", split=split)


build = partial(build_challenge, image_size=SIZE, num_processes=1)


def opened(out: Path, variant: str, split: str = "val") -> Any:
    return open_part("backgrounds-challenge", out, split, variant=variant)


def record(out: Path) -> dict[str, dict[str, str]]:
    pictures: dict[str, dict[str, str]] = json.loads((out / "challenge.json").read_text())["pictures"]
    return pictures


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_variants_pixel_by_pixel() -> None:
    """The strip right of the box, columns 5 to 11, is the largest; the object has a hole in its box."""
    image = np.random.default_rng(0).integers(1, 256, (9, 12, 3), dtype=np.uint8)
    mask = rectangle((9, 12), (2, 1, 4, 4))
    mask[3, 2] = False
    grounds = {name: np.full((9, 12, 3), 10 + place, np.uint8) for place, name in enumerate(MIXED)}
    shown = challenge_variants(image, mask, grounds)
    assert tuple(shown) == VARIANTS
    for y in range(9):
        for x in range(12):
            pixel, is_object, in_box = image[y, x], mask[y, x], 2 <= y < 6 and 1 <= x < 5
            expected = {
                "original": pixel,
                "only_fg": pixel if is_object else 0,
                "no_fg": 0 if is_object else pixel,
                "only_bg_b": 0 if in_box else pixel,
                "only_bg_t": image[y, 5 + x % 7] if in_box else pixel,
                **{name: pixel if is_object else 10 + place for place, name in enumerate(MIXED)},
            }
            for name, value in expected.items():
                assert (shown[name][y, x] == value).all(), (name, y, x)
    assert all(one.dtype == np.uint8 for one in shown.values())


@pytest.mark.parametrize("box", [(3, 0, 5, 4), (0, 6, 2, 3), (4, 2, 6, 8), (0, 0, 9, 11), (1, 0, 9, 12)])
def test_the_strip_is_the_largest_rectangle_without_the_box(box: Rectangle) -> None:
    image = np.random.default_rng(1).integers(0, 256, (10, 12, 3), dtype=np.uint8)
    mask = rectangle((10, 12), box)
    found = largest_empty_rectangle(mask)
    assert found is not None
    top, left, height, width = found
    tiled = tile(image[top : top + height, left : left + width], slice(0, 10), slice(0, 12))
    np.testing.assert_array_equal(
        tile_over_box(image, mask, from_corner=True), np.where(mask[:, :, None], tiled, image)
    )


@pytest.mark.parametrize(
    ("shape", "box", "window"),
    [
        ((10, 10), (0, 0, 2, 2), (0, 0, 10)),
        ((10, 30), (2, 12, 4, 4), (0, 9, 10)),
        ((10, 30), (2, 0, 4, 4), (0, 0, 10)),
        ((30, 10), (25, 2, 4, 4), (20, 0, 10)),
        ((10, 30), (0, 4, 10, 20), (0, 9, 10)),
    ],
)
def test_the_square_has_the_object_in_the_middle_where_the_border_lets_it(
    shape: tuple[int, int], box: Rectangle, window: tuple[int, int, int]
) -> None:
    assert square_window(rectangle(shape, box)) == window


@pytest.mark.parametrize(
    ("shape", "boxes", "reason"),
    [
        ((64, 64), [(20, 20, 20, 20)], ""),
        ((64, 64), [(0, 0, 60, 60)], ""),
        ((64, 64), [], "has no pixel"),
        ((64, 64), [(20, 20, 10, 10)], "covers less than 5%"),
        ((64, 64), [(0, 0, 62, 62)], "box covers more than 90%"),
        ((64, 64), [(3, 3, 58, 58)], "beside the object's box is too narrow"),
        ((64, 127), [(20, 0, 20, 127)], "beside"),  # 64 of its 127 columns stay …
        ((64, 128), [(20, 0, 20, 128)], "loses half"),  # … and here 64 of 128
    ],
)
def test_objects_that_cannot_be_told_from_their_backgrounds(
    shape: tuple[int, int], boxes: list[Rectangle], reason: str
) -> None:
    found = why_unfit(rectangle(shape, *boxes), 64, 0.05)
    if reason == "beside":  # a band from border to border has strips above and below it
        assert found == ""
    else:
        assert reason in found
        assert bool(found) == bool(reason)


def test_every_variant_of_every_part_opens_with_the_same_pictures(root: Path, tmp_path: Path) -> None:
    built = build(coco(root), tmp_path / "out", train=coco(root, "train"))
    assert built.num_pictures == {part: {"ant": 4, "bee": 4, "cow": 4} for part in PARTS}
    assert built.left_out == {"the image shows objects of several of the classes": 2}
    for split in ("train", "val"):
        originals = opened(tmp_path / "out", "original", split)
        assert originals.class_names == ("00_ant", "01_bee", "02_cow")
        assert len(originals) == 12
        for variant in VARIANTS:
            images = opened(tmp_path / "out", variant, split)
            assert images.image_ids == originals.image_ids
            assert all(images.read(index).shape == (SIZE, SIZE, 3) for index in range(len(images)))
        truth = data_set("backgrounds-challenge", tmp_path / "out", split).truth()
        for index in range(len(originals)):
            assert truth.mask(index).shape == (SIZE, SIZE)
            object_alone = originals.read(index) * truth.mask(index)[:, :, None]
            only = opened(tmp_path / "out", "only_fg", split).read(index)
            assert np.abs(only.astype(int) - object_alone).mean() < 4  # JPEG blurs the edge
    assert {path.name for path in (tmp_path / "out").iterdir()} == {*VARIANTS, "fg_mask", "challenge.json"}


def test_backgrounds_are_of_other_pictures_by_the_law_of_the_variant(root: Path, tmp_path: Path) -> None:
    """A ground's colour names the class of its picture, a picture's number in its file."""
    out = tmp_path / "out"
    build(coco(root), out, train=coco(root, "train"))
    names = list(GROUNDS)
    random_classes = set()
    for path, one in record(out).items():
        number = int(Path(one["original"]).stem)
        donors = {variant: int(Path(one[variant]).stem) for variant in MIXED}
        assert number not in donors.values()
        assert donors["mixed_same"] % 3 == number % 3
        assert donors["mixed_next"] % 3 == (number + 1) % 3
        random_classes.add((donors["mixed_rand"] - number) % 3)
        split = path.split("/")[0]
        for variant, donor in donors.items():
            images = opened(out, variant, split)
            pixels = images.read(images.image_ids.index(f"{path.removeprefix(f'{split}/')}.JPEG")).astype(int)
            assert np.abs(pixels[:4, :4] - GROUNDS[names[donor % 3]]).max() < 12, (path, variant)
            assert np.abs(pixels[12:16, 12:16] - (100 + number)).max() < 12, (path, variant)
    assert random_classes == {0, 1, 2}


def test_two_processes_write_what_one_does(root: Path, tmp_path: Path) -> None:
    for number in (1, 2):
        build(coco(root), tmp_path / str(number), num_processes=number)
    assert tree(tmp_path / "1") == tree(tmp_path / "2")


def test_a_seed_decides_pictures_and_backgrounds(root: Path, tmp_path: Path) -> None:
    for name, seed in (("one", 1), ("again", 1), ("other", 2)):
        build(coco(root), tmp_path / name, seed=seed, num_per_class=2)
    assert tree(tmp_path / "one") == tree(tmp_path / "again")
    one, other = record(tmp_path / "one"), record(tmp_path / "other")
    assert one.keys() != other.keys()
    assert any(one[path] != other[path] for path in one.keys() & other.keys())


def test_one_part_gives_half_of_its_images_to_training(root: Path, tmp_path: Path) -> None:
    built = build(coco(root), tmp_path / "out")
    assert built.num_pictures == {part: {"ant": 2, "bee": 2, "cow": 2} for part in PARTS}
    shown = [one["original"] for one in record(tmp_path / "out").values()]
    assert len(set(shown)) == 12
    for path, one in record(tmp_path / "out").items():
        part = path.split("/")[0]
        others = {picture["original"] for place, picture in record(tmp_path / "out").items() if place.startswith(part)}
        assert {one[variant] for variant in MIXED} <= others  # no background of the other part


def test_chosen_classes_have_the_given_order_and_others_are_background(root: Path, tmp_path: Path) -> None:
    built = build(coco(root), tmp_path / "out", train=coco(root, "train"), classes=["cow", "ant"], num_per_class=3)
    assert list(built.num_pictures["val"].items()) == [("cow", 3), ("ant", 3)]
    assert built.left_out == {}  # the picture with an ant and a bee counts now
    assert opened(tmp_path / "out", "original").class_names == ("00_cow", "01_ant")


def test_frequent_classes_that_leave_too_few_images_are_not_taken(tmp_path: Path) -> None:
    """Bees come with ants alone: of the two, the more frequent one is taken."""
    bees = [{"bee": [OBJECT], "ant": [(2, 2, 4, 4)]}] * 5
    write_coco(tmp_path, "val", [*[{"ant": [OBJECT]}] * 6, *bees, *[{"cow": [OBJECT]}] * 4])
    built = build(coco(tmp_path), tmp_path / "out")
    assert built.num_pictures["val"] == {"ant": 3, "cow": 2}
    with pytest.raises(InputError, match=r"classes = bee: has too few .* 0 of 2 .* several of the classes \(5\)"):
        build(coco(tmp_path), tmp_path / "other", classes=["ant", "bee"])


def test_an_unreadable_image_is_left_out_and_counted(root: Path, tmp_path: Path) -> None:
    (root / "val2017" / "3.png").write_bytes(b"no picture")
    built = build(coco(root), tmp_path / "out", train=coco(root, "train"), classes=["ant", "cow"])
    assert built.num_pictures["val"] == {"ant": 4, "cow": 4}
    assert built.left_out == {"the image cannot be read": 1}


def test_labels_name_the_class_where_masks_do_not(tmp_path: Path) -> None:
    write_cub(tmp_path / "cub")
    config = DataConfig(root=str(tmp_path / "cub"), layout="cub", split="train")
    with pytest.raises(InputError, match=r"classes = 001\.Black: has too few usable images in a part: 0 of 2"):
        build(config, tmp_path / "out", classes=["001.Black", "002.Laysan_Albatross"])
    both = DataConfig(root=str(tmp_path / "cub"), layout="cub", split="redo-train")
    with pytest.raises(InputError, match=r"classes = none: are those with 2 usable images in each part"):
        build(both, tmp_path / "out2")


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"classes": ["ant", "dog"]}, r"classes = dog: is not a class of an object.*Choose of: ant, bee, cow"),
        ({"classes": ["ant"]}, "is a single class"),
        ({"classes": ["ant", "bee", "ant"]}, "names ant twice"),
        ({"num_classes": 1}, "num_classes = 1: is below 2"),
        ({"num_per_class": 1}, "num_per_class = 1: is below 2"),
        ({"image_size": 8}, "image_size = 8: is below 32"),
        ({"seed": -1}, "seed = -1: is below 0"),
        ({"num_processes": 0}, "num_processes = 0: is below 1"),
        ({"min_object": 0.0}, "min_object = 0.0: is not a share"),
        ({"min_object": 0.5}, r"covers less than 50% of the square \("),
    ],
)
def test_refused_values(root: Path, tmp_path: Path, fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        build(coco(root), tmp_path / "out", **fields)
    assert not (tmp_path / "out").exists()


def test_refused_layouts_and_folders(root: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    photos = DataConfig(root=str(root / "val2017"), layout="folder")
    with pytest.raises(InputError, match=r"layout = folder: has neither true masks nor true boxes"):
        build(photos, out)
    write_voc(tmp_path / "voc")
    with pytest.raises(InputError, match=r"layout = voc val: has true boxes, but no masks"):
        build(DataConfig(root=str(tmp_path / "voc"), layout="voc", split="val"), out)
    assert not out.exists()
    (out / ".challenge-unfinished" / "original").mkdir(parents=True)
    build(coco(root), out)  # a build that was cut short is done again
    with pytest.raises(InputError, match=r"out = .*out: is not empty"):
        build(coco(root), out)


def test_the_command_prints_what_it_made_and_draws_a_panel(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["data", "build", "challenge", str(root), "--layout", "coco", "--split", "val", "--train-split", "train"]
    words += ["--num-processes", "1", "--image-size", "32"]
    places = ["--out", str(tmp_path / "out"), "--json", str(tmp_path / "out.json")]
    assert run([*words, "--classes", "ant, cow", "--num-per-class", "3", *places]) == 0
    assert "val: ant 3, cow 3" in capsys.readouterr().out
    values = json.loads((tmp_path / "out.json").read_text())
    assert values["num_pictures"]["train"] == {"ant": 3, "cow": 3}
    with Image.open(values["panel"]) as panel:
        assert panel.width > 3 * panel.height  # two classes by eight variants
    assert run([*words, "--classes", "ant,dog", "--out", str(tmp_path / "other")]) == 2


@pytest.mark.skipif(not COCO_MINI.is_dir(), reason="the photos are not at hand")
def test_photos_become_a_challenge(tmp_path: Path) -> None:
    classes = ["dining table", "bus", "bed", "broccoli", "couch", "refrigerator", "train"]
    built = build(coco(COCO_MINI), tmp_path, train=coco(COCO_MINI, "train"), classes=classes, image_size=224)
    assert list(built.num_pictures["val"]) == classes
    assert min(number for part in built.num_pictures.values() for number in part.values()) >= 2
    truth = data_set("backgrounds-challenge", tmp_path, "val").truth()
    assert len(truth) == len(opened(tmp_path, "mixed_rand")) == sum(built.num_pictures["val"].values())
    assert all(0.05 <= truth.mask(index).mean() <= 0.9 for index in range(len(truth)))
