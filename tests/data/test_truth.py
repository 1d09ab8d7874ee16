"""True masks and boxes, whatever the layout."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from objectaware.config import DataConfig
from objectaware.data.dataset import Dataset
from objectaware.data.folder import ImageFolder
from objectaware.data.layouts import layouts
from objectaware.data.pack import pack_images
from objectaware.data.storage import Storage
from objectaware.data.truth import GroundTruth
from objectaware.errors import InputError
from published_trees import KINDS, write_part


def _truth(data: DataConfig, images: ImageFolder) -> GroundTruth:
    return Dataset(data).truth_of(images.image_ids)


def test_every_layout_with_truth_is_among_these_or_has_a_test_of_its_own() -> None:
    own = {path.stem.removeprefix("test_").replace("_", "-") for path in Path(__file__).parent.glob("test_*.py")}
    among = {name.removesuffix("-masks") for name in KINDS}
    assert among <= {one.name for one in layouts() if one.masks} <= among | own


@pytest.mark.parametrize("name", KINDS)
def test_masks_are_as_large_as_what_is_ignored_and_boxes_lie_in_the_picture(tmp_path: Path, name: str) -> None:
    data = write_part(tmp_path, name)
    assert Dataset(data).has_truth
    images = data.open()
    assert isinstance(images, ImageFolder)
    truth = _truth(data, images)
    has_masks, has_ignored, has_boxes = KINDS[name]
    assert (truth.has_masks, truth.has_ignored, len(truth)) == (has_masks, has_ignored, len(images))
    ignored = [truth.ignored(index) for index in range(len(truth))]
    assert any(mask is not None and mask.any() for mask in ignored) == has_ignored
    for index in range(len(truth)):
        if has_masks:
            mask = truth[index]
            assert mask.dtype == np.bool_
            assert 0 < mask.mean() < 1
            assert ignored[index] is None or not (ignored[index] & mask).any()
        boxes = truth.boxes(index)
        assert (len(boxes) > 0) == has_boxes
        assert ((boxes >= 0) & (boxes <= 1)).all()
        assert (boxes[:, 2:] > boxes[:, :2]).all()


@pytest.mark.parametrize("name", sorted(set(KINDS) - {"coco"}))
def test_the_files_of_the_truth_are_told(tmp_path: Path, name: str) -> None:
    """COCO's annotations are a part of the images' own hash."""
    data = write_part(tmp_path, name)
    images = data.open()
    assert isinstance(images, ImageFolder)
    files = [folder.path(index) for folder in _truth(data, images).files for index in range(len(folder))]
    assert files
    assert all(path.is_file() for path in files)


def test_some_images_in_another_order_keep_their_own(tmp_path: Path) -> None:
    data = write_part(tmp_path, "cub")
    images = data.open()
    assert isinstance(images, ImageFolder)
    swapped = ImageFolder(images.root, images.image_ids[::-1])
    whole, part = _truth(data, images), _truth(data, swapped)
    np.testing.assert_array_equal(part[0], whole[1])
    np.testing.assert_array_equal(part.boxes(0), whole.boxes(1))
    assert (part[0] != whole[0]).any()


def test_what_was_not_downloaded_is_no_truth(tmp_path: Path) -> None:
    data = write_part(tmp_path, "flowers102")
    shutil.rmtree(tmp_path / "flowers102" / "segmim")
    assert not Dataset(data).has_truth
    folder = Dataset(DataConfig(root=str(tmp_path)))
    assert not folder.has_truth
    with pytest.raises(InputError, match="has neither true masks nor true boxes"):
        folder.truth_of([])


def test_a_pack_keeps_the_truth_of_its_images(tmp_path: Path) -> None:
    data = write_part(tmp_path, "cub")
    images = data.open()
    assert isinstance(images, ImageFolder)
    truth = _truth(data, images)
    pack_images(images, Storage.from_uri(str(tmp_path / "pack")), source={}, truth=truth)
    pack_images(images, Storage.from_uri(str(tmp_path / "plain")), source={})
    with_truth, plain = (Dataset(DataConfig(root=str(tmp_path / name), layout="shards")) for name in ("pack", "plain"))
    assert with_truth.has_truth
    assert not plain.has_truth
    packed = with_truth.truth_of(images.image_ids)
    for index in range(len(images)):
        np.testing.assert_array_equal(packed[index], truth[index])
        np.testing.assert_allclose(packed.boxes(index), truth.boxes(index))
    with pytest.raises(InputError, match="is a pack without true masks"):
        plain.truth_of(images.image_ids)
