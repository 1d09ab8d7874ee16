from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np
import pycocotools.mask as rle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from PIL import Image
from pycocotools.coco import COCO

from objectaware.cli import run
from objectaware.data.storage import Storage
from objectaware.localize import exports
from objectaware.localize.exports import box_results, mask_results, official_box_lines
from objectaware.localize.mask_store import MaskRow, write_shard

BOX = np.array([[30 / 224, 38 / 224, 170 / 224, 122 / 224]], dtype=np.float32)


def row(image_id: str, boxes: np.ndarray = BOX) -> MaskRow:
    """An image of 40 × 20 pixels whose mask is its left half, where the CAM is 0.5."""
    mask = np.zeros((20, 40), dtype=bool)
    mask[:, :20] = True
    cam = np.full((8, 8), 0.5, dtype=np.float32)
    cam[:, 4:] = 1.0
    return MaskRow(image_id, 40, 20, cam=cam, mask=mask, boxes=boxes)


def failed(image_id: str) -> MaskRow:
    return MaskRow(image_id, 0, 0, status="failed", error="the file is empty")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Two shards: two images with a box, one without, one that failed."""
    storage = Storage.from_uri(tmp_path / "masks")
    write_shard(storage, 0, [row("a/one.jpg"), failed("b/broken.jpg")])
    write_shard(storage, 1, [row("b/two.png", np.zeros((0, 4), np.float32)), row("three.jpg")])
    for name in ("a/one.jpg", "b/two.png", "three.jpg"):
        (tmp_path / "photos" / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (40, 20)).save(tmp_path / "photos" / name)
    storage.write_json("store.json", {"config": {"data": {"root": str(tmp_path / "photos")}}})
    return tmp_path / "masks"


@pytest.fixture
def annotations(tmp_path: Path) -> Path:
    """An annotation file with other numbers than the rows' order."""
    names = {"three.jpg": 7, "a/one.jpg": 90, "b/two.png": 8, "b/broken.jpg": 9}
    images = [{"id": number, "file_name": name, "width": 40, "height": 20} for name, number in names.items()]
    path = tmp_path / "instances.json"
    category = {"id": 1, "name": "object"}
    path.write_text(json.dumps({"images": images, "annotations": [], "categories": [category]}))
    return path


def test_the_text_file_reads_back_as_the_official_code_reads_it(store: Path, tmp_path: Path) -> None:
    out = tmp_path / "boxes.txt"
    assert run(["export", "boxes", str(store), "--out", str(out), "--format", "official"]) == 0
    found = {}
    for line in out.read_text().splitlines():
        image, *boxes = line.strip().split(" ")
        found[image] = [list(map(float, box.split(","))) for box in boxes]
    assert list(found) == ["a/one.jpg", "b/two.png", "three.jpg"]
    assert found["b/two.png"] == []
    np.testing.assert_allclose(found["a/one.jpg"], BOX, atol=1e-6)


@settings(max_examples=50, deadline=None)
@given(boxes=arrays(np.float32, st.tuples(st.integers(0, 5), st.just(4)), elements=st.floats(0, 1, width=32)))
def test_boxes_survive_the_text_file_to_a_millionth(boxes: np.ndarray) -> None:
    """Golden check 11. Read as the official code does: an id, then boxes between spaces, numbers between commas."""
    (line,) = official_box_lines([row("a/one.jpg", boxes)])
    image, *words = line.decode().strip().split(" ")
    read = np.array([[float(number) for number in word.split(",")] for word in words]).reshape(-1, 4)
    assert image == "a/one.jpg"
    assert read.shape == boxes.shape
    assert np.abs(read - boxes.astype(np.float64)).max(initial=0) <= 1e-6


def test_the_text_file_takes_cocos_numbers(annotations: Path, store: Path, tmp_path: Path) -> None:
    out = tmp_path / "boxes.txt"
    arguments = ["export", "boxes", str(store), "--out", str(out), "--format", "official"]
    assert run([*arguments, "--numbers", str(annotations)]) == 0
    assert [line.split()[0] for line in out.read_text().splitlines()] == ["90", "8", "7"]


