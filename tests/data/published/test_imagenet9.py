"""Golden check 20 of reference/official-implementation.md."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pytest

from objectaware.data.imagenet9 import (
    _CLASSES,
    SUPERCLASSES,
    common_superclass,
    imagenet_wnids,
    superclass_of_class,
)

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


def test_the_nine_superclasses_have_their_counts_and_no_class_in_common() -> None:
    counts = np.bincount(superclass_of_class()[superclass_of_class() >= 0]).tolist()
    assert counts == [116, 52, 42, 36, 35, 27, 26, 20, 16]
    assert sum(counts) == 370
    numbers = [number for ranges in _CLASSES for number in numbers_of(ranges)]
    assert len(numbers) == len(set(numbers)) == 370, "a class in two superclasses would be counted in one"
    assert len(SUPERCLASSES) == 9


def test_classes_are_numbered_in_the_order_of_their_wnids() -> None:
    wnids = imagenet_wnids()
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
    label = int(superclass_of_class()[imagenet_wnids().index(wnid)])
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
