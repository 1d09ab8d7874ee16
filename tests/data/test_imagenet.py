from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from objectaware.data.imagenet9 import imagenet_wnids
from objectaware.data.sets.imagenet import load_imagenet
from objectaware.errors import InputError
from published_classes import write_classes, write_picture

TENCH, CHIHUAHUA, TISSUE = "n01440764", "n02085620", "n15075141"


def write_flat_validation(folder: Path, num_images: int = 3) -> None:
    for number in range(1, num_images + 1):
        write_picture(folder / f"ILSVRC2012_val_{number:08}.JPEG")
    (folder / "._ILSVRC2012_val_00000001.JPEG").write_bytes(b"")


def write_kit(folder: Path, numbers: list[int]) -> None:
    """The development kit, whose numbers are not those of the sorted wnids."""
    synsets = np.array([(2, TENCH), (1, TISSUE), (3, CHIHUAHUA)], dtype=[("ILSVRC2012_ID", np.int64), ("WNID", object)])
    folder.mkdir(parents=True)
    savemat(folder / "meta.mat", {"synsets": synsets})
    text = "\n".join(str(number) for number in numbers)
    (folder / "ILSVRC2012_validation_ground_truth.txt").write_text(text)


@pytest.mark.parametrize("above", ["", "ILSVRC/Data/CLS-LOC", "Data/CLS-LOC"])
def test_class_folders_have_the_numbers_of_all_thousand(tmp_path: Path, above: str) -> None:
    write_classes(tmp_path / above / "train", [TISSUE, TENCH, CHIHUAHUA], num_images=2)
    images = load_imagenet(tmp_path, "train")
    assert images.labels is not None
    assert images.labels.tolist() == [0, 0, 151, 151, 999, 999]
    assert images.image_ids[0] == f"{TENCH}/{TENCH}_0.JPEG"
    assert images.class_names == imagenet_wnids()
    assert images.read(5).shape == (8, 8, 3)


def test_val_in_class_folders_is_numbered_alike(tmp_path: Path) -> None:
    write_classes(tmp_path / "val", [CHIHUAHUA])
    images = load_imagenet(tmp_path, "val")
    assert images.labels is not None
    assert images.labels.tolist() == [151]


@pytest.mark.parametrize("above", [".", "ILSVRC/Data/CLS-LOC"])
def test_flat_val_takes_kaggles_labels(tmp_path: Path, above: str) -> None:
    write_flat_validation(tmp_path / above / "val")
    # In an order of its own, with boxes behind the class.
    rows = [f"ILSVRC2012_val_{number:08},{wnid} 1 2 3 4 {wnid} 5 6 7 8 " for number, wnid in ((3, TENCH), (1, TISSUE))]
    text = "\n".join(["ImageId,PredictionString", *rows, f"ILSVRC2012_val_00000002,{CHIHUAHUA} 0 0 9 9"])
    (tmp_path / "LOC_val_solution.csv").write_text(text)
    images = load_imagenet(tmp_path, "val")
    assert images.labels is not None
    assert images.image_ids == [f"ILSVRC2012_val_{number:08}.JPEG" for number in (1, 2, 3)]
    assert images.labels.tolist() == [999, 151, 0]


@pytest.mark.parametrize("place", ["ILSVRC2012_devkit_t12/data", "."])
def test_flat_val_takes_the_development_kits_labels(tmp_path: Path, place: str) -> None:
    write_flat_validation(tmp_path / "imagenet" / "val")
    write_kit(tmp_path / "imagenet" / "kit", [3, 1, 2])
    (tmp_path / "imagenet" / place).parent.mkdir(exist_ok=True)
    for file in (tmp_path / "imagenet" / "kit").iterdir():
        (tmp_path / "imagenet" / place).mkdir(exist_ok=True)
        file.rename(tmp_path / "imagenet" / place / file.name)
    images = load_imagenet(tmp_path / "imagenet", "val")
    assert images.labels is not None
    assert images.labels.tolist() == [151, 999, 0]


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"holds no {tmp_path / 'train'} "):
        load_imagenet(tmp_path, "train")
    (tmp_path / "val").mkdir()
    with pytest.raises(InputError, match="holds neither class folders nor ILSVRC2012_val"):
        load_imagenet(tmp_path, "val")
    write_flat_validation(tmp_path / "val")
    with pytest.raises(InputError, match=rf"{tmp_path / 'LOC_val_solution.csv'} nor {tmp_path}/ILSVRC2012_devkit_t12"):
        load_imagenet(tmp_path, "val")
    write_kit(tmp_path / "ILSVRC2012_devkit_t12" / "data", [3, 1])
    with pytest.raises(InputError, match=r"ILSVRC2012_val_00000003.JPEG: has no label"):
        load_imagenet(tmp_path, "val")
    (tmp_path / "ILSVRC2012_devkit_t12" / "data" / "meta.mat").write_bytes(b"no matrix")
    with pytest.raises(InputError, match="does not hold the kit's"):
        load_imagenet(tmp_path, "val")


def test_a_folder_of_another_kind_is_refused(tmp_path: Path) -> None:
    write_classes(tmp_path / "train", [TENCH, "n00000001"])
    with pytest.raises(InputError, match=r"n00000001: is none of ImageNet's 1,000 classes"):
        load_imagenet(tmp_path, "train")
