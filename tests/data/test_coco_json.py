from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pycocotools import mask as coco_mask

from objectaware.data.coco_json import CocoInstances, parse_instances, union_mask
from objectaware.errors import InputError


def content() -> dict[str, Any]:
    """Two images out of order, categories with gaps in their numbers."""
    return {
        "images": [
            {"id": 30, "file_name": "b.jpg", "width": 8, "height": 6},
            {"id": 4, "file_name": "sub folder/a.jpg", "width": 10, "height": 10},
        ],
        "annotations": [
            annotation(1, 30, 90),
            annotation(2, 30, 7),
        ],
        "categories": [{"id": 90, "name": "toothbrush"}, {"id": 7, "name": "train"}],
    }


def annotation(number: int, image: int, category: int) -> dict[str, Any]:
    polygon = [1.0, 1.0, 4.0, 1.0, 4.0, 4.0]
    keys = {"id": number, "image_id": image, "category_id": category, "iscrowd": 0}
    return {**keys, "segmentation": [polygon], "bbox": [1, 1, 3, 3], "area": 4.5}


def write(folder: Path, value: object) -> Path:
    path = folder / "instances.json"
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    return path


def read_all(path: Path) -> CocoInstances:
    """What a command reads that uses all there is."""
    instances = parse_instances(path)
    instances.check("shape", "category_index", "box", "area", "segmentation", "is_crowd")
    return instances


def test_images_are_in_number_order_and_categories_without_gaps(tmp_path: Path) -> None:
    instances = parse_instances(write(tmp_path, content()))
    assert [image.file_name for image in instances.images] == ["sub folder/a.jpg", "b.jpg"]
    assert instances.category_names == ("train", "toothbrush")
    assert [len(found) for found in instances.annotations] == [0, 2]
    assert [found.category_index for found in instances.annotations[1]] == [1, 0]
    assert instances.annotations[1][0].box == (1, 1, 3, 3)


def test_crowds_are_told_and_files_without_the_key_have_none(tmp_path: Path) -> None:
    crowd = change("annotations/0/iscrowd", 1)
    assert [one.is_crowd for one in parse_instances(write(tmp_path, crowd)).annotations[1]] == [True, False]
    without = change("annotations/0/iscrowd", ...)
    assert not parse_instances(write(tmp_path, without)).annotations[1][0].is_crowd
    booleans = change("annotations/0/iscrowd", True)
    assert [one.is_crowd for one in read_all(write(tmp_path, booleans)).annotations[1]] == [True, False]
    with pytest.raises(InputError, match="'iscrowd' of"):
        read_all(write(tmp_path, change("annotations/0/iscrowd", "yes")))


def change(path: str, value: object) -> dict[str, Any]:
    """Return the valid content with one place changed; `...` deletes it."""
    changed: Any = content()
    *way, last = [int(step) if step.isdigit() else step for step in path.split("/")]
    place = changed
    for step in way:
        place = place[step]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return changed


@pytest.mark.parametrize(("path", "value", "problem"), [
    ("images", ..., "the file has no 'images'"),
    ("annotations", ..., "the file has no 'annotations'"),
    ("categories", {}, "'categories' of the file is {}"),
    ("images/1", "a.jpg", r"images\[1\] is not an object"),
    ("images/1/file_name", ..., r"images\[1\] has no 'file_name'"),
    ("images/1/file_name", 3, r"'file_name' of images\[1\] is 3"),
    ("images/0/file_name", "../b.jpg", "leads out of the image folder"),
    ("images/0/file_name", "a/../../b.jpg", "leads out of the image folder"),
    ("images/0/file_name", "/etc/b.jpg", "leads out of the image folder"),
    ("images/0/file_name", "", "leads out of the image folder"),
    ("images/0/id", 4, r"images\[1\] has number 4 a second time"),
    ("images/0/id", "30", r"'id' of images\[0\] is '30'"),
    ("images/0/width", 0, r"size of images\[0\] is 0 x 6"),
    ("images/0/height", 6.5, r"'height' of images\[0\] is 6\.5"),
    ("annotations/1/image_id", ..., r"annotations\[1\] has no 'image_id'"),
    ("annotations/0/category_id", 8, r"annotations\[0\] is of category 8"),
    ("annotations/0/bbox", ..., r"annotations\[0\] has no 'bbox'"),
    ("annotations/0/bbox", [1, 2, 3], "not x, y, width, height"),
    ("annotations/0/bbox", [1, 2, 3, "4"], "not x, y, width, height"),
    ("annotations/0/bbox", [1, 2, -3, 4], "not x, y, width, height"),
    ("annotations/0/bbox", [1, 2, float("nan"), 4], "not x, y, width, height"),
    ("annotations/0/area", None, "'area' of"),
    ("annotations/0/area", float("inf"), "'area' of"),
    ("annotations/0/segmentation", ..., "no 'segmentation'"),
    ("annotations/0/segmentation", [1, 2, 3], "not a list of polygons"),
    ("annotations/0/segmentation", {"size": [6, 8]}, "no 'counts'"),
    ("annotations/0/segmentation", {"counts": []}, "no 'size'"),
    ("categories/0/name", ..., r"categories\[0\] has no 'name'"),
    ("categories/0/id", 7, r"categories\[1\] has number 7 a second time"),
])  # fmt: skip
@pytest.mark.chaos(fault="malformed COCO JSON", holds="the place in a message")
def test_malformed_content_is_refused_with_its_place(tmp_path: Path, path: str, value: object, problem: str) -> None:
    file = write(tmp_path, change(path, value))
    with pytest.raises(InputError, match=problem) as error:
        read_all(file)
    assert str(file) in str(error.value)


@pytest.mark.chaos(fault="a COCO file that is no JSON", holds="a message that says so")
@pytest.mark.parametrize("text", ["", "{", "[]", "null", "[" * 100_000, '{"images": [nope]}'])
def test_what_is_no_json_object_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputError, match="is not"):
        parse_instances(write(tmp_path, text))


def test_binary_and_missing_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe\x00\x80")
    with pytest.raises(InputError, match="is not JSON"):
        parse_instances(tmp_path / "binary.json")
    with pytest.raises(InputError, match=r"missing\.json: cannot be opened \(No such file"):
        parse_instances(tmp_path / "missing.json")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 100) | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
PLACES = [
    *("images", "annotations", "categories", "images/0", "annotations/0", "categories/1"),
    *(f"images/1/{key}" for key in ("id", "file_name", "width", "height")),
    *(f"annotations/1/{key}" for key in ("image_id", "category_id", "bbox", "area", "segmentation")),
    *(f"categories/0/{key}" for key in ("id", "name")),
]


@settings(max_examples=50, deadline=None)
@given(place=st.sampled_from(PLACES), value=JSON)
def test_any_value_anywhere_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, place: str, value: object
) -> None:
    path = write(tmp_path_factory.getbasetemp(), change(place, value))
    try:
        instances = read_all(path)
    except InputError:
        return
    assert len(instances.annotations) == len(instances.images)


def test_two_categories_of_one_name_are_refused_where_names_count(tmp_path: Path) -> None:
    changed = content()
    for category in changed["categories"]:
        category["name"] = "crane"
    instances = parse_instances(write(tmp_path, changed))
    instances.check("shape", "category_index", "box")
    with pytest.raises(InputError, match="are both named 'crane'"):
        instances.check("category_name")


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
