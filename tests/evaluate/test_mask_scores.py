"""The localization measures alone, against references and brute force, and together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from objectaware.data.masks import region_boxes, resize_mask
from objectaware.errors import InputError
from objectaware.evaluate import mask_miou, max_box_acc
from objectaware.evaluate.mask_scores import (
    MEASURES,
    SCORE_THRESHOLDS,
    MaskScores,
    average_precision,
    best_center_box,
    box_count_histogram,
    box_hits,
    crf_gains,
    foreground,
    is_correctly_localized,
    largest_region_box,
    mask_ious,
    pixel_histograms,
    resize_soft_mask,
    size_of,
    whole_pixels,
)
from objectaware.localize.center_box import center_box

BATCH = arrays(bool, (3, 5, 4))


def _four_cases() -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Identical, disjoint, both empty, half overlapping."""
    predicted, truth = np.zeros((4, 6, 8), dtype=bool), np.zeros((4, 6, 8), dtype=bool)
    predicted[0, 1:4, 2:5] = truth[0, 1:4, 2:5] = True
    predicted[1, :, :4] = truth[1, :, 4:] = True
    predicted[3, :, 0:4] = truth[3, :, 2:6] = True
    return predicted, truth


def test_iou_identities() -> None:
    predicted, truth = _four_cases()
    np.testing.assert_allclose(mask_ious(predicted, truth), [1, 0, 1, 1 / 3])


def test_miou_is_the_mean_of_the_images_not_of_the_pixels() -> None:
    predicted, truth = _four_cases()
    assert mask_miou(predicted, truth) == pytest.approx((1 + 0 + 1 + 1 / 3) / 4)


def test_background_does_not_count() -> None:
    predicted, truth = np.zeros((1, 50, 50), dtype=bool), np.zeros((1, 50, 50), dtype=bool)
    predicted[0, 0, 0] = truth[0, 0, 1] = True
    assert mask_miou(predicted, truth) == 0
    assert mask_miou(np.zeros_like(truth), truth) == 0


@given(predicted=BATCH, truth=BATCH)
def test_iou_is_symmetric_and_in_the_unit_interval(predicted: NDArray[np.bool_], truth: NDArray[np.bool_]) -> None:
    ious = mask_ious(predicted, truth)
    assert ious.shape == (3,)
    assert ((ious >= 0) & (ious <= 1)).all()
    np.testing.assert_array_equal(ious, mask_ious(truth, predicted))
    np.testing.assert_array_equal(mask_ious(truth, truth), 1)


@settings(max_examples=25, deadline=None)
@given(truth=arrays(bool, (3, 7, 9)), num_sides=st.integers(1, 12))
def test_best_center_box_equals_trying_each(truth: NDArray[np.bool_], num_sides: int) -> None:
    fraction, miou = best_center_box(truth, num_sides)
    tried = {
        side / num_sides: mask_miou(np.stack([center_box(7, 9, side / num_sides)] * 3), truth)
        for side in range(1, num_sides + 1)
    }
    assert miou == pytest.approx(max(tried.values()))
    assert tried[fraction] == pytest.approx(miou)


def test_best_center_box_recovers_the_box_in_pictures_of_several_sizes() -> None:
    fraction, miou = best_center_box([center_box(100, 50, 0.4), center_box(20, 80, 0.4)])
    assert fraction == pytest.approx(0.4)
    assert miou == 1


def test_box_counts_are_listed_without_gaps() -> None:
    assert box_count_histogram([0, 3, 1, 3]) == {0: 1, 1: 1, 2: 0, 3: 2}
    assert box_count_histogram([2]) == {0: 0, 1: 0, 2: 1}
    assert box_count_histogram([]) == {}


def test_wrong_masks_are_refused() -> None:
    boolean = np.zeros((2, 4, 4), dtype=bool)
    with pytest.raises(InputError, match="predicted"):
        mask_miou(boolean.astype(np.float32), boolean)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="truth"):
        mask_miou(boolean, boolean[0])
    with pytest.raises(InputError, match="one size"):
        mask_miou(boolean, boolean[:, :3])
    with pytest.raises(InputError, match="no mask"):
        mask_miou(boolean[:0], boolean[:0])
    with pytest.raises(InputError, match="no mask"):
        best_center_box([])


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


def _px_ap(
    score_map: NDArray[np.floating], truth: NDArray[np.bool_], ignored: NDArray[np.bool_] | None = None
) -> float:
    return average_precision(pixel_histograms(score_map, truth, ignored))


