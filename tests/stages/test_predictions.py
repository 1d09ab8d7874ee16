"""Masks of other systems, as files."""

from __future__ import annotations

import json
from pathlib import Path

import cv2
import numpy as np
import pycocotools.mask as rle
import pytest

from objectaware.data.storage import Storage
from objectaware.errors import InputError
from objectaware.localize.mask_store import MaskRow
from objectaware.stages.localization import coco_predictions, folder_predictions, store_predictions

IDS = ["a/one.jpg", "a/two.jpg", "three.png"]


def _mask() -> np.ndarray:
    mask = np.zeros((20, 30), dtype=bool)
    mask[5:15, 10:20] = True
    return mask


def test_png_and_npy_are_found_by_the_images_name(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    np.save(tmp_path / "a" / "one.npy", np.where(_mask(), 0.75, 0.25))
    cv2.imwrite(str(tmp_path / "three.png"), _mask().astype(np.uint8) * 255)
    one, two, three = folder_predictions(Storage.from_uri(tmp_path), IDS)
    assert [one.image_id, two.image_id, three.image_id] == IDS
    np.testing.assert_allclose(one.soft, np.where(_mask(), 0.75, 0.25))
    assert two.soft is None
    np.testing.assert_array_equal(three.soft, _mask().astype(np.float32))
    assert (one.num_boxes, two.num_boxes, three.num_boxes) == (1, 0, 1)


@pytest.mark.parametrize("white", [1, 255, 65535])
def test_black_and_white_may_be_written_in_any_depth(tmp_path: Path, white: int) -> None:
    kind = np.uint16 if white > 255 else np.uint8
    cv2.imwrite(str(tmp_path / "x.png"), (_mask() * white).astype(kind))
    (found,) = folder_predictions(Storage.from_uri(tmp_path), ["x.jpg"])
    np.testing.assert_array_equal(found.soft, _mask().astype(np.float32))


def test_files_of_another_kind_are_named(tmp_path: Path) -> None:
    folder = Storage.from_uri(tmp_path)
    with pytest.raises(InputError, match=r"a/one.png or a/one.npy"):
        list(folder_predictions(folder, IDS))
    for name, content in {"x": np.full((3, 3), 7), "y": np.full((3, 3), 1.5), "z": np.zeros((3, 3, 3))}.items():
        np.save(tmp_path / f"{name}.npy", content)
        with pytest.raises(InputError, match=f"{name}.npy"):
            list(folder_predictions(folder, [f"{name}.jpg"]))
    cv2.imwrite(str(tmp_path / "c.png"), np.zeros((4, 4, 3), dtype=np.uint8))
    with pytest.raises(InputError, match="not grey"):
        list(folder_predictions(folder, ["c.jpg"]))


def _result(image: object, mask: np.ndarray, **more: object) -> dict[str, object]:
    code = rle.encode(np.asfortranarray(mask.astype(np.uint8)))
    size = {"size": list(mask.shape), "counts": code["counts"].decode()}
    return {"image_id": image, "category_id": 1, "segmentation": size, **more}


def test_instances_of_a_result_file_are_laid_over_each_other_by_score() -> None:
    other = np.zeros((20, 30), dtype=bool)
    other[:8] = True
    results = [_result(7, _mask(), score=0.9), _result(7, other, score=0.3), _result(9, other)]
    numbers = {7: ("p.jpg", 20, 30), 8: ("q.jpg", 20, 30), 9: ("r.jpg", 20, 30)}
    content = json.dumps(results).encode()
    first, second, third = coco_predictions("r.json", content, ["p.jpg", "q.jpg", "r.jpg"], numbers)
    np.testing.assert_allclose(first.soft, np.where(_mask(), 0.9, np.where(other, 0.3, 0)), rtol=1e-6)
    assert first.num_boxes == 1
    assert second.soft is not None
    assert not second.soft.any()
    np.testing.assert_array_equal(third.soft, other.astype(np.float32))


def test_a_data_set_brings_its_own_images_and_polygons_are_drawn() -> None:
    polygon = {"id": 1, "image_id": 3, "category_id": 1, "segmentation": [[10, 5, 20, 5, 20, 15, 10, 15]]}
    images = [{"id": 3, "file_name": "p.jpg", "height": 20, "width": 30}]
    content = json.dumps({"images": images, "annotations": [polygon]}).encode()
    (found,) = coco_predictions("d.json", content, ["p.jpg"], {})
    assert found.soft is not None
    np.testing.assert_array_equal(found.soft > 0.5, _mask())


@pytest.mark.parametrize(
    "content",
    [
        b"no json",
        b'{"images": []}',
        b"[1]",
        json.dumps([_result(5, _mask())]).encode(),
        json.dumps([_result(7, _mask(), score=3)]).encode(),
        json.dumps([{"image_id": 7, "bbox": [0, 0, 4, 4]}]).encode(),
        json.dumps([_result(7, np.zeros((4, 4), dtype=bool))]).encode(),
    ],
)
def test_malformed_results_are_refused(content: bytes) -> None:
    with pytest.raises(InputError, match=r"r\.json"):
        list(coco_predictions("r.json", content, ["p.jpg"], {7: ("p.jpg", 20, 30)}))


def test_a_store_gives_the_masks_after_and_before_the_crf() -> None:
    cam, refined = np.full((4, 4), 0.5, dtype=np.float32), np.ones((4, 4), dtype=np.float32)
    rows = [MaskRow("a", 4, 4, cam=cam, refined=refined), MaskRow("b", 0, 0, status="failed")]
    found, failed = store_predictions(rows, crf=True)
    assert (found.soft is refined, found.unrefined is cam) == (True, True)
    assert (failed.soft, failed.unrefined, failed.is_readable) == (None, None, False)
    (plain,) = store_predictions([MaskRow("a", 4, 4, cam=cam)], crf=False)
    assert (plain.soft is cam, plain.unrefined) == (True, None)
    with pytest.raises(InputError, match="Run the localization again"):
        list(store_predictions([MaskRow("a", 4, 4, cam=cam)], crf=True))
