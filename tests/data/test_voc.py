from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from objectaware.data.sets.voc import VocTruth
from objectaware.errors import InputError
from opened_parts import data_set, open_part
from published_trees import RECTANGLES, SCALE, VOC_NAMES, rectangle, write_voc

load_voc = partial(open_part, "voc")

IMAGES = [f"{name}.jpg" for name in VOC_NAMES]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_voc(tmp_path / "VOCdevkit")
    return tmp_path / "VOCdevkit" / "VOC2012"


def test_parts_are_lists_of_image_sets(root: Path) -> None:
    for folder in (root, root.parent, root.parent.parent):
        assert load_voc(folder, "val").image_ids == IMAGES[2:]
    assert load_voc(root, "train").image_ids == IMAGES[:2]
    assert load_voc(root, "segmentation-val").image_ids == IMAGES[4:]
    assert load_voc(root, "val").read(0).shape == (30, 40, 3)


def test_boxes_are_of_all_objects_and_of_none_of_their_parts(root: Path) -> None:
    """Pixels count from 1; the second object is marked as difficult, and the first one has a head of its own."""
    objects = VocTruth(data_set("voc", root, "val"), IMAGES[::-1])
    assert not objects.has_masks
    for index, place in enumerate(reversed(range(6))):
        expected = np.array([RECTANGLES[place], (0, 0, 2, 3)]) / SCALE
        np.testing.assert_allclose(objects.boxes(index), expected)


def test_masks_leave_the_border_out(root: Path) -> None:
    objects = VocTruth(data_set("voc", root, "segmentation-val"), IMAGES[4:])
    assert objects.has_masks
    for index, place in enumerate((4, 5)):
        top = RECTANGLES[place][1]
        border = rectangle(place) & (np.arange(30) < top + 2)[:, None]
        np.testing.assert_array_equal(objects.ignored(index), border)
        np.testing.assert_array_equal(objects.mask(index), rectangle(place) & ~border)
        assert len(objects.boxes(index)) == 2


def test_pixels_of_a_mask_name_their_class(root: Path) -> None:
    objects = VocTruth(data_set("voc", root, "segmentation-val"), IMAGES[4:])
    assert objects.has_classes
    masks = objects.class_masks(0)
    assert list(masks) == ["person"]  # number 15 of the published list
    np.testing.assert_array_equal(masks["person"], objects.mask(0))
    path = root / "SegmentationClass" / f"{VOC_NAMES[4]}.png"
    Image.fromarray(np.full((30, 40), 21, np.uint8)).save(path)
    with pytest.raises(InputError, match=r"has pixels of class 21, of 20 classes"):
        objects.class_masks(0)


def test_what_is_missing_or_malformed_is_named(root: Path) -> None:
    with pytest.raises(InputError, match=r"holds no .*nowhere/JPEGImages"):
        load_voc(root / "nowhere", "val")
    with pytest.raises(InputError, match=r"Main/trainval\.txt: does not exist"):
        load_voc(root, "trainval")
    objects = VocTruth(data_set("voc", root, "segmentation-val"), IMAGES[:1])
    with pytest.raises(InputError, match=r"SegmentationClass/2007_000000\.png: does not exist"):
        objects.mask(0)
    path = root / "Annotations" / "2007_000000.xml"
    path.write_text(path.read_text().replace("<width>40</width>", ""))
    with pytest.raises(InputError, match=r"2007_000000\.xml: is not an annotation of VOC"):
        objects.boxes(0)
    path.unlink()
    with pytest.raises(InputError, match=r"2007_000000\.xml: does not exist"):
        objects.boxes(0)