def test_a_hand_computed_example() -> None:
    """Scores 0.9 true, 0.6 false, 0.6 true, 0.2 false, 0.1 true.

    The steps of recall are 1/3 at 0.9 (precision 1), 1/3 at 0.6 (2 of 3) and 1/3 at 0.1 (3 of 5).
    """
    scores = np.array([[0.9005, 0.6005, 0.6005, 0.2005, 0.1005]])
    truth = np.array([[True, False, True, False, True]])
    assert _px_ap(scores, truth) == pytest.approx(100 * (1 + 2 / 3 + 3 / 5) / 3)


def test_pixels_of_all_images_are_ranked_together() -> None:
    maps = [np.array([[0.9005]]), np.array([[0.5005, 0.1005]])]
    truths = [np.array([[False]]), np.array([[True, False]])]
    histograms = [pixel_histograms(*of_one) for of_one in zip(maps, truths, strict=True)]
    assert average_precision(np.sum(histograms, axis=0)) == pytest.approx(50)


def test_a_perfect_map_has_all_and_a_constant_one_the_share_of_the_foreground() -> None:
    truth = np.zeros((6, 10), dtype=bool)
    truth[:3] = True
    assert _px_ap(truth.astype(np.float32), truth) == 100
    assert _px_ap(np.full((6, 10), 0.25), truth) == pytest.approx(50)


def _brute_force(scores: np.ndarray, truth: np.ndarray) -> float:
    """wsolevaluation's curve, threshold by threshold from 2 down."""
    area, last_recall = 0.0, 0.0
    for threshold in [1.0, *np.arange(0, 1, 0.001)[::-1]]:
        chosen = scores >= threshold
        if chosen.any():
            recall = (truth & chosen).sum() / truth.sum()
            area += (truth & chosen).sum() / chosen.sum() * (recall - last_recall)
            last_recall = recall
    return 100 * area


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10_000), share=st.floats(0.1, 0.9))
def test_it_equals_a_loop_over_the_thresholds(seed: int, share: float) -> None:
    generator = np.random.default_rng(seed)
    scores = np.rint(generator.random((7, 9)) * 255) / 255
    truth = generator.random((7, 9)) < share
    truth[0, 0] = True
    assert _px_ap(scores, truth) == pytest.approx(_brute_force(scores, truth))


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_ignored_pixels_are_as_if_they_were_not_there(seed: int) -> None:
    generator = np.random.default_rng(seed)
    scores, truth = generator.random((6, 8)), generator.random((6, 8)) < 0.4
    ignored = generator.random((6, 8)) < 0.3
    truth[0, 0], ignored[0, 0] = True, False
    kept = ~ignored
    assert _px_ap(scores, truth, ignored) == _px_ap(scores[kept][None], truth[kept][None])


def test_wrong_arguments_of_pixel_histograms_are_named() -> None:
    scores, truth = np.zeros((2, 3)), np.ones((2, 3), dtype=bool)
    with pytest.raises(InputError, match="truths"):
        _px_ap(scores, ~truth)
    with pytest.raises(InputError, match="truths"):
        _px_ap(scores, truth[:1])
    with pytest.raises(InputError, match="ignored"):
        _px_ap(scores, truth, truth[:1])
    with pytest.raises(InputError, match="ignored"):
        _px_ap(scores, truth, truth.astype(np.uint8))
    with pytest.raises(InputError, match="score_maps"):
        _px_ap(scores + 2, truth)


SIZE = 40


def _half() -> tuple[np.ndarray, np.ndarray]:
    """A true square, and its box."""
    truth = np.zeros((SIZE, SIZE), dtype=bool)
    truth[10:30, 10:30] = True
    return truth, np.array([[0.25, 0.25, 0.75, 0.75]])


def test_the_box_is_around_the_largest_region_without_margin() -> None:
    mask = np.zeros((20, 40), dtype=bool)
    mask[1:3, 1:30] = True
    mask[10:20, 20:30] = True
    np.testing.assert_allclose(largest_region_box(mask), [20 / 40, 10 / 20, 30 / 40, 1])
    np.testing.assert_allclose(largest_region_box(np.ones((3, 4), dtype=bool)), [0, 0, 1, 1])
    assert largest_region_box(np.zeros((3, 4), dtype=bool)) is None


def test_half_is_enough_and_any_true_box_counts() -> None:
    truth = np.array([[0.0, 0.0, 0.1, 0.1], [0.0, 0.0, 1.0, 1.0]])
    assert is_correctly_localized(np.array([0.0, 0.0, 0.5, 1.0]), truth)
    assert not is_correctly_localized(np.array([0.0, 0.0, 0.49, 1.0]), truth)
    assert not is_correctly_localized(None, truth)


