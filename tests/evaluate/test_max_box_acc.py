from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from objectaware.errors import InputError
from objectaware.evaluate import max_box_acc
from objectaware.evaluate.max_box_acc import SCORE_THRESHOLDS, box_hits

GOLDEN = Path(__file__).parents[1] / "golden" / "maxboxacc_reference.npz"


@pytest.fixture(scope="module")
def golden() -> dict[str, NDArray[Any]]:
    with np.load(GOLDEN) as archive:
        arrays = dict(archive)
    boxes = arrays["gt_boxes"]
    arrays["maps"] = arrays["score_maps_uint8"] / 255
    arrays["boxes"] = [boxes[boxes[:, 0] == index, 1:] for index in range(len(arrays["maps"]))]
    return arrays


@pytest.mark.parametrize("multi_contour", [True, False])
def test_wsolevaluation_is_reproduced(golden: dict[str, Any], multi_contour: bool) -> None:
    name = "multi" if multi_contour else "single"
    found = max_box_acc(golden["maps"], golden["boxes"], multi_contour=multi_contour)
    assert list(found) == [30, 50, 70]
    np.testing.assert_allclose(list(found.values()), golden[f"maxboxacc_{name}"])


@pytest.mark.parametrize("multi_contour", [True, False])
def test_count_at_each_threshold_is_reproduced(golden: dict[str, Any], multi_contour: bool) -> None:
    hits = [
        box_hits(score_map, boxes, multi_contour=multi_contour)
        for score_map, boxes in zip(golden["maps"], golden["boxes"], strict=True)
    ]
    name = "multi" if multi_contour else "single"
    np.testing.assert_array_equal(np.sum(hits, axis=0), golden[f"curve_{name}"])


def _thresholds_where_box_is_exact(score_map: NDArray[np.float64], box: list[int]) -> list[float]:
    hits = box_hits(score_map, np.array([box]), iou_thresholds=(100,), multi_contour=False)
    return SCORE_THRESHOLDS[hits[0]].tolist()


def test_box_shrinks_with_the_threshold() -> None:
    score_map = np.zeros((8, 9))
    score_map[1:6, 2:8] = 0.4
    score_map[3:5, 3:6] = 1.0
    outer = _thresholds_where_box_is_exact(score_map, [2, 1, 8, 6])
    inner = _thresholds_where_box_is_exact(score_map, [3, 3, 6, 5])
    assert outer[0] == 0
    assert outer[-1] == pytest.approx(0.399, abs=0.0015)
    assert inner[0] == pytest.approx(0.4, abs=0.0015)
    assert inner[-1] == pytest.approx(0.999)
    assert len(outer) + len(inner) == 1000


def test_far_edges_stop_at_the_last_pixel() -> None:
    score_map = np.zeros((8, 9))
    score_map[4:, 5:] = 1.0
    assert len(_thresholds_where_box_is_exact(score_map, [5, 4, 8, 7])) == 1000


def test_map_without_contour_predicts_the_first_pixel() -> None:
    assert len(_thresholds_where_box_is_exact(np.zeros((3, 3)), [0, 0, 0, 0])) == 1000
    assert max_box_acc(np.zeros((1, 3, 3)), [np.array([[1, 1, 2, 2]])]) == {30: 0.0, 50: 0.0, 70: 0.0}


def test_any_contour_counts_or_the_largest_alone() -> None:
    score_map = np.zeros((40, 40))
    score_map[2:20, 2:20] = 1.0
    score_map[30:36, 30:36] = 1.0
    small = [np.array([[30, 30, 36, 36]])]
    assert max_box_acc([score_map], small)[70] == 100
    assert max_box_acc([score_map], small, multi_contour=False)[70] == 0


def test_any_true_box_counts() -> None:
    score_map = np.zeros((40, 40))
    score_map[2:20, 2:20] = 1.0
    boxes = [np.array([[30, 30, 36, 36], [2, 2, 20, 20]])]
    assert max_box_acc([score_map], boxes, multi_contour=False)[70] == 100


def test_threshold_is_common_to_the_set() -> None:
    """Each image is right at some threshold, but no threshold is right for both."""
    score_map = np.zeros((40, 40))
    score_map[2:38, 2:38] = 0.4
    score_map[10:16, 10:16] = 1.0
    boxes = [np.array([[2, 2, 38, 38]]), np.array([[10, 10, 16, 16]])]
    assert max_box_acc([score_map, score_map], boxes, multi_contour=False)[70] == 50


def test_score_maps_may_be_streamed_in_single_precision(golden: dict[str, Any]) -> None:
    found = max_box_acc((m.astype(np.float32) for m in golden["maps"][:3]), iter(golden["boxes"][:3]))
    assert set(found) == {30, 50, 70}


@pytest.mark.parametrize(
    ("field", "arguments"),
    [
        ("score_maps", {"score_maps": []}),
        ("score_maps", {"score_maps": np.full((1, 4, 4), np.nan)}),
        ("score_maps", {"score_maps": np.full((1, 4, 4), 255.0)}),
        ("score_maps", {"score_maps": np.zeros((1, 4))}),
        ("boxes", {"boxes": []}),
        ("boxes", {"boxes": [np.zeros((1, 4))] * 2}),
        ("boxes", {"boxes": [np.zeros((0, 4))]}),
        ("boxes", {"boxes": [np.array([[1, 1, 0, 0]])]}),
        ("iou_thresholds", {"iou_thresholds": (0, 50)}),
        ("iou_thresholds", {"iou_thresholds": ()}),
    ],
)
def test_wrong_arguments_are_named(field: str, arguments: dict[str, Any]) -> None:
    given = {"score_maps": np.zeros((1, 4, 4)), "boxes": [np.zeros((1, 4))], **arguments}
    if field == "score_maps" and len(given["score_maps"]) == 0:
        given["boxes"] = []
    with pytest.raises(InputError) as refusal:
        max_box_acc(**given)
    assert refusal.value.field == field
