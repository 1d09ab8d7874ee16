from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from pycocotools.coco import COCO

from objectaware.localize.exports import coco_json
from objectaware.localize.mask_store import MaskRow


def _mask() -> NDArray[np.bool_]:
    """Two objects on 20 × 40: rows 2 to 6, columns 4 to 12, and rows 10 to 18, columns 20 to 36."""
    mask = np.zeros((20, 40), dtype=np.bool_)
    mask[2:6, 4:12] = mask[10:18, 20:36] = True
    return mask


BOXES = np.array([[0.1, 0.1, 0.3, 0.3], [0.45, 0.45, 1.0, 1.0]], dtype=np.float32)
ROWS = [
    MaskRow("dogs/b.jpg", 40, 20, cam=np.zeros((8, 8), np.float32), mask=_mask(), boxes=BOXES),
    MaskRow("broken.jpg", 0, 0, status="failed", error="the file is empty"),
    MaskRow("plain.jpg", 30, 10, cam=np.zeros((8, 8), np.float32), mask=np.zeros((10, 30), np.bool_)),
    MaskRow('quoted "ä".jpg', 40, 20, cam=np.zeros((8, 8), np.float32), mask=_mask(), boxes=BOXES[:1]),
]


@pytest.fixture
def coco(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> COCO:
    path = tmp_path / "annotations.json"
    path.write_bytes(b"".join(coco_json(ROWS)))
    return COCO(path)


def test_images_are_listed_in_order_with_the_failed(coco: COCO) -> None:
    images = [coco.imgs[number] for number in sorted(coco.imgs)]
    assert [image["id"] for image in images] == [1, 2, 3, 4]
    assert [image["file_name"] for image in images] == [row.image_id for row in ROWS]
    assert [(image["width"], image["height"]) for image in images] == [(40, 20), (0, 0), (30, 10), (40, 20)]
    assert [category["name"] for category in coco.loadCats(coco.getCatIds())] == ["object"]


def test_there_is_an_annotation_a_box(coco: COCO) -> None:
    assert sorted(coco.anns) == [1, 2, 3]
    assert [coco.anns[number]["image_id"] for number in (1, 2, 3)] == [1, 1, 4]
    assert coco.getAnnIds(imgIds=[2, 3]) == []
    np.testing.assert_allclose(coco.anns[1]["bbox"], [4, 2, 8, 4], atol=1e-5)
    np.testing.assert_allclose(coco.anns[2]["bbox"], [18, 9, 22, 11], atol=1e-5)


def test_segmentations_are_the_masks_inside_the_boxes(coco: COCO) -> None:
    first, second = _mask(), _mask()
    first[:, 12:] = False
    second[:, :18] = False
    for number, expected in ((1, first), (2, second), (3, first)):
        annotation = coco.anns[number]
        np.testing.assert_array_equal(coco.annToMask(annotation), expected)
        assert annotation["area"] == expected.sum()


def test_an_empty_store_is_a_valid_data_set() -> None:
    content = json.loads(b"".join(coco_json([])))
    assert content == {
        "images": [],
        "annotations": [],
        "categories": [{"id": 1, "name": "object", "supercategory": "object"}],
    }


def test_memory_does_not_grow_with_the_number_of_images() -> None:
    def rows(number: int) -> Iterator[MaskRow]:
        mask = np.ones((4, 4), dtype=np.bool_)
        for index in range(number):
            yield MaskRow(f"{index:040d}.jpg", 4, 4, mask=mask, boxes=BOXES[:1])

    def peak(number: int) -> int:
        tracemalloc.start()
        size = sum(len(piece) for piece in coco_json(rows(number)))
        assert size > 200 * number
        highest = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return highest

    assert peak(1500) < peak(300) + 100_000
