from __future__ import annotations

import hashlib
import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from objectaware.data.sets.imagenet import (
    SUPERCLASSES,
    common_superclass,
    number_of_wnid,
    superclass_of_class,
)
from objectaware.errors import InputError
from opened_parts import open_part
from published_classes import write_classes, write_picture

load_imagenet = partial(open_part, "imagenet")

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
    assert images.class_names == tuple(number_of_wnid())
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
    places = rf"{tmp_path / 'LOC_val_solution.csv'} nor in {tmp_path}/ILSVRC2012_devkit_t12"
    with pytest.raises(InputError, match=places):
        load_imagenet(tmp_path, "val")
    write_kit(tmp_path / "ILSVRC2012_devkit_t12" / "data", [3, 1])
    with pytest.raises(InputError, match=r"ILSVRC2012_val_00000003.JPEG: has no label"):
        load_imagenet(tmp_path, "val")
    (tmp_path / "ILSVRC2012_devkit_t12" / "data" / "meta.mat").write_bytes(b"no matrix")
    with pytest.raises(InputError, match="does not hold the kit's"):
        load_imagenet(tmp_path, "val")


def test_a_folder_of_another_kind_is_refused(tmp_path: Path) -> None:
    write_classes(tmp_path / "train", [TENCH, "n00000001"])
    with pytest.raises(InputError, match=r"n00000001: is not one of ImageNet's 1,000 classes"):
        load_imagenet(tmp_path, "train")


# The 200 classes of ImageNet-R by their numbers among the 1,000 (imagenet-r's own list of wnids).
RENDITIONS = (
    "1-2 4 6 8-9 11 13 22-23 26 29 31 39 47 63 71 76 79 84 90 94 96-97 99-100 105 107 113 122 125 130 132 144-145 "
    "147-148 150-151 155 160-163 171-172 178 187 195 199 203 207-208 219 231-232 234-235 242 245 247 250-251 254 "
    "259-260 263 265 267 269 276-277 281 288-289 291-293 296 299 301 308-311 314-315 319 323 327 330 334-335 337-338 "
    "340-341 344 347 353 355 361-362 365-368 372 388 390 393 397 401 407 413-414 425 428 430 435 437 441 447-448 457 "
    "462-463 469-472 476 483 487 515 546 555 558 570 579 583 587 593-594 596 609 613 617 621 629 637 657-658 701 717 "
    "724 763 768 774 776 779-780 787 805 812 815 820 824 833 847 852 866 875 883 889 895 907 928 931-934 936-937 943 "
    "945 947-949 951 953-954 957 963 965 967 980-981 983 988"
)


def numbers_of(ranges: str) -> list[int]:
    parts = (part.split("-") for part in ranges.split())
    return [number for part in parts for number in range(int(part[0]), int(part[-1]) + 1)]


def test_the_nine_superclasses_have_their_counts() -> None:
    counts = np.bincount(superclass_of_class()[superclass_of_class() >= 0]).tolist()
    assert counts == [116, 52, 42, 36, 35, 27, 26, 20, 16]
    assert sum(counts) == 370
    assert len(SUPERCLASSES) == 9


def test_classes_are_numbered_in_the_order_of_their_wnids() -> None:
    wnids = tuple(number_of_wnid())
    assert len(wnids) == len(set(wnids)) == 1000
    assert list(wnids) == sorted(wnids)
    assert (wnids[0], wnids[151], wnids[444], wnids[671], wnids[999]) == (
        "n01440764",  # tench
        "n02085620",  # Chihuahua
        "n02835271",  # bicycle built for two
        "n03792782",  # mountain bike
        "n15075141",  # toilet tissue
    )


@pytest.mark.parametrize(
    ("wnid", "name"),
    [
        ("n02085620", "00_dog"),
        ("n01514668", "01_bird"),
        ("n02835271", "02_wheeled vehicle"),
        ("n01641577", None),  # a bullfrog is no reptile
        ("n02129165", "04_carnivore"),  # a lion is no dog
        ("n02114367", "04_carnivore"),  # nor is a wolf
        ("n02165456", "05_insect"),
        ("n02787622", "06_musical instrument"),
        ("n02480495", "07_primate"),
        ("n01440764", "08_fish"),
        ("n15075141", None),
    ],
)
def test_known_classes_are_where_they_belong(wnid: str, name: str | None) -> None:
    label = int(superclass_of_class()[number_of_wnid()[wnid]])
    assert (SUPERCLASSES[label] if label >= 0 else None) == name


def test_every_class_is_where_the_published_table_has_it() -> None:
    # SHA-256 of the values of in_to_in9.json by class number, as a JSON list.
    digest = hashlib.sha256(json.dumps(superclass_of_class().tolist()).encode()).hexdigest()
    assert digest == "3634d4a038b7837c29d2df154a7905931e541453f79c3e8711699d2bc2528444"


def test_99_classes_of_imagenet_r_are_among_them() -> None:
    numbers = numbers_of(RENDITIONS)
    assert len(numbers) == 200
    superclasses = superclass_of_class()[numbers]
    assert np.bincount(superclasses[superclasses >= 0]).tolist() == [29, 16, 8, 3, 13, 9, 9, 5, 7]


def test_the_table_is_not_to_be_changed() -> None:
    with pytest.raises(ValueError, match="read-only"):
        superclass_of_class()[0] = 3


def test_what_several_classes_have_in_common() -> None:
    assert common_superclass([444, 671]) == 2
    assert common_superclass([444, 151]) == -1
    assert common_superclass([444, 999]) == -1
    assert common_superclass([]) == -1
