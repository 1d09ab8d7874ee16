"""From recipes to policies, on data sets with masks of their own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from objectaware.commands.data import pack
from objectaware.config import PolicyInputs, PretrainConfig
from objectaware.data.dataset import TrainingImages
from objectaware.data.pack import PackedImages
from objectaware.errors import InputError
from objectaware.training.policies.background_hardmix import BackgroundHardMix
from objectaware.training.policies.background_mixup import OfficialBackground
from objectaware.training.policies.base import PlainViews, Policy
from objectaware.training.policies.cutmix import CutMix
from objectaware.training.policies.mixup import Mixup
from objectaware.training.policies.object_crop import ObjectCrop
from published_trees import rectangle, write_cub

DRAWS = np.array([0.0, 0.99])
TRUE_HARDMIX = {"name": "background_hardmix", "masks": "ground_truth"}


def _build(root: Path, tmp_path: Path, **fields: object) -> tuple[Policy, TrainingImages]:
    config = PretrainConfig.model_validate({"batch_size": 2, "data": {"root": str(root)}, **fields})
    opened = config.data.open()
    unreadable = opened.unreadable if isinstance(opened, PackedImages) else {}
    images = TrainingImages(opened, max_bytes=0, unreadable=unreadable)
    policy = config.policy.build(PolicyInputs(config.data, images, config.method, tmp_path / "cache"))
    return policy, images


@pytest.fixture
def in9(tmp_path: Path) -> Path:
    """Two training pictures of 40 × 60 with their objects in columns 10 to 29."""
    for variant in ("original", "only_fg"):
        folder = tmp_path / variant / "train" / "00_dog"
        folder.mkdir(parents=True)
        for number, color in enumerate([(200, 30, 60), (40, 150, 220)]):
            pixels = np.tile(np.array(color, dtype=np.uint8), (40, 60, 1))
            if variant == "only_fg":
                pixels[:, :10] = pixels[:, 30:] = 0
            Image.fromarray(pixels).save(folder / f"{number}.png")
    return tmp_path


IN9 = {"layout": "backgrounds-challenge", "split": "train"}


def test_hardmix_with_the_objects_that_only_fg_shows(in9: Path, tmp_path: Path) -> None:
    policy, images = _build(
        in9, tmp_path, data={"root": str(in9), **IN9}, policy={"name": "background_hardmix", "masks": "ground_truth"}
    )
    assert type(policy) is BackgroundHardMix
    mixed = policy.change_patch(images.read(0), 0, (0, 0, 40, 60), 40, 60, DRAWS)
    assert (mixed[:, 10:30] == (200, 30, 60)).all()
    assert (mixed[:, :10] == (40, 150, 220)).all()
    assert (mixed[:, 30:] == (40, 150, 220)).all()


def test_a_picture_that_another_stands_in_for_has_no_mask(in9: Path, tmp_path: Path) -> None:
    """Its true mask would cut the object of another picture."""
    (in9 / "original" / "train" / "00_dog" / "0.png").write_bytes(b"")
    policy, images = _build(
        in9, tmp_path, data={"root": str(in9), **IN9}, policy={"name": "background_hardmix", "masks": "ground_truth"}
    )
    stand_in = images.read(0)
    assert policy.change_patch(stand_in, 0, (0, 0, 40, 60), 40, 60, DRAWS) is stand_in


def test_hardmix_with_the_masks_of_a_published_data_set(tmp_path: Path) -> None:
    """The bird stays where it is, and what is around it becomes the other picture's."""
    write_cub(tmp_path / "cub")
    data = {"root": str(tmp_path / "cub"), "layout": "cub", "split": "redo-train"}
    fields = {"data": data, "policy": {"name": "background_hardmix", "masks": "ground_truth"}}
    policy, images = _build(tmp_path, tmp_path, **fields)
    assert type(policy) is BackgroundHardMix
    picture = images.read(0)
    marked = np.full_like(picture, 255)
    mixed = policy.change_patch(marked, 0, (0, 0, *marked.shape[:2]), *marked.shape[:2], DRAWS)
    kept = (mixed == 255).all(axis=2)
    np.testing.assert_array_equal(kept, rectangle(0))
    (tmp_path / "cub" / "segmentations").rename(tmp_path / "elsewhere")
    with pytest.raises(InputError, match=r"Extract segmentations\.tgz"):
        _build(tmp_path, tmp_path, **fields)


def test_no_background_at_all_is_refused(in9: Path, tmp_path: Path) -> None:
    for path in (in9 / "only_fg").rglob("*.png"):
        Image.new("RGB", (60, 40), (9, 9, 9)).save(path)
    with pytest.raises(InputError, match="holds no background for any of the images"):
        _build(
            in9,
            tmp_path,
            data={"root": str(in9), **IN9},
            policy={"name": "background_hardmix", "masks": "ground_truth"},
        )


@pytest.fixture
def coco(tmp_path: Path) -> Path:
    """A picture of 100 × 50 with an object, a crowd and a speck, and one with nothing."""
    (tmp_path / "train2017").mkdir()
    (tmp_path / "annotations").mkdir()
    for name in ("a.png", "b.png"):
        Image.new("RGB", (100, 50)).save(tmp_path / "train2017" / name)
    boxes = [(20, 10, 10, 20, 0), (60, 0, 20, 50, 1), (0, 0, 5, 5, 0)]
    annotations = [
        {
            "image_id": 1,
            "category_id": 1,
            "iscrowd": crowd,
            "bbox": [x, y, width, height],
            "area": width * height,
            "segmentation": [[x, y, x + width, y, x + width, y + height, x, y + height]],
        }
        for x, y, width, height, crowd in boxes
    ]
    content = {
        "images": [{"id": 1 + n, "file_name": f, "width": 100, "height": 50} for n, f in enumerate(("a.png", "b.png"))],
        "annotations": annotations,
        "categories": [{"id": 1, "name": "thing"}],
    }
    (tmp_path / "annotations" / "instances_train2017.json").write_text(json.dumps(content))
    return tmp_path