def test_names_that_the_text_file_cannot_hold_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    storage = Storage.from_uri(tmp_path / "masks")
    write_shard(storage, 0, [row("my photo.jpg")])
    storage.write_json("store.json", {})
    out = tmp_path / "boxes.txt"
    assert run(["export", "boxes", storage.uri, "--out", str(out), "--format", "official"]) == 2
    assert "my photo.jpg" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["masks"]


def test_pycocotools_loads_annotations_and_both_results_on_them(store: Path, tmp_path: Path) -> None:
    places = {name: str(tmp_path / name) for name in ("truth.json", "boxes.json", "masks.json")}
    assert run(["export", "boxes", str(store), "--out", places["truth.json"]]) == 0
    assert run(["export", "boxes", str(store), "--out", places["boxes.json"], "--format", "coco-results"]) == 0
    assert run(["export", "masks", str(store), "--out", places["masks.json"], "--format", "coco-results"]) == 0
    truth = COCO(places["truth.json"])
    assert [image["file_name"] for image in truth.dataset["images"]] == [
        "a/one.jpg",
        "b/broken.jpg",
        "b/two.png",
        "three.jpg",
    ]
    boxes = truth.loadRes(places["boxes.json"])
    assert [one["image_id"] for one in boxes.dataset["annotations"]] == [1, 4]
    pixels = BOX[0] * [40, 20, 40, 20]
    np.testing.assert_allclose(boxes.anns[1]["bbox"], [*pixels[:2], *(pixels[2:] - pixels[:2])], rtol=1e-6)
    masks = truth.loadRes(places["masks.json"])
    assert [one["image_id"] for one in masks.dataset["annotations"]] == [1, 3, 4]
    np.testing.assert_array_equal(masks.annToMask(masks.anns[1]), row("").mask)


def test_results_are_numbered_as_the_annotation_file_says(store: Path, annotations: Path, tmp_path: Path) -> None:
    out = tmp_path / "masks.json"
    arguments = ["export", "masks", str(store), "--format", "coco-results", "--out", str(out)]
    assert run([*arguments, "--numbers", str(annotations)]) == 0
    assert [entry["image_id"] for entry in COCO(str(annotations)).loadRes(str(out)).dataset["annotations"]] == [
        90,
        8,
        7,
    ]