def test_a_perfect_mask_has_everything() -> None:
    truth, boxes = _half()
    scores = MaskScores(SIZE)
    scores.add(truth.astype(np.float32), truth, boxes)
    result = scores.result()
    assert [*result] == [name for name in MEASURES if not name.startswith("crf_")]
    assert (result["miou"], result["miou_1_255"], result["px_ap"], result["corloc"]) == (1, 1, 100, 100)
    assert result["max_box_acc_v2"] == 100
    assert (result["num_images"], result["num_missing"]) == (1, 0)


def test_both_thresholds_are_the_published_ones() -> None:
    truth, boxes = _half()
    soft = np.where(truth, 0.5, 0.0).astype(np.float32)
    soft[:10] = 1 / 255
    soft[30:] = 0.99 / 255
    scores = MaskScores(SIZE)
    scores.add(soft, truth, boxes)
    result = scores.result()
    assert result["miou"] == 0  # 0.5 is not above 0.5
    assert result["miou_1_255"] == pytest.approx(400 / 800)


def test_specks_do_not_count_and_a_full_mask_stays() -> None:
    soft = np.zeros((100, 100), dtype=np.float32)
    soft[5, 5:15], soft[50, 5:16] = 1, 1  # 0.1% of the picture, and a pixel more
    assert foreground(soft).sum() == 11
    assert foreground(soft, official=True).sum() == 11
    assert foreground(np.ones((100, 100), dtype=np.float32)).all()


def test_missing_masks_and_images_without_a_box() -> None:
    truth, boxes = _half()
    scores = MaskScores(SIZE)
    scores.add(None, truth, boxes)
    scores.add(truth.astype(np.float32), truth, boxes[:0])
    result = scores.result()
    assert (result["num_images"], result["num_missing"]) == (2, 1)
    assert result["miou"] == 0.5
    assert (result["corloc"], result["max_box_acc_v2"]) == (0, 0)  # of the one image with a box
    empty = MaskScores(SIZE)
    empty.add(None, np.zeros_like(truth), boxes[:0])
    assert np.isnan([empty.result()[name] for name in ("px_ap", "corloc", "max_box_acc_v2")]).all()
    assert empty.result()["miou"] == 1


def test_boxes_alone_have_no_measures_of_masks() -> None:
    truth, boxes = _half()
    scores = MaskScores(SIZE)
    scores.add(truth.astype(np.float32), None, boxes)
    result = scores.result()
    assert np.isnan([result[name] for name in ("miou", "miou_1_255", "px_ap")]).all()
    assert (result["max_box_acc_v2"], result["corloc"], result["num_images"]) == (100, 100, 1)


def test_ignored_pixels_count_neither_way() -> None:
    truth, boxes = _half()
    soft = truth.astype(np.float32)
    soft[:10] = 1  # 400 pixels too many
    truth[25:30, 10:30] = False  # 100 of 400 are not said to be true
    ignored = np.zeros_like(truth)
    scores = MaskScores(SIZE)
    scores.add(soft, truth, boxes, ignored)
    assert scores.result()["miou"] == pytest.approx(300 / 800)
    ignored[:10], ignored[25:30] = True, True
    scores = MaskScores(SIZE)
    scores.add(soft, truth, boxes, resize_mask(ignored, 2 * SIZE, 3 * SIZE))
    result = scores.result()
    assert (result["miou"], result["miou_1_255"], result["px_ap"]) == (1, 1, 100)


def test_edges_on_whole_pixels_stay_there() -> None:
    """wsolevaluation scales whole pixels before it divides; 61 of 112 would become 121 of 224 the other way round."""
    for width in (112, 224, 333, 500, 896):
        pixels = np.arange(width, dtype=np.float64)
        relative = np.stack([pixels / width] * 4, axis=1)
        expected = (pixels * 224 / width).astype(int)
        np.testing.assert_array_equal(whole_pixels(relative, 224)[:, 0], expected)


def test_masks_of_any_size_are_compared_at_one() -> None:
    truth, boxes = _half()
    large = resize_mask(truth, 4 * SIZE, 3 * SIZE)
    scores = MaskScores(SIZE)
    scores.add(large.astype(np.float32), resize_mask(truth, SIZE, 2 * SIZE), boxes)
    assert scores.result()["miou"] == 1
    soft = np.tile(np.linspace(0, 1, 80, dtype=np.float32), (80, 1))
    assert resize_soft_mask(soft, SIZE).shape == (SIZE, SIZE)
    assert set(np.unique(resize_soft_mask(large.astype(np.float32), 33))) == {0.0, 1.0}


