from __future__ import annotations

import json
from pathlib import Path

import pytest

from objectaware.cli import run
from objectaware.data.published import PUBLISHED_SETS, check_published, published_set
from objectaware.data.scenes import build_scenes
from published_classes import write_classes, write_objectnet, write_picture
from published_trees import write_cub, write_flowers


def write_pets(folder: Path) -> None:
    (folder / "annotations").mkdir(parents=True)
    (folder / "annotations" / "trainval.txt").write_text("Abyssinian_1 1 1 1\nbeagle_2 2 2 1\n")
    (folder / "annotations" / "test.txt").write_text("Abyssinian_3 1 1 1\n")
    for stem in ("Abyssinian_1", "beagle_2", "Abyssinian_3"):
        write_picture(folder / "images" / f"{stem}.jpg")


def test_a_check_tells_what_is_there_and_what_is_missing(tmp_path: Path) -> None:
    build_scenes(tmp_path, variant="single-object", num_train=9, num_val=9, image_size=32)
    check = check_published("Backgrounds Challenge", tmp_path)
    assert check.found["mixed_rand"] == 9
    assert not check.is_whole, "9 of 4,050 images"
    (tmp_path / "only_fg" / "val").rename(tmp_path / "elsewhere")
    missing = check_published("Backgrounds Challenge", tmp_path).missing
    assert list(missing) == ["only_fg"]
    assert str(tmp_path / "only_fg" / "val") in missing["only_fg"]


def test_files_that_a_list_names_must_be_there(tmp_path: Path) -> None:
    write_pets(tmp_path)
    assert not check_published("Oxford-IIIT Pets", tmp_path).missing
    (tmp_path / "images" / "beagle_2.jpg").unlink()
    missing = check_published("Oxford-IIIT Pets", tmp_path).missing
    assert list(missing) == ["train"]
    problem = f"{tmp_path}/images/beagle_2.jpg: is missing or cannot be looked at, as are 0 others of 2"
    assert problem in missing["train"]


def test_masks_to_be_measured_on_must_be_there(tmp_path: Path) -> None:
    write_cub(tmp_path / "CUB_200_2011")
    write_flowers(tmp_path / "flowers102")
    wsol = {"wsol-val", "wsol-test"}  # whose metadata lies elsewhere
    assert set(check_published("CUB-200-2011", tmp_path / "CUB_200_2011").missing) == wsol
    assert not check_published("Flowers102", tmp_path / "flowers102").missing
    (tmp_path / "CUB_200_2011" / "segmentations").rename(tmp_path / "moved")
    missing = check_published("CUB-200-2011", tmp_path / "CUB_200_2011").missing
    assert missing.keys() == {"redo-val", "redo-test"} | wsol
    assert "segmentations.tgz" in missing["redo-test"]
    (tmp_path / "flowers102" / "segmim" / "segmim_00001.jpg").unlink()
    missing = check_published("Flowers102", tmp_path / "flowers102").missing
    assert list(missing) == ["redo-test"]
    assert "segmim_00001.jpg: is missing" in missing["redo-test"]


def test_the_command_ends_with_0_where_all_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(published_set("Oxford-IIIT Pets").num_images, "train", 2)  # type: ignore[arg-type]
    monkeypatch.setitem(published_set("Oxford-IIIT Pets").num_images, "test", 1)  # type: ignore[arg-type]
    write_pets(tmp_path / "Pets")
    report = tmp_path / "report.json"
    arguments = ["oxford-iiit-pets", "--root", str(tmp_path / "Pets"), "--json", str(report)]
    assert run(["data", "check", *arguments]) == 0
    printed = capsys.readouterr().out
    assert "train: 2 images of 2\n" in printed
    assert "licence: CC BY-SA 4.0" in printed
    assert json.loads(report.read_text())["whole"] is True
    assert run(["data", "check", "Oxford-IIIT Pets", "--data-folder", str(tmp_path)]) == 0


def test_the_command_ends_with_2_and_a_line_for_each_part_that_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_classes(tmp_path / "weather" / "fog" / "2", ["n02085620", "n15075141"])
    assert run(["data", "check", "imagenet-c-9", "--root", str(tmp_path)]) == 2
    printed = capsys.readouterr()
    lines = [line for line in printed.out.splitlines() if "missing" in line]
    assert len(lines) == 74
    assert f"holds no class folder such as {tmp_path}/snow/1/n01440764" in next(
        line for line in lines if line.startswith("snow-1:")
    )
    assert "fog-2: 1 images of 18500" in printed.out
    assert "does not hold all of ImageNet-C-9. Get it from zenodo.org" in printed.err


def test_objectnet_9_says_how_few_classes_overlap(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_objectnet(tmp_path)
    assert run(["data", "check", "ObjectNet-9", "--root", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "test: 1 images" in printed
    assert "one class of ObjectNet, Bicycle (ImageNet's 444 and 671)" in printed


def test_all_sets_are_a_line_each(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_classes(tmp_path / "imagenet-r", ["n02085620"])
    assert run(["data", "check", "--all", "--data-folder", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(PUBLISHED_SETS)
    states = {line[:24].strip(): line[24:45].strip() for line in lines}
    assert states["ImageNet-R"] == "0 of 1 parts"
    assert states["ImageNet-R-9"] == "whole"
    assert states["CIFAR-10"] == "missing"


@pytest.mark.parametrize("arguments", [[], ["COCO", "--all"], ["MNIST"]])
def test_a_name_or_all_and_a_known_one(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["data", "check", *arguments]) == 2
    assert "objectaware: " in capsys.readouterr().err