def test_object_crop_around_true_objects_and_crowds(coco: Path, tmp_path: Path) -> None:
    data = {"root": str(coco), "layout": "coco", "split": "train"}
    policy, _ = _build(coco, tmp_path, data=data, policy={"name": "object_crop", "masks": "ground_truth"})
    assert type(policy) is ObjectCrop
    regions = {policy.region(0, 50, 100, np.array([uniform, 0.0])) for uniform in np.linspace(0, 0.99, 20)}
    # Margins of 20% of a side's length, 6 to 34 in rows, in 32 bits rounded outwards by a pixel; the speck is below 1%.
    assert regions == {(5, 18, 30, 14), (0, 56, 50, 28)}
    assert policy.region(1, 50, 100, np.array([0.5, 0.0])) == (0, 0, 50, 100)


def test_true_boxes_of_a_subset_are_those_of_its_own_pictures(coco: Path, tmp_path: Path) -> None:
    (tmp_path / "subset.txt").write_text("b.png\n")
    data = {"root": str(coco), "layout": "coco", "split": "train", "subset": str(tmp_path / "subset.txt")}
    policy, _ = _build(coco, tmp_path, data=data, policy={"name": "object_crop", "masks": "ground_truth"})
    assert policy.region(0, 50, 100, np.array([0.5, 0.0])) == (0, 0, 50, 100)


def test_hardmix_of_coco_keeps_all_objects(coco: Path, tmp_path: Path) -> None:
    data = {"root": str(coco), "layout": "coco", "split": "train"}
    policy, _ = _build(coco, tmp_path, data=data, policy={"name": "background_hardmix", "masks": "ground_truth"})
    patch = np.full((50, 100, 3), 255, dtype=np.uint8)
    mixed = policy.change_patch(patch, 0, (0, 0, 50, 100), 50, 100, DRAWS)
    expected = np.zeros((50, 100), dtype=bool)
    expected[10:30, 20:30] = expected[:, 60:80] = expected[:5, :5] = True
    assert np.array_equal(mixed[:, :, 0] == 255, expected)


def _pack(data: dict[str, Any], out: Path) -> dict[str, object]:
    pack(**data, out=str(out), image_size=32, min_crop_scale=0.2, shard_mib=1, num_threads=1)
    return {"root": str(out), "layout": "shards"}


@pytest.mark.parametrize("policy", ["object_crop", "background_hardmix"])
def test_a_pack_gives_the_true_boxes_and_masks_that_its_folder_gives(coco: Path, tmp_path: Path, policy: str) -> None:
    (coco / "train2017" / "b.png").write_bytes(b"no picture")
    data: dict[str, object] = {"root": str(coco), "layout": "coco", "split": "train"}
    there, there_images = _build(coco, tmp_path, data=data, policy={"name": policy, "masks": "ground_truth"})
    packed, images = _build(
        coco, tmp_path, data=_pack(data, tmp_path / "pack"), policy={"name": policy, "masks": "ground_truth"}
    )
    assert type(packed) is type(there)
    patch = np.full((50, 100, 3), 255, dtype=np.uint8)
    for name in ("a.png", "b.png"):
        one, other = there_images.image_ids.index(name), images.image_ids.index(name)
        there_images.read(one)  # which tells that it cannot be read; a pack knows it beforehand
        for uniform in np.linspace(0, 0.99, 20):
            draws = np.array([uniform, 0.0])
            assert packed.region(other, 50, 100, draws) == there.region(one, 50, 100, draws)
        expected = there.change_patch(patch, one, (0, 0, 50, 100), 50, 100, DRAWS)
        assert np.array_equal(packed.change_patch(patch, other, (0, 0, 50, 100), 50, 100, DRAWS), expected)


def test_a_pack_of_data_without_masks_or_of_another_layout_is_refused(in9: Path, coco: Path, tmp_path: Path) -> None:
    plain = _pack({"root": str(coco / "train2017")}, tmp_path / "plain")
    with pytest.raises(InputError, match=r"is a pack of layout folder, .* is for a pack of coco"):
        _build(coco, tmp_path, data=plain, policy={"name": "object_crop", "masks": "ground_truth"})
    without = _pack({"root": str(in9), **IN9}, tmp_path / "without")
    with pytest.raises(InputError, match="is a pack without true masks and boxes"):
        _build(in9, tmp_path, data=without, policy={"name": "background_hardmix", "masks": "ground_truth"})


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({"policy": "none"}, PlainViews),
        ({"policy": "mixup"}, Mixup),
        ({"policy": {"name": "cutmix", "compat": "official"}}, CutMix),
        (
            {"data": IN9, "policy": {"name": "background_hardmix", "masks": "ground_truth", "compat": "official"}},
            OfficialBackground,
        ),
    ],
)
def test_each_name_has_its_policy(in9: Path, tmp_path: Path, fields: dict[str, object], kind: type[Policy]) -> None:
    extra = fields.get("data", {"layout": "folder"})
    assert isinstance(extra, dict)
    policy, _ = _build(in9, tmp_path, **{**fields, "data": {"root": str(in9), **extra}})
    assert type(policy) is kind