def _blobs(seed: int, num_images: int) -> list[np.ndarray]:
    """Rectangles of random size and place, one of them the whole picture."""
    masks = []
    for top, left, height, width in np.random.default_rng(seed).integers(2, 30, (num_images, 4)):
        masks.append(np.zeros((SIZE, SIZE), dtype=bool))
        masks[-1][top : top + height, left : left + width] = True
    return [*masks, np.ones((SIZE, SIZE), dtype=bool)]


def test_shares_and_boxes_of_the_same_area_by_brute_force() -> None:
    """Pixel by pixel: the box in the middle that has as many pixels as the mask, up to whole sides."""
    found, truths = _blobs(0, 6), _blobs(1, 6)
    scores, shares, ious, hits = MaskScores(SIZE), [], [], []
    for mask, truth in zip(found, truths, strict=True):
        box = region_boxes(truth)[0]
        scores.add(mask.astype(np.float32), truth, box)
        num_pixels = sum(bool(pixel) for row in mask for pixel in row)
        side = round(num_pixels**0.5)
        start = (SIZE - side) // 2
        inside = range(start, start + side)
        same = {(y, x) for y in inside for x in inside}
        true = {(y, x) for y in range(SIZE) for x in range(SIZE) if truth[y, x]}
        assert abs(len(same) - num_pixels) <= side
        shares.append(num_pixels / SIZE**2)
        ious.append(len(same & true) / len(same | true))
        hits.append(ious[-1] >= 0.5)  # a true rectangle is its own box
    result = scores.result()
    assert result["mask_share"] == pytest.approx(np.mean(shares))
    assert result["same_area_miou"] == pytest.approx(np.mean(ious))
    assert result["same_area_corloc"] == pytest.approx(100 * np.mean(hits))
    assert 0 < np.mean(hits) < 1
    assert result["same_area_miou"] != pytest.approx(result["miou"], abs=0.01)


def test_the_share_is_of_the_mask_that_is_scored() -> None:
    truth, boxes = _half()
    soft = np.where(truth, 0.6, 0.4).astype(np.float32)
    soft[0, 0] = 1  # a speck
    scores = MaskScores(SIZE)
    scores.add(soft, truth, boxes)
    scores.add(None, truth, boxes)
    result = scores.result()
    assert result["mask_share"] == (0.25 + 0) / 2
    assert (result["same_area_miou"], result["same_area_corloc"]) == (0.5, 50)


def test_sizes_are_of_the_true_object_up_to_and_with_their_bounds() -> None:
    assert [size_of(share) for share in (0.001, 0.05, 0.0501, 0.4, 0.401, 1)] == [
        *("small", "small", "medium", "medium", "large", "large")
    ]
    assert size_of(0) is None


@pytest.mark.parametrize("has_masks", [True, False])
def test_rows_by_size_are_the_scores_of_those_images_alone(has_masks: bool) -> None:
    rng = np.random.default_rng(2)
    together, alone = MaskScores(SIZE), {name: MaskScores(SIZE) for name in ("small", "medium", "large")}
    for side in (4, 8, 12, 20, 25, 30, 40, 0):  # up to 4, 39.1 and 100%, and none
        truth = np.zeros((SIZE, SIZE), dtype=bool)
        truth[:side, SIZE - side :] = True
        soft, boxes = rng.random((SIZE, SIZE)).astype(np.float32), region_boxes(truth)[0]
        rows = [together]
        rows += [alone["small" if side <= 8 else "medium" if side <= 25 else "large"]] if side else []
        for row in rows:
            row.add(soft, truth if has_masks else None, boxes)
    by_size = together.result_by_size()
    assert {name: row["num_images"] for name, row in by_size.items()} == {"small": 2, "medium": 3, "large": 2}
    for name, row in by_size.items():
        assert row == pytest.approx(alone[name].result(), nan_ok=True)
    assert together.result()["num_images"] == 8


def test_the_crf_adds_the_difference_of_the_measures_that_both_have() -> None:
    refined, soft = {"miou": 0.7, "corloc": 60.0, "px_ap": 3.0}, {"miou": 0.4, "corloc": 65.0, "px_ap": 1.0}
    assert crf_gains(refined, soft) == pytest.approx({"crf_miou": 0.3, "crf_corloc": -5})
    assert crf_gains({"corloc": 60.0}, {"corloc": 50.0}) == {"crf_corloc": 10}
