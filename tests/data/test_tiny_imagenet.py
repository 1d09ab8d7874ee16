"""Tiny-ImageNet: labels and boxes of both splits, and its recipe."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from objectaware.config import DataConfig, LocalizeConfig, PretrainConfig
from objectaware.data.dataset import Dataset
from objectaware.data.published import check_published
from objectaware.errors import InputError
from objectaware.recipes import SHIPPED_RECIPES, read_recipe
from objectaware.stages.knn import KnnConfig
from objectaware.stages.linear import LinearConfig
from tiny_imagenet_tree import WNIDS, write_picture, write_tiny_imagenet


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_tiny_imagenet(tmp_path)


def _split(root: Path, split: str) -> Dataset:
    return Dataset.of(DataConfig(root=str(root), layout="tiny-imagenet", split=split))


@pytest.mark.parametrize("split", ["train", "val"])
def test_a_box_is_where_the_picture_shows_its_object(root: Path, split: str) -> None:
    data = _split(root, split)
    truth = data.truth()
    assert not truth.has_masks
    assert len(truth) == len(data.images) == {"train": 6, "val": 3}[split]
    for index in range(len(truth)):
        shown = data.images.read(index)[:, :, 0] > 127
        rows, columns = np.flatnonzero(shown.any(axis=1)), np.flatnonzero(shown.any(axis=0))
        edges = np.array([[columns[0], rows[0], columns[-1] + 1, rows[-1] + 1]]) / 64
        np.testing.assert_allclose(truth.boxes(index), edges)


def test_labels_of_both_splits_number_the_sorted_wnids(root: Path) -> None:
    train, val = _split(root, "train").images, _split(root, "val").images
    assert train.class_names == val.class_names == tuple(sorted(WNIDS))
    assert train.labels is not None
    assert val.labels is not None
    assert [train.class_names[label] for label in train.labels] == [name.split("/")[0] for name in train.image_ids]
    assert [val.class_names[label] for label in val.labels] == list(WNIDS)
    assert _split(root.parent, "val").image_ids == val.image_ids


def test_the_identity_of_the_truth_follows_the_boxes(root: Path) -> None:
    before = _split(root, "train").truth().content_hash(verify=True)
    path = root / "train" / WNIDS[0] / f"{WNIDS[0]}_boxes.txt"
    path.write_text(path.read_text().replace("\t63", "\t62"))
    assert _split(root, "train").truth().content_hash(verify=True) != before


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("val_0.JPEG\tn01443537\t1\t2\t3", "has 5 fields, not 6, in line 1"),
        ("val_0.JPEG\tn01443537\t1\t2\t3\t4.5", "has corners that are not whole numbers"),
        ("val_0.JPEG\tn01443537\t9\t2\t3\t4", "has a box that ends before it begins"),
        ("val_0.JPEG\tn00000000\t1\t2\t3\t4", "is of the class n00000000, which wnids.txt does not name"),
    ],
)
def test_a_malformed_list_is_refused(root: Path, line: str, message: str) -> None:
    (root / "val" / "val_annotations.txt").write_text(line + "\n")
    with pytest.raises(InputError, match=message):
        _split(root, "val").truth()


def test_an_image_without_a_box_is_named(root: Path) -> None:
    write_picture(root / "train" / WNIDS[0] / "images" / "more.JPEG", 0)
    with pytest.raises(InputError, match=r"more\.JPEG: has no box"):
        _split(root, "train").truth()


def test_its_parts_are_counted(root: Path) -> None:
    check = check_published("tiny-imagenet", root)
    assert check.found == {"train": 6, "val": 3}
    assert not check.missing
    assert not check.is_whole


@pytest.mark.parametrize(
    "name", ["moco_resnet18_tiny_imagenet", *(f"tiny_imagenet/{name}" for name in ("moco", "object_crop"))]
)
def test_the_recipes_train_on_it(name: str) -> None:
    config = PretrainConfig.model_validate(read_recipe(Path(name)))
    assert (config.data.layout, config.data.split, config.image_size) == ("tiny-imagenet", "train", 64)


def test_every_recipe_at_a_laptops_scale_is_valid() -> None:
    names = {path.stem for path in (SHIPPED_RECIPES / "tiny_imagenet").glob("*.yaml")}
    kinds = {
        "localize_crop": LocalizeConfig,
        "localize_mixup": LocalizeConfig,
        "linear": LinearConfig,
        "knn": KnnConfig,
    }
    for name in names:
        model = kinds.get(name, PretrainConfig)
        model.model_validate(read_recipe(Path("tiny_imagenet", name)))
    assert names == {*kinds, "moco", "object_crop", "background_mixup"}
