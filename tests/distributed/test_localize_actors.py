from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from numpy.typing import NDArray

from objectaware.config import DataConfig, LocalizeConfig, LocalizeExecution
from objectaware.data.storage import Storage
from objectaware.data.tensors import normalise
from objectaware.distributed.localize_actors import CamActor, CrfActor
from objectaware.errors import InputError
from objectaware.localize import contracam, dense_crf, expand_resolution, extract_boxes
from objectaware.localize.mask_store import MaskRow, read_rows
from objectaware.methods.backbones import feature_map
from objectaware.methods.checkpoint import load_encoder

SIZE = 32


def _config(checkpoint: Path | str = "", **changes: object) -> dict[str, object]:
    settings = {
        "data": DataConfig(root="."),
        "checkpoint": str(checkpoint),
        "image_size": SIZE,
        "num_iterations": 2,
        "expansion": 4,
        "execution": LocalizeExecution(num_compute_threads=1),
    }
    return LocalizeConfig.model_validate(settings | changes).model_dump()


def _group(pixels: NDArray[np.uint8], filler: NDArray[np.uint8], *, errors: list[str] | None = None) -> pa.Table:
    errors = errors or [""] * len(pixels)
    return pa.table(
        {
            "group": pa.array([7], pa.int64()),
            "image_ids": [[f"{number}.png" for number in range(len(errors))]],
            "heights": [[0 if error else 64 for error in errors]],
            "widths": [[0 if error else 48 for error in errors]],
            "errors": pa.array([errors], pa.list_(pa.string())),
            "pixels": pa.array([pixels.tobytes()], pa.large_binary()),
            "filler": pa.array([filler.tobytes()], pa.large_binary()),
        }
    )


def _pictures(count: int) -> NDArray[np.uint8]:
    pictures = np.random.default_rng(1).integers(0, 256, (count, SIZE, SIZE, 3), dtype=np.uint8)
    pictures[:, 8:20, 10:22] //= 4
    return pictures


def _cams(batch: pa.Table) -> NDArray[np.float32]:
    return np.frombuffer(batch["cams"][0].as_py(), dtype=np.float32).reshape(-1, SIZE, SIZE)


def _with_cams(cams: NDArray[np.float32], errors: list[str] | None = None) -> pa.Table:
    group = _group(_pictures(len(cams)), _pictures(0), errors=errors).drop_columns("filler")
    return group.append_column("cams", pa.array([cams.tobytes()], pa.large_binary()))


def _stored(config: dict[str, object], folder: Path, batch: pa.Table) -> list[MaskRow]:
    store = Storage.from_uri(folder)
    CrfActor(config, store)(batch)
    return list(read_rows(store))


def test_soft_masks_are_the_librarys(tiny_checkpoint: Path) -> None:
    pictures = _pictures(6)
    result = CamActor(_config(tiny_checkpoint))(_group(pictures[:4], pictures[4:]))
    encoder = load_encoder(tiny_checkpoint)
    backbone = expand_resolution(encoder.backbone, 4)
    expected = contracam(
        normalise(pictures), lambda images: feature_map(backbone, images), encoder.projector, num_iterations=2
    )
    assert "filler" not in result.column_names
    np.testing.assert_allclose(_cams(result), expected[:4, 0].numpy(), atol=1e-4)
    assert expected[:4].amax() == 1


def test_the_filler_takes_part_as_negatives(tiny_checkpoint: Path) -> None:
    pictures = _pictures(6)
    actor = CamActor(_config(tiny_checkpoint))
    alone, filled = actor(_group(pictures[:4], pictures[:0])), actor(_group(pictures[:4], pictures[4:]))
    assert _cams(alone).shape == _cams(filled).shape
    assert np.abs(_cams(alone) - _cams(filled)).max() > 0.01


def test_a_group_without_a_readable_image_has_no_soft_masks(tiny_checkpoint: Path) -> None:
    result = CamActor(_config(tiny_checkpoint))(_group(_pictures(0), _pictures(2), errors=["broken"]))
    assert _cams(result).shape == (0, SIZE, SIZE)