@pytest.mark.parametrize("state", ["gone", "of another size"])
def test_results_in_pixels_need_the_pictures_that_were_localized(
    state: str, store: Path, annotations: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No size tells whether a picture is upside down."""
    picture = tmp_path / "photos" / "three.jpg"
    picture.unlink()
    if state != "gone":
        Image.new("RGB", (20, 40)).save(picture)
    out = tmp_path / "masks.json"
    words = ["export", "masks", str(store), "--format", "coco-results", "--out", str(out)]
    assert run([*words, "--numbers", str(annotations)]) == 2
    assert "holds a mask of 40 × 20 pixels for three.jpg, which now" in capsys.readouterr().err
    assert not out.exists()
    assert run(words) == 0


def test_the_score_is_the_mean_cam_where_the_mask_is(tmp_path: Path) -> None:
    whole = np.array([[0, 0, 1, 1], [0.75, 0, 1, 1]], dtype=np.float32)
    entries = json.loads(b"".join(box_results([row("a", whole)])))
    assert [entry["score"] for entry in entries] == [0.5, 0.0]
    assert json.loads(b"".join(mask_results([row("a")])))[0]["score"] == 0.5


def test_an_image_that_the_annotation_file_lacks_is_named() -> None:
    with pytest.raises(ValueError, match=r"extra\.jpg"):
        list(box_results([row("extra.jpg")], {"other.jpg": 1}))


def test_nothing_found_gives_valid_empty_files() -> None:
    assert json.loads(b"".join(box_results([failed("a")]))) == []
    assert b"".join(official_box_lines([failed("a")])) == b""


def test_pngs_hold_the_masks_under_the_images_paths(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "png"
    assert run(["export", "masks", str(store), "--out", str(out)]) == 0
    assert "images: 4, of which 1 failed" in capsys.readouterr().out
    files = sorted(str(path.relative_to(out)) for path in out.rglob("*") if path.is_file())
    assert files == ["a/one.png", "b/two.png", "three.png"]
    picture = cv2.imread(str(out / "a" / "one.png"), cv2.IMREAD_UNCHANGED)
    np.testing.assert_array_equal(picture, np.where(row("").mask, 255, 0))


def test_an_export_of_masks_goes_on_where_it_stopped(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "png"
    words = ["export", "masks", str(store), "--out", str(out)]
    encode, made = exports.mask_png, []

    def interrupt(mask: np.ndarray) -> bytes:
        if made:
            raise KeyboardInterrupt
        made.append(encode(mask))
        return made[0]

    with monkeypatch.context() as patch:
        patch.setattr(exports, "mask_png", interrupt)
        assert run(words) == 130
    first = (out / "a" / "one.png").stat()
    assert [path.name for path in out.rglob("*") if path.is_file()] == ["one.png"]
    assert run(words) == 0
    assert run(words) == 0
    assert sorted(path.name for path in out.rglob("*") if path.is_file()) == ["one.png", "three.png", "two.png"]
    assert (out / "a" / "one.png").stat().st_mtime_ns == first.st_mtime_ns
    (out / "three.png").write_bytes(b"somebody's")
    (out / "a" / "one.png").unlink()
    capsys.readouterr()
    assert run(words) == 2
    assert "three.png: already exists with other content" in capsys.readouterr().err
    assert not (out / "a" / "one.png").exists()  # nothing is written before all names are looked at


def test_images_that_differ_in_suffix_alone_do_not_overwrite_each_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    storage = Storage.from_uri(tmp_path / "masks")
    write_shard(storage, 0, [row("0.jpg"), row("a.jpg")])
    write_shard(storage, 1, [row("a.jpeg")])
    storage.write_json("store.json", {})
    assert run(["export", "masks", storage.uri, "--out", str(tmp_path / "png")]) == 2
    assert "store = a.jpeg: differs from a.jpg only in the suffix, and both give a.png" in capsys.readouterr().err
    assert not (tmp_path / "png").exists()


@pytest.mark.parametrize("state", ["no store", "not finished"])
def test_what_is_no_finished_store_is_refused(state: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    storage = Storage.from_uri(tmp_path / "masks")
    if state == "not finished":
        write_shard(storage, 0, [row("a.jpg")])
    assert run(["export", "boxes", storage.uri, "--out", str(tmp_path / "boxes.json")]) == 2
    assert f"store = {storage.uri}" in capsys.readouterr().err
    assert not (tmp_path / "boxes.json").exists()


def test_a_store_cannot_write_outside_the_folder(tmp_path: Path) -> None:
    storage = Storage.from_uri(tmp_path / "masks")
    write_shard(storage, 0, [row("../../escaped.jpg")])
    storage.write_json("store.json", {})
    assert run(["export", "masks", storage.uri, "--out", str(tmp_path / "deep" / "png")]) == 2
    assert not list(tmp_path.rglob("escaped*"))


def test_memory_does_not_grow_with_the_number_of_images() -> None:
    def peak(num_rows: int) -> int:
        def rows() -> Iterator[MaskRow]:
            return (row(f"{index}.jpg") for index in range(num_rows))

        tracemalloc.start()
        for writer in (box_results, mask_results, official_box_lines):
            for _ in writer(rows()):
                pass
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    peak(10)
    # The least of several: what threads of other tests allocate meanwhile counts too.
    assert min(peak(600) for _ in range(3)) < min(peak(60) for _ in range(3)) + 10_000


def test_run_lengths_are_cocos(store: Path, tmp_path: Path) -> None:
    out = tmp_path / "masks.json"
    assert run(["export", "masks", str(store), "--format", "coco-results", "--out", str(out)]) == 0
    for entry in json.loads(out.read_text()):
        assert rle.area(entry["segmentation"]) == 400
