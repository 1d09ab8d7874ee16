from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from objectaware.evaluate.store_scores import resize_mask, score_store, score_trivial
from objectaware.localize.mask_store import MaskRow


def _columns(first: int, last: int, height: int = 8, width: int = 8) -> NDArray[np.bool_]:
    """Foreground from column `first` up to `last`."""
    mask = np.zeros((height, width), dtype=np.bool_)
    mask[:, first:last] = True
    return mask


def _row(name: str, mask: NDArray[np.bool_], soft: NDArray[np.bool_], confidence: float = 0.9) -> MaskRow:
    return MaskRow(name, mask.shape[1], mask.shape[0], cam=soft.astype(np.float32) * np.float32(confidence), mask=mask)


def test_masks_and_cams_are_scored_against_their_own_image() -> None:
    truths = [_columns(0, 4), _columns(4, 8)]
    rows = [
        _row("b", mask=_columns(4, 8), soft=_columns(6, 8)),  # 1 and 1/2
        _row("a", mask=_columns(2, 4), soft=_columns(2, 6)),  # 1/2 and 1/3
    ]
    scores = score_store(rows, truths, {"a": 0, "b": 1})
    assert scores == {"mask": pytest.approx((1 + 1 / 2) / 2), "soft": pytest.approx((1 / 2 + 1 / 3) / 2)}


def test_the_threshold_of_the_soft_mask_is_included() -> None:
    row = _row("a", mask=_columns(0, 4), soft=_columns(0, 4), confidence=0.25)
    truths = [_columns(0, 4)]
    assert score_store([row], truths, {"a": 0}, soft_threshold=0.25)["soft"] == 1
    assert score_store([row], truths, {"a": 0}, soft_threshold=0.26)["soft"] == 0


def test_scores_are_taken_at_the_networks_size() -> None:
    """A mask and a truth at image size, 8 × 16, meet the CAM at 4 × 4."""
    truth = _columns(0, 8, height=8, width=16)
    row = MaskRow("a", 16, 8, cam=_columns(0, 2, 4, 4).astype(np.float32), mask=_columns(0, 4, height=8, width=16))
    assert score_store([row], [truth], {"a": 0}) == {"mask": 0.5, "soft": 1.0}


def test_an_image_that_failed_counts_as_empty() -> None:
    rows = [
        MaskRow("a", 0, 0, status="failed", error="the file is empty"),
        _row("b", mask=_columns(0, 4), soft=_columns(0, 4)),
    ]
    assert score_store(rows, [_columns(0, 4)] * 2, {"a": 0, "b": 1}) == {"mask": 0.5, "soft": 0.5}


def test_masks_are_resized_by_the_nearest_pixel() -> None:
    mask = np.array([[True, False], [False, True]])
    np.testing.assert_array_equal(resize_mask(mask, 4, 6), np.kron(mask, np.ones((2, 3))).astype(bool))
    assert resize_mask(mask, 2, 2) is mask


def test_trivial_baselines() -> None:
    box = np.zeros((10, 10), dtype=np.bool_)
    box[3:7, 3:7] = True
    scores = score_trivial([box, box])
    assert scores == {"center_box": pytest.approx(1.0), "full_image": pytest.approx(0.16)}


def test_the_whole_picture_finds_nothing_where_there_is_no_object() -> None:
    assert score_trivial([_columns(0, 4), _columns(0, 0)])["full_image"] == pytest.approx(0.25)