def test_a_folder_that_is_no_checkpoint_is_told_by_the_group(tmp_path: Path) -> None:
    result = CamActor(_config(tmp_path))(_group(_pictures(2), _pictures(0)))
    error = pickle.loads(result["fault"][0].as_py())
    assert isinstance(error, InputError)
    assert error.field == "checkpoint"


def test_settings_reach_contracam(tiny_checkpoint: Path) -> None:
    group = _group(_pictures(4), _pictures(0))
    cams = [
        _cams(CamActor(_config(tiny_checkpoint, **changes))(group))
        for changes in ({}, {"remove_negative_signals": False}, {"num_iterations": 1}, {"expansion": 1})
    ]
    for other in cams[1:]:
        assert np.abs(cams[0] - other).max() > 0.01
    torch.testing.assert_close(torch.tensor(cams[0].max()), torch.tensor(1.0))


def test_masks_and_boxes_after_the_crf(tmp_path: Path) -> None:
    cam = np.zeros((1, SIZE, SIZE), dtype=np.float32)
    cam[0, 8:20, 10:22] = 0.9
    (row,) = _stored(_config(min_box_area=0.02, box_margin=0.1), tmp_path, _with_cams(cam))
    soft = dense_crf(_pictures(1)[0], cam[0])
    assert (row.width, row.height, row.status) == (48, 64, "ok")
    np.testing.assert_allclose(row.cam, cam[0], atol=0.5 / 255)
    np.testing.assert_array_equal(row.boxes, extract_boxes(soft >= 0.5, min_area=0.02, margin=0.1))
    assert len(row.boxes) == 1
    # Twice as high and one and a half times as wide; edges may move by the interpolation.
    expected = np.zeros((64, 48), dtype=np.bool_)
    expected[16:40, 15:33] = True
    assert (row.mask & expected).sum() / (row.mask | expected).sum() > 0.85


def test_without_crf_the_soft_mask_is_cut_at_the_threshold(tmp_path: Path) -> None:
    cam = np.zeros((1, SIZE, SIZE), dtype=np.float32)
    cam[0, :16], cam[0, 16:24] = 0.3, 0.1
    (row,) = _stored(_config(crf=False, mask_threshold=0.2, box_margin=0.0), tmp_path, _with_cams(cam))
    assert row.mask[:31].all()
    assert not row.mask[33:].any()
    np.testing.assert_array_equal(row.boxes, [[0, 0, 1, 0.5]])


def test_an_image_where_nothing_is_found_has_an_empty_mask_and_no_boxes(tmp_path: Path) -> None:
    cam = np.zeros((1, SIZE, SIZE), dtype=np.float32)
    for crf in (True, False):
        (row,) = _stored(_config(crf=crf, mask_threshold=0.0), tmp_path, _with_cams(cam))
        assert row.status == "ok"
        assert not row.mask.any()
        assert row.boxes.shape == (0, 4)


def test_failed_images_are_rows_of_their_own(tmp_path: Path) -> None:
    cams = np.ones((2, SIZE, SIZE), dtype=np.float32) * np.array([1, 0.9], dtype=np.float32)[:, None, None]
    batch = _with_cams(cams, ["", "the file is empty", ""])
    summary = CrfActor(_config(crf=False), Storage.from_uri(tmp_path))(batch).to_pylist()
    assert summary == [{"group": 7, "num_images": 3, "failed_ids": ["1.png"], "reasons": ["the file is empty"]}]
    rows = list(read_rows(Storage.from_uri(tmp_path)))
    assert [(row.image_id, row.status, row.error) for row in rows] == [
        ("0.png", "ok", ""),
        ("1.png", "failed", "the file is empty"),
        ("2.png", "ok", ""),
    ]
    assert rows[1].cam is None
    assert rows[2].cam[0, 0] == pytest.approx(0.9, abs=1 / 255)
