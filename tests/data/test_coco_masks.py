from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pycocotools import mask as coco_mask

from objectaware.data.coco_masks import union_mask

SQUARE = [[1.0, 1.0, 4.0, 1.0, 4.0, 4.0, 1.0, 4.0]]


def square(top: int, left: int, size: int, shape: tuple[int, int]) -> np.ndarray:
    mask = np.zeros(shape, dtype=bool)
    mask[top : top + size, left : left + size] = True
    return mask


def test_polygons_of_one_and_of_several_instances_are_united() -> None:
    other = [[5.0, 0.0, 7.0, 0.0, 7.0, 2.0, 5.0, 2.0]]
    expected = square(1, 1, 3, (6, 8)) | square(0, 5, 2, (6, 8))
    assert np.array_equal(union_mask([SQUARE, other], 6, 8), expected)
    assert np.array_equal(union_mask([SQUARE + other], 6, 8), expected)


def test_no_instances_leave_an_empty_mask() -> None:
    mask = union_mask([], 3, 5)
    assert mask.shape == (3, 5)
    assert mask.dtype == np.bool_
    assert not mask.any()


@pytest.mark.parametrize("polygon", [[], [1.0, 1.0], [1.0, 1.0, 4.0, 4.0]])
def test_fewer_than_three_points_enclose_nothing(polygon: list[float]) -> None:
    """pycocotools would take four numbers for a box of width 4 and height 4."""
    assert not union_mask([[polygon]], 8, 8).any()
    assert np.array_equal(union_mask([[polygon, *SQUARE]], 6, 8), square(1, 1, 3, (6, 8)))


def test_points_outside_the_picture_are_cut() -> None:
    assert union_mask([[[-2.0, -2.0, 6.0, -2.0, 6.0, 6.0, -2.0, 6.0]]], 4, 4).all()


def test_uncompressed_run_lengths_go_down_the_columns() -> None:
    mask = union_mask([{"size": [2, 3], "counts": [1, 2, 3]}], 2, 3)
    assert mask.tolist() == [[False, True, False], [True, False, False]]


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 60), st.integers(1, 60), st.floats(0, 1), st.integers(0, 2**32))
def test_compressed_run_lengths_are_decoded_as_pycocotools_wrote_them(
    height: int, width: int, share: float, seed: int
) -> None:
    truth = np.random.default_rng(seed).random((height, width)) < share
    code = coco_mask.encode(np.asfortranarray(truth.astype(np.uint8)))
    counts = code["counts"].decode()
    assert np.array_equal(union_mask([{"size": [height, width], "counts": counts}], height, width), truth)


def test_crowds_and_polygons_are_united() -> None:
    crowd = {"size": [6, 8], "counts": [0, 6, 42]}
    expected = square(1, 1, 3, (6, 8))
    expected[:, 0] = True
    assert np.array_equal(union_mask([crowd, SQUARE], 6, 8), expected)


MALFORMED: list[Any] = [
    [[1.0, 2.0, 3.0]],
    [["a", "b", "c", "d", "e", "f"]],
    [[0.0, 0.0, 1e300, 0.0, 1.0, 1.0]],
    [[0.0, 0.0, float("nan"), 0.0, 1.0, 1.0]],
    [[[0.0, 0.0], [1.0, 0.0], [1.0, 1.0]]],
    {"size": [4, 4], "counts": [3, 100]},
    {"size": [4, 4], "counts": [3, 2]},
    {"size": [4, 4], "counts": [20, -4]},
    {"size": [4, 4], "counts": [8.0, 8.0]},
    {"size": [4, 5], "counts": [20]},
    {"size": [4, 4], "counts": ""},
    {"size": [4, 4], "counts": "garbage!!"},
    {"size": [4, 4], "counts": "é"},
    {"size": [4, 4], "counts": "P"},
]


@pytest.mark.parametrize("segmentation", MALFORMED)
def test_malformed_segmentations_are_refused(segmentation: Any) -> None:
    """pycocotools alone gives unwritten memory for some of these, and takes all memory for others."""
    with pytest.raises(ValueError, match=r".+"):
        union_mask([segmentation], 4, 4)


@settings(max_examples=50, deadline=None)
@given(st.text(st.characters(min_codepoint=40, max_codepoint=115), max_size=12))
def test_random_run_length_text_is_decoded_whole_or_refused(text: str) -> None:
    try:
        mask = union_mask([{"size": [5, 7], "counts": text}], 5, 7)
    except ValueError:
        return
    assert mask.shape == (5, 7)
