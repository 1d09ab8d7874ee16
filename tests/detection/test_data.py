"""Images and objects as training takes them, and the order of the batches."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from objectaware.data.sets.coco import CocoDataset, load_coco
from objectaware.detection.data import BatchPlan, TrainingImages, prepared, read_pixels, resized_shape
from objectaware.errors import InputError

SQUARE = [[10.0, 4.0, 20.0, 4.0, 20.0, 14.0, 10.0, 14.0]]


def _coco(folder: Path, annotations: list[dict[str, Any]], sizes: list[tuple[int, int]]) -> CocoDataset:
    """Pictures of sizes (height, width), the number of each in its red channel."""
    images = []
    (folder / "train2017").mkdir(parents=True)
    (folder / "annotations").mkdir()
    for number, (height, width) in enumerate(sizes, start=1):
        picture = np.full((height, width, 3), (0, 0, number), dtype=np.uint8)
        cv2.imwrite(str(folder / "train2017" / f"{number}.png"), picture)
        images.append({"id": number, "file_name": f"{number}.png", "width": width, "height": height})
    records = [
        {"id": number, "category_id": 7, "area": 100.0, "iscrowd": 0, "bbox": [10, 4, 10, 10], "segmentation": SQUARE}
        | annotation
        for number, annotation in enumerate(annotations)
    ]
    categories = [{"id": 9, "name": "zebra"}, {"id": 7, "name": "cat"}]
    content = {"images": images, "annotations": records, "categories": categories}
    (folder / "annotations" / "instances_train2017.json").write_text(json.dumps(content))
    return load_coco(folder, "train")


def _images(coco: CocoDataset, side: int = 60, max_side: int = 1000, seed: int = 0) -> TrainingImages:
    return TrainingImages(coco, short_sides=(side,), max_side=max_side, seed=seed)


def _extent(mask: torch.Tensor) -> list[int]:
    rows, columns = torch.where(mask > 0)
    return [int(columns.min()), int(rows.min()), int(columns.max()) + 1, int(rows.max()) + 1]


@pytest.fixture
def run_lengths() -> dict[str, Any]:
    """The square as uncompressed run lengths in a picture of 30 × 40."""
    mask = np.zeros((30, 40), dtype=np.uint8)
    mask[4:14, 10:20] = 1
    flat: NDArray[np.uint8] = mask.T.ravel()
    changes = np.flatnonzero(np.diff(flat)) + 1
    return {"size": [30, 40], "counts": np.diff(np.concatenate([[0], changes, [flat.size]])).tolist()}


@pytest.mark.parametrize("epoch", range(4))
def test_boxes_and_masks_go_with_the_resized_and_mirrored_picture(
    tmp_path: Path, run_lengths: dict[str, Any], epoch: int
) -> None:
    coco = _coco(tmp_path, [{"image_id": 1}, {"image_id": 1, "segmentation": run_lengths}], [(30, 40)])
    images = _images(coco)
    image, target = images.load(0, epoch=epoch, iteration=0)
    assert image.shape == (3, 60, 80)
    assert target["labels"].tolist() == [1, 1]
    assert target["masks"].shape == (2, 60, 80)
    for box, mask in zip(target["boxes"], target["masks"], strict=True):
        assert box.tolist() in ([20, 8, 40, 28], [40, 8, 60, 28])
        # pycocotools draws a polygon's outline, too.
        assert np.abs(np.array(_extent(mask)) - box.numpy()).max() <= 1


def test_half_of_the_pictures_are_mirrored(tmp_path: Path) -> None:
    images = _images(_coco(tmp_path, [{"image_id": 1}], [(30, 40)]))
    lefts = [images.load(0, epoch=epoch, iteration=0)[1]["boxes"][0, 0].item() for epoch in range(40)]
    assert 10 < lefts.count(20.0) < 30
    assert set(lefts) == {20.0, 40.0}


def test_sizes_are_drawn_from_the_list_by_seed_epoch_and_image(tmp_path: Path) -> None:
    coco = _coco(tmp_path, [{"image_id": 1}], [(30, 40)])
    sides = (30, 45, 60)

    def heights(seed: int) -> list[int]:
        images = TrainingImages(coco, short_sides=sides, max_side=1000, seed=seed)
        return [images.load(0, epoch=epoch, iteration=0)[0].shape[1] for epoch in range(30)]

    assert set(heights(0)) == set(sides)
    assert heights(0) == heights(0)
    assert heights(0) != heights(1)


def test_crowds_and_pictures_without_objects_are_left_out(tmp_path: Path) -> None:
    annotations = [
        {"image_id": 1, "iscrowd": 1},
        {"image_id": 2, "iscrowd": 1},
        {"image_id": 2, "category_id": 9},
        {"image_id": 2, "bbox": [50, 4, 10, 10]},  # beside the picture
        {"image_id": 4, "bbox": [10, 4, 0, 10]},
    ]
    images = _images(_coco(tmp_path, annotations, [(30, 40)] * 4))
    assert len(images) == 1
    image, target = images.load(0, epoch=0, iteration=0)
    assert target["labels"].tolist() == [1]  # of the categories, zebras alone have an object to learn from
    assert torch.allclose(image[0, 0, 0], torch.tensor((2 / 255 - 0.485) / 0.229), atol=1e-6)


def test_a_set_without_objects_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no image with an object"):
        _images(_coco(tmp_path, [], [(30, 40)]))


def test_wide_pictures_are_told_from_tall_ones(tmp_path: Path) -> None:
    sizes = [(30, 40), (40, 30), (30, 30)]
    images = _images(_coco(tmp_path, [{"image_id": number} for number in (1, 2, 3)], sizes))
    assert images.are_wide().tolist() == [True, False, False]


# Golden: detectron2's ResizeShortestEdge.get_output_shape.
@pytest.mark.parametrize(
    ("shape", "expected"),
    [((480, 640), (800, 1067)), ((640, 480), (1067, 800)), ((300, 900), (444, 1333)), ((427, 640), (800, 1199))],
)
def test_the_long_side_is_limited(shape: tuple[int, int], expected: tuple[int, int]) -> None:
    assert resized_shape(shape, 800, 1333) == expected


def test_a_picture_of_another_size_than_annotated_is_refused(tmp_path: Path) -> None:
    coco = _coco(tmp_path, [{"image_id": 1}], [(30, 40)])
    cv2.imwrite(str(tmp_path / "train2017" / "1.png"), np.zeros((40, 30, 3), dtype=np.uint8))
    with pytest.raises(InputError, match="its annotations are for 40 × 30"):
        read_pixels(coco, 0)
    (tmp_path / "train2017" / "1.png").write_bytes(b"")
    with pytest.raises(InputError, match="empty"):
        read_pixels(coco, 0)


def test_mirroring_is_of_columns() -> None:
    image = np.random.default_rng(0).integers(0, 255, (6, 8, 3), dtype=np.uint8)
    assert torch.equal(prepared(image, (6, 8), flip=True), prepared(image, (6, 8)).flip(2))


@given(num_wide=st.integers(0, 40), num_tall=st.integers(0, 40), batch_size=st.integers(1, 9), seed=st.integers(0, 9))
@settings(deadline=None)
def test_an_epoch_takes_every_image_once_but_less_than_a_batch(
    num_wide: int, num_tall: int, batch_size: int, seed: int
) -> None:
    is_wide = np.array([True] * num_wide + [False] * num_tall)
    if len(is_wide) < batch_size:
        return
    plan = BatchPlan(is_wide, batch_size, seed=seed)
    batches = [plan.batch(iteration) for iteration in range(plan.batches_per_epoch)]
    taken = np.concatenate(batches)
    assert len(np.unique(taken)) == len(taken) == len(is_wide) // batch_size * batch_size
    # At most one batch, what is left of both, is of both shapes.
    assert sum(0 < is_wide[batch].sum() < batch_size for batch in batches) <= 1


def test_the_order_is_a_function_of_seed_and_iteration() -> None:
    is_wide = np.arange(50) % 3 > 0
    plan = BatchPlan(is_wide, 4, seed=3)
    forward = [plan.batch(iteration).tolist() for iteration in range(30)]
    again = BatchPlan(is_wide, 4, seed=3)
    assert [again.batch(iteration).tolist() for iteration in reversed(range(30))] == forward[::-1]
    assert forward[:12] != forward[12:24]  # the next epoch
    assert BatchPlan(is_wide, 4, seed=4).batch(0).tolist() != forward[0]
