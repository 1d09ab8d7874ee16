from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from objectaware.cli import run
from objectaware.data.dataset import DataConfig, Dataset
from objectaware.data.sets.backgrounds_challenge import NUM_PER_CLASS, build_imagenet9
from objectaware.data.sets.imagenet import SUPERCLASSES, number_of_wnid, superclass_of_class
from objectaware.errors import InputError
from opened_parts import open_part
from published_classes import write_classes, write_picture

FIRST = [int(np.flatnonzero(superclass_of_class() == label)[0]) for label in range(9)]
ALL_WNIDS = list(number_of_wnid())
WNIDS = [ALL_WNIDS[number] for number in FIRST]
DOGS = ALL_WNIDS[151:153]
TISSUE = ALL_WNIDS[999]


@pytest.fixture
def imagenet(tmp_path: Path) -> Path:
    """A class of each of the nine, another of dogs, and one that belongs to none; four images each."""
    write_classes(tmp_path / "imagenet" / "train", [*WNIDS, DOGS[1], TISSUE], num_images=4)
    return tmp_path / "imagenet"


def names(out: Path) -> list[str]:
    return sorted(path.name for path in (out / "original" / "train").rglob("*.JPEG"))


def test_as_many_of_each_superclass_are_drawn_as_links(imagenet: Path, tmp_path: Path) -> None:
    built = build_imagenet9(imagenet, tmp_path / "in9", num_per_class=3)
    images = open_part("backgrounds-challenge", tmp_path / "in9", "train", variant="original")
    assert images.labels is not None
    assert np.bincount(images.labels).tolist() == [3] * 9
    assert images.class_names == SUPERCLASSES
    for image_id, label in zip(images.image_ids, images.labels, strict=True):
        wnid = Path(image_id).name.split("_")[0]
        assert superclass_of_class()[number_of_wnid()[wnid]] == label
    assert images.path(0).is_symlink()
    assert images.read(0).shape == (8, 8, 3)
    assert built.num_candidates == (8, 4, 4, 4, 4, 4, 4, 4, 4)
    assert built.num_images == 27
    assert NUM_PER_CLASS * 9 == 45_405


def test_built_images_are_told_from_the_published_ones(imagenet: Path, tmp_path: Path) -> None:
    build_imagenet9(imagenet, tmp_path, num_per_class=1)
    write_picture(tmp_path / "original" / "val" / "00_dog" / "a.JPEG")
    fields = {"root": str(tmp_path), "layout": "backgrounds-challenge", "variant": "original"}
    said = [Dataset.of(DataConfig.model_validate({**fields, "split": split})).substitute for split in ("train", "val")]
    assert said == ["drawn from ImageNet by `data build imagenet9`, not the published images", ""]


def test_the_seed_decides_and_copies_are_files(imagenet: Path, tmp_path: Path) -> None:
    for name, seed in {"a": 1, "b": 1, "c": 2}.items():
        build_imagenet9(imagenet, tmp_path / name, num_per_class=2, seed=seed, copy=name == "b")
    assert names(tmp_path / "a") == names(tmp_path / "b") != names(tmp_path / "c")
    assert not any(path.is_symlink() for path in (tmp_path / "b").rglob("*.JPEG"))


def test_what_published_test_pictures_show_is_not_drawn(imagenet: Path, tmp_path: Path) -> None:
    out = tmp_path / "bg_challenge"
    write_picture(out / "bg_challenge" / "original" / "val" / "00_dog" / f"{DOGS[0]}_0.JPEG")
    write_picture(out / "mixed_rand" / "val" / "01_bird" / f"fg_{WNIDS[1]}_2_bg_{DOGS[1]}_3.JPEG")
    built = build_imagenet9(imagenet, out, num_per_class=3)
    assert built.num_held_back == 3
    assert built.num_candidates[:2] == (6, 3)
    assert not {f"{DOGS[0]}_0.JPEG", f"{WNIDS[1]}_2.JPEG", f"{DOGS[1]}_3.JPEG"} & set(names(out))


def test_only_images_with_one_box_are_drawn(imagenet: Path, tmp_path: Path) -> None:
    box = "<object><name>n</name><bndbox><xmin>1</xmin></bndbox></object>"
    for wnid in WNIDS:
        (tmp_path / "boxes" / wnid).mkdir(parents=True)
        for number, num_boxes in enumerate((2, 1, 0)):  # and none for the last image
            text = f"<annotation>{box * num_boxes}</annotation>"
            (tmp_path / "boxes" / wnid / f"{wnid}_{number}.xml").write_text(text)
    built = build_imagenet9(imagenet, tmp_path / "in9", num_per_class=1, boxes=tmp_path / "boxes")
    assert built.num_candidates == (1,) * 9
    assert names(tmp_path / "in9") == sorted(f"{wnid}_1.JPEG" for wnid in WNIDS)


def test_files_that_no_build_wrote_are_not_deleted(imagenet: Path, tmp_path: Path) -> None:
    partial = tmp_path / "in9" / "original" / "train.partial"
    for name in ("00_dog/left by a build that was killed", "notes/thesis.tex"):
        (partial / name).parent.mkdir(parents=True)
        (partial / name).touch()
    with pytest.raises(InputError, match="no build wrote"):
        build_imagenet9(imagenet, tmp_path / "in9", num_per_class=1)
    assert (partial / "notes" / "thesis.tex").exists()


def test_what_cannot_be_built_is_said(imagenet: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "in9"
    with pytest.raises(InputError, match="num_per_class = 5: is more than the 4 images of 01_bird"):
        build_imagenet9(imagenet, out, num_per_class=5)
    assert not (out / "original" / "train").exists()
    with pytest.raises(
        InputError, match=f"holds no class folder such as {tmp_path}/boxes/ILSVRC/Annotations/CLS-LOC/train/n01440764"
    ):
        build_imagenet9(imagenet, out, num_per_class=1, boxes=tmp_path / "boxes")
    assert run(["data", "build", "imagenet9", str(imagenet), "--out", str(out), "--num-per-class", "4"]) == 0
    assert "36 images" in capsys.readouterr().out
    assert run(["data", "build", "imagenet9", str(imagenet), "--out", str(out)]) == 2
    assert "original/train: exists" in capsys.readouterr().err
