"""True masks and boxes, whatever the layout, and pictures that are stored in one way and shown in another."""

from __future__ import annotations

import gc
import json
import shutil
import weakref
from pathlib import Path
from typing import Any
from unittest import mock

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from objectaware.cli import run
from objectaware.config import DataConfig
from objectaware.data import truth as truth_module
from objectaware.data.dataset import Dataset, layouts
from objectaware.data.folder import ImageFolder
from objectaware.data.images import UnreadableImage, read_image
from objectaware.data.masks import resize_mask
from objectaware.data.pack import pack_images
from objectaware.data.sets.coco import CroppedObjects, ObjectBoxes, load_coco
from objectaware.data.storage import Storage
from objectaware.data.truth import GroundTruth, Orientation
from objectaware.detection.data import TrainingImages
from objectaware.detection.detect import average_precision, detect_objects
from objectaware.errors import InputError
from objectaware.localize.exports import segmentation
from objectaware.localize.mask_store import MaskRow, write_shard
from objectaware.stages.localization import LocalizationConfig, measure_masks
from opened_parts import data_set
from published_trees import KINDS, write_part

SHAPE = (80, 120)
TAGS = range(1, 9)
TELLING = (5, 6, 7, 8)


def _object(shape: tuple[int, int] = SHAPE) -> NDArray[np.bool_]:
    """A mask without any symmetry, in the corner at the top left."""
    mask = np.zeros(shape, dtype=np.bool_)
    mask[4:30, 8:60] = True
    mask[30:50, 8:24] = True
    return mask


def _write_photo(path: Path, shown: NDArray[np.bool_], tag: int) -> None:
    """A photo whose stored pixels are bright where the mask is, with an EXIF orientation."""
    exif = Image.Exif()
    exif[0x0112] = tag
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.repeat((shown * np.uint8(250))[..., None], 3, axis=2)
    Image.fromarray(pixels).save(path, quality=95, exif=exif)


def _shown(path: Path) -> NDArray[np.bool_]:
    """The object as the product sees it."""
    return np.asarray(read_image(path)[..., 0] > 125)


def _iou(one: NDArray[np.bool_], other: NDArray[np.bool_]) -> float:
    assert one.shape == other.shape
    return float((one & other).sum() / (one | other).sum())


def _box(mask: NDArray[np.bool_]) -> list[float]:
    """x0, y0, x1, y1, relative."""
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    height, width = mask.shape
    return [columns[0] / width, rows[0] / height, (columns[-1] + 1) / width, (rows[-1] + 1) / height]


def _write_coco(
    root: Path, photos: list[tuple[NDArray[np.bool_], int, bool]], *, swapped: bool = False, polygon: bool = False
) -> None:
    """Photos of a stored mask and a tag, each annotated in upright pixels or else in stored ones."""
    images, annotations = [], []
    for number, (stored, tag, is_upright) in enumerate(photos, start=1):
        _write_photo(root / "val2017" / f"{number}.jpg", stored, tag)
        mask = Orientation(stored.shape, tag).pixels(stored) if is_upright else stored
        (height, width), (x0, y0, x1, y1) = mask.shape, _box(mask)
        box = [x0 * width, y0 * height, (x1 - x0) * width, (y1 - y0) * height]
        height, width = (width, height) if swapped else (height, width)
        images.append({"id": number, "file_name": f"{number}.jpg", "width": width, "height": height})
        # The polygon goes around `_object()` as it is stored.
        shape: Any = [[8, 4, 60, 4, 60, 30, 24, 30, 24, 50, 8, 50]] if polygon else segmentation(mask)
        annotations.append({"id": number, "image_id": number, "category_id": 1, "iscrowd": 0, "bbox": box})
        annotations[-1] |= {"area": float(mask.sum()), "segmentation": shape}
    content = {"images": images, "annotations": annotations, "categories": [{"id": 1, "name": "thing"}]}
    (root / "annotations").mkdir(exist_ok=True)
    (root / "annotations" / "instances_val2017.json").write_text(json.dumps(content))


def _coco_data(root: Path) -> DataConfig:
    return DataConfig(root=str(root), layout="coco", split="val")


@pytest.mark.parametrize("tag", TAGS)
def test_pixels_and_boxes_are_turned_as_pillow_turns_pictures(tmp_path: Path, tag: int) -> None:
    stored = _object()
    _write_photo(tmp_path / "a.jpg", stored, tag)
    turn = Orientation(SHAPE, tag)
    turned = turn.pixels(stored)
    assert turned.shape == turn.upright_shape
    assert _iou(turned, _shown(tmp_path / "a.jpg")) == 1
    np.testing.assert_allclose(turn.boxes(np.array([_box(stored)])), [_box(turned)])
    np.testing.assert_array_equal(turn.inverse.pixels(turned), stored)
    pixels = np.array([[8.0, 4.0, 60.0, 50.0]])
    np.testing.assert_allclose(turn.inverse.boxes(turn.boxes(pixels, SHAPE), turn.upright_shape), pixels)


@pytest.mark.parametrize(("tag", "is_upright"), [*((tag, True) for tag in TAGS), *((tag, False) for tag in TELLING)])
def test_coco_is_turned_with_its_photo(tmp_path: Path, tag: int, is_upright: bool) -> None:
    _write_coco(tmp_path, [(_object(), tag, is_upright)])
    shown = _shown(tmp_path / "val2017" / "1.jpg")
    truth = Dataset.of(_coco_data(tmp_path)).truth_of(["1.jpg"])
    assert _iou(truth[0], shown) == 1
    np.testing.assert_allclose(truth.boxes(0), [_box(shown)], atol=1e-9)
    np.testing.assert_allclose(ObjectBoxes(load_coco(tmp_path, "val"), margin=0)[0], [_box(shown)], rtol=1e-6)
    crop = CroppedObjects(load_coco(tmp_path, "val"), margin=0).read(0)
    rows, columns = np.flatnonzero(shown.any(axis=1)), np.flatnonzero(shown.any(axis=0))
    assert crop.shape[:2] == (len(rows), len(columns))
    assert (crop[..., 0] > 125).sum() == shown.sum()


@pytest.mark.parametrize("tag", TAGS)
@pytest.mark.parametrize("shape", [(80, 80), SHAPE])
def test_where_the_size_does_not_tell_coco_is_as_its_first_photo_that_does(
    tmp_path: Path, tag: int, shape: tuple[int, int]
) -> None:
    for is_upright in (False, True):
        root = tmp_path / str(is_upright)
        _write_coco(root, [(_object(shape), tag, is_upright), (_object(), 6, is_upright)])
        truth = Dataset.of(_coco_data(root)).truth_of(["1.jpg"])  # also where that photo is left out
        assert _iou(truth[0], _shown(root / "val2017" / "1.jpg")) == 1


def test_so_many_photos_are_looked_at_for_one_that_tells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _write_coco(tmp_path, [(_object(), 3, False), (_object(), 1, False), (_object(), 6, False)])
    for num_looked_at, is_told in ((3, True), (2, False)):
        monkeypatch.setattr(truth_module, "_MAX_LOOKED_AT", num_looked_at)
        truth = Dataset.of(_coco_data(tmp_path)).truth_of(["1.jpg"])
        assert (_iou(truth[0], _shown(tmp_path / "val2017" / "1.jpg")) == 1) == is_told


def test_the_header_of_a_photo_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _write_coco(tmp_path, [(_object(), 6, False), (_object(), 3, False)])
    coco = load_coco(tmp_path, "val")
    boxes, images = ObjectBoxes(coco), TrainingImages(coco, short_sides=(80,), max_side=1000, seed=0)
    first, target = boxes[1], images.load(1, epoch=0, iteration=0)[1]
    monkeypatch.setattr(truth_module, "read_header", mock.Mock(side_effect=AssertionError("read again")))
    np.testing.assert_array_equal(boxes[1], first)
    again = images.load(1, epoch=0, iteration=0)[1]
    np.testing.assert_array_equal(again["masks"], target["masks"])


def test_the_boxes_to_train_on_do_not_keep_the_annotation_file(tmp_path: Path) -> None:
    _write_coco(tmp_path, [(_object(), 6, False)])
    coco = load_coco(tmp_path, "val")
    instances = weakref.ref(coco.instances)
    boxes = Dataset.of(_coco_data(tmp_path)).training_boxes(["1.jpg"])
    del coco
    gc.collect()
    assert instances() is None
    assert len(boxes[0]) == 1


@pytest.mark.parametrize("tag", TELLING)
def test_polygons_are_turned_too(tmp_path: Path, tag: int) -> None:
    _write_coco(tmp_path, [(_object(), tag, False)], polygon=True)
    truth = Dataset.of(_coco_data(tmp_path)).truth_of(["1.jpg"])
    assert _iou(truth[0], _shown(tmp_path / "val2017" / "1.jpg")) > 0.99


def test_annotations_of_a_shrunk_copy_are_turned_by_its_proportions(tmp_path: Path) -> None:
    _write_coco(tmp_path, [(_object(), 6, False)])
    small = resize_mask(_object(), 40, 60)
    _write_photo(tmp_path / "val2017" / "1.jpg", small, 6)
    truth = Dataset.of(_coco_data(tmp_path)).truth_of(["1.jpg"])
    assert _iou(resize_mask(truth[0], 60, 40), _shown(tmp_path / "val2017" / "1.jpg")) == 1


@pytest.mark.parametrize("suffix", [".png", ".tif", ".webp"])
def test_other_formats_have_orientations_too(tmp_path: Path, suffix: str) -> None:
    _write_coco(tmp_path, [(_object(), 6, False)])
    path = tmp_path / "annotations" / "instances_val2017.json"
    path.write_text(path.read_text().replace("1.jpg", f"1{suffix}"))
    _write_photo(tmp_path / "val2017" / f"1{suffix}", _object(), 6)
    truth = Dataset.of(_coco_data(tmp_path)).truth_of([f"1{suffix}"])
    assert _iou(truth[0], _shown(tmp_path / "val2017" / f"1{suffix}")) == 1


def test_swapped_width_and_height_are_refused_by_the_photos_name(tmp_path: Path) -> None:
    _write_coco(tmp_path, [(_object(), 1, False)], swapped=True, polygon=True)
    problem = r"1\.jpg: is 120 × 80 pixels, its annotations are for 80 × 120"
    truth = Dataset.of(_coco_data(tmp_path)).truth_of(["1.jpg"])
    with pytest.raises(InputError, match=problem):
        truth[0]
    with pytest.raises(InputError, match=problem):
        truth.boxes(0)
    with pytest.raises(InputError, match=problem):
        ObjectBoxes(load_coco(tmp_path, "val"))[0]
    with pytest.raises(UnreadableImage, match="its annotations are for 80 × 120"):  # a row that is counted
        CroppedObjects(load_coco(tmp_path, "val")).read(0)


# The photos of `published_trees`, of 40 × 30 pixels, are given an orientation.
def _pictures(data: DataConfig) -> ImageFolder:
    images = data.open()
    assert isinstance(images, ImageFolder)
    return images


def _turn_photos(images: ImageFolder, tag: int) -> None:
    for index in range(len(images)):
        pixels = Image.fromarray(read_image(images.path(index)))
        exif = Image.Exif()
        exif[0x0112] = tag
        pixels.save(images.path(index), format="JPEG" if images.path(index).suffix != ".png" else "PNG", exif=exif)


def _truth(data: DataConfig, images: ImageFolder) -> GroundTruth:
    return Dataset.of(data).truth_of(images.image_ids)


@pytest.mark.parametrize("tag", TAGS)
@pytest.mark.parametrize("kind", sorted(set(KINDS) - {"coco"}))
def test_published_truth_is_of_stored_pixels(tmp_path: Path, kind: str, tag: int) -> None:
    data = write_part(tmp_path, kind)
    images = _pictures(data)
    before = _truth(data, images)
    has_masks = before.has_masks
    masks = [before[index] for index in range(len(images))] if has_masks else []
    ignored = [before.ignored(index) for index in range(len(images))]
    boxes = [before.boxes(index) for index in range(len(images))]
    _turn_photos(images, tag)
    truth = _truth(data, images)
    for index in range(len(images)):
        turn = Orientation((1, 1), tag)
        if has_masks:
            np.testing.assert_array_equal(truth[index], turn.pixels(masks[index]))
        known = ignored[index]
        assert (known is None) == (truth.ignored(index) is None)
        if known is not None:
            np.testing.assert_array_equal(truth.ignored(index), turn.pixels(known))
        expected = turn.boxes(boxes[index])
        np.testing.assert_allclose(sorted(truth.boxes(index).tolist()), sorted(expected.tolist()), atol=1e-9)


def _swap_sizes(data: DataConfig, kind: str) -> None:
    """Swaps the sizes that the truth is for."""
    if kind == "wsolevaluation":
        path = Path(str(data.metadata), "test", "image_sizes.txt")
        path.write_text(path.read_text().replace(",40,30", ",30,40"))
    elif kind == "voc":
        for path in Path(data.root).rglob("*.xml"):
            path.write_text(path.read_text().replace("<width>40</width><height>30", "<width>30</width><height>40"))
    else:
        folders = {"cub": "segmentations", "voc-masks": "SegmentationClass", "flowers102": "segmim"}
        for path in Path(data.root).rglob("*.*"):
            if path.is_file() and (
                path.parts[-2] == folders.get(kind) or path.parts[-3] == folders.get(kind) or "_m0" in path.name
            ):
                with Image.open(path) as image:
                    turned = image.transpose(Image.Transpose.ROTATE_90)
                turned.save(path)


@pytest.mark.parametrize("kind", sorted(set(KINDS) - {"coco", "backgrounds-challenge"}))
def test_published_truth_of_another_size_is_refused_by_name(tmp_path: Path, kind: str) -> None:
    data = write_part(tmp_path, kind)
    _swap_sizes(data, kind)
    images = _pictures(data)
    truth = _truth(data, images)
    with pytest.raises(InputError, match="is 40 × 30 pixels, its annotations are for 30 × 40") as error:
        truth[0] if truth.has_masks else truth.boxes(0)
    assert images.image_ids[0] in str(error.value)


def test_foregrounds_to_train_on_are_turned_with_their_photo(tmp_path: Path) -> None:
    for variant in ("original", "only_fg"):
        _write_photo(tmp_path / variant / "train" / "00_dog" / "a.JPEG", _object(), 6)
    shown = _shown(tmp_path / "original" / "train" / "00_dog" / "a.JPEG")
    data = Dataset.of(DataConfig(root=str(tmp_path), layout="backgrounds-challenge", split="train"))
    foregrounds = data.training_truth(["00_dog/a.JPEG"])
    assert _iou(foregrounds.mask(0), shown) > 0.9  # JPEG's noise counts, too
    (tmp_path / "fg_mask" / "train" / "00_dog").mkdir(parents=True)
    np.save(tmp_path / "fg_mask" / "train" / "00_dog" / "a.npy", _object())
    assert _iou(data.training_truth(["00_dog/a.JPEG"]).mask(0), shown) == 1


@pytest.mark.parametrize("short_side", [None, 40])
def test_a_pack_holds_turned_masks_and_boxes(tmp_path: Path, short_side: int | None) -> None:
    _write_coco(tmp_path, [(_object(), 6, False)])
    images = _pictures(_coco_data(tmp_path))
    shown = _shown(images.path(0))
    pack = str(tmp_path / "pack")
    truth = Dataset.of(_coco_data(tmp_path)).truth_of(images.image_ids)
    pack_images(images, Storage.from_uri(pack), source={}, truth=truth, short_side=short_side)
    packed = Dataset.of(DataConfig(root=str(pack), layout="shards")).truth_of(images.image_ids)
    assert _iou(packed[0], resize_mask(shown, *packed[0].shape)) == 1
    np.testing.assert_allclose(packed.boxes(0), [_box(shown)], atol=1e-9)


@pytest.mark.parametrize("tag", TELLING)
@pytest.mark.parametrize("suffix", ["png", "npy"])
def test_masks_of_any_system_of_the_stored_photo_are_turned(tmp_path: Path, tag: int, suffix: str) -> None:
    _write_coco(tmp_path, [(_object(), tag, False)])
    shown = _shown(tmp_path / "val2017" / "1.jpg")
    systems = {"stored": _object(), "upright": shown, "squashed": resize_mask(shown, 224, 224)}
    for name, mask in systems.items():
        (tmp_path / name).mkdir()
        if suffix == "npy":
            np.save(tmp_path / name / "1.npy", mask)
        else:
            cv2.imwrite(str(tmp_path / name / "1.png"), mask.astype(np.uint8) * 255)
    masks = {name: str(tmp_path / name) for name in systems}
    config = LocalizationConfig(data=_coco_data(tmp_path), masks=masks, image_size=224)
    for name in systems:
        scores = measure_masks(config, name)["scores"][name]
        assert scores["miou"] == pytest.approx(1, abs=0.02)
        assert scores["max_box_acc_v2"] == 100


@pytest.mark.parametrize("tag", TAGS)
def test_coco_results_are_turned_as_the_annotations_are(tmp_path: Path, tag: int) -> None:
    _write_coco(tmp_path, [(_object(), tag, False), (_object(), 6, False)])
    results = [{"image_id": number, "segmentation": segmentation(_object()), "score": 1.0} for number in (1, 2)]
    (tmp_path / "results.json").write_text(json.dumps(results))
    masks = {"system": str(tmp_path / "results.json")}
    config = LocalizationConfig(data=_coco_data(tmp_path), masks=masks, image_size=240)
    scores = measure_masks(config, "system")["scores"]["system"]
    assert scores["miou"] == pytest.approx(1)
    assert scores["max_box_acc_v2"] == 100


@pytest.mark.parametrize("is_upright", [False, True])
@pytest.mark.parametrize("shape", [(80, 80), SHAPE])
@pytest.mark.parametrize("tag", [1, 3, 6])
def test_what_is_exported_for_an_annotation_file_is_in_its_pixels(
    tmp_path: Path, tag: int, shape: tuple[int, int], is_upright: bool
) -> None:
    _write_coco(tmp_path, [(_object(shape), tag, is_upright), (_object(), 6, is_upright)])
    data = _coco_data(tmp_path)
    store = Storage.from_uri(tmp_path / "store")
    rows = []
    for number in (1, 2):
        shown = _shown(tmp_path / "val2017" / f"{number}.jpg")
        height, width = shown.shape
        boxes = np.array([_box(shown)], dtype=np.float32)
        rows.append(MaskRow(f"{number}.jpg", width, height, cam=shown.astype(np.float32), mask=shown, boxes=boxes))
    write_shard(store, 0, rows)
    store.write_json("store.json", {"config": {"data": data.model_dump(mode="json"), "crf": False}})
    file = tmp_path / "annotations" / "instances_val2017.json"
    for kind in ("masks", "boxes"):
        words = ["export", kind, store.uri, "--format", "coco-results", "--numbers", str(file)]
        assert run([*words, "--out", str(tmp_path / f"{kind}.json")]) == 0
    config = LocalizationConfig(data=data, masks={"own": str(tmp_path / "masks.json")}, image_size=240)
    scores = measure_masks(config, "own")["scores"]["own"]
    assert scores["miou"] == pytest.approx(1)
    assert scores["max_box_acc_v2"] == 100
    found = json.loads((tmp_path / "boxes.json").read_text())
    known = json.loads(file.read_text())["annotations"]
    for one, other in zip(found, known, strict=True):
        assert one["image_id"] == other["image_id"]
        assert one["bbox"] == pytest.approx(other["bbox"], abs=1e-4)


@pytest.mark.parametrize("tag", TELLING)
def test_detection_learns_from_and_is_scored_by_turned_objects(tmp_path: Path, tag: int) -> None:
    _write_coco(tmp_path, [(_object(), tag, False)])
    coco = load_coco(tmp_path, "val")
    shown = _shown(tmp_path / "val2017" / "1.jpg")
    images = TrainingImages(coco, short_sides=(80,), max_side=1000, seed=0)
    for epoch in range(3):
        image, target = images.load(0, epoch=epoch, iteration=0)
        np.testing.assert_array_equal(target["masks"][0].numpy() > 0, image[0].numpy() > 0)
        extent = np.array(_box(target["masks"][0].numpy() > 0)) * np.array([*shown.shape[::-1]] * 2)
        np.testing.assert_allclose(target["boxes"][0].numpy(), extent)
    records = detect_objects(_perfect_detector, coco, [0], {1: 1})
    for kind in ("box", "mask"):
        scores, _ = average_precision(records, tmp_path / "annotations" / "instances_val2017.json", [1], kind)
        assert scores["ap"] == pytest.approx(100)


def _perfect_detector(image: NDArray[np.uint8]) -> Any:
    import torch

    mask = image[..., 0] > 125
    box = torch.tensor([_box(mask)]) * torch.tensor([*mask.shape[::-1]] * 2)
    found = {"boxes": box, "labels": torch.tensor([1]), "scores": torch.tensor([0.9])}
    return {**found, "masks": torch.from_numpy(mask)[None, None].float()}


def test_a_photo_that_cannot_be_read_leaves_its_truth_as_it_is(tmp_path: Path) -> None:
    _write_coco(tmp_path, [(_object(), 6, False), (_object(), 6, False)])
    (tmp_path / "val2017" / "1.jpg").unlink()
    assert Dataset.of(_coco_data(tmp_path)).truth_of(["1.jpg"])[0].shape == SHAPE


def test_every_layout_with_truth_is_among_these_or_has_a_test_of_its_own() -> None:
    own = {path.stem.removeprefix("test_").replace("_", "-") for path in Path(__file__).parent.glob("test_*.py")}
    among = {name.removesuffix("-masks") for name in KINDS}
    assert among <= {one.name for one in layouts() if one.masks} <= among | own


@pytest.mark.parametrize("name", KINDS)
def test_masks_are_as_large_as_what_is_ignored_and_boxes_lie_in_the_picture(tmp_path: Path, name: str) -> None:
    data = write_part(tmp_path, name)
    assert Dataset.of(data).has_truth
    images = data.open()
    assert isinstance(images, ImageFolder)
    truth = _truth(data, images)
    has_masks, has_ignored, has_boxes = KINDS[name]
    assert (truth.has_masks, truth.has_ignored, len(truth)) == (has_masks, has_ignored, len(images))
    ignored = [truth.ignored(index) for index in range(len(truth))]
    assert any(mask is not None and mask.any() for mask in ignored) == has_ignored
    for index in range(len(truth)):
        if has_masks:
            mask = truth[index]
            assert mask.dtype == np.bool_
            assert 0 < mask.mean() < 1
            assert ignored[index] is None or not (ignored[index] & mask).any()
        boxes = truth.boxes(index)
        assert (len(boxes) > 0) == has_boxes
        assert ((boxes >= 0) & (boxes <= 1)).all()
        assert (boxes[:, 2:] > boxes[:, :2]).all()


@pytest.mark.parametrize("name", sorted(set(KINDS) - {"coco"}))
def test_the_files_of_the_truth_are_told(tmp_path: Path, name: str) -> None:
    """COCO's annotations are a part of the images' own hash."""
    data = write_part(tmp_path, name)
    images = data.open()
    assert isinstance(images, ImageFolder)
    files = [folder.path(index) for folder in _truth(data, images).files for index in range(len(folder))]
    assert files
    assert all(path.is_file() for path in files)


def test_some_images_in_another_order_keep_their_own(tmp_path: Path) -> None:
    data = write_part(tmp_path, "cub")
    images = data.open()
    assert isinstance(images, ImageFolder)
    swapped = ImageFolder(images.root, images.image_ids[::-1])
    whole, part = _truth(data, images), _truth(data, swapped)
    np.testing.assert_array_equal(part[0], whole[1])
    np.testing.assert_array_equal(part.boxes(0), whole.boxes(1))
    assert (part[0] != whole[0]).any()


def test_what_was_not_downloaded_is_no_truth(tmp_path: Path) -> None:
    data = write_part(tmp_path, "flowers102")
    shutil.rmtree(tmp_path / "flowers102" / "segmim")
    assert not Dataset.of(data).has_truth
    folder = Dataset.of(DataConfig(root=str(tmp_path)))
    assert not folder.has_truth
    with pytest.raises(InputError, match="has neither true masks nor true boxes"):
        folder.truth_of([])


def test_a_pack_keeps_the_truth_of_its_images(tmp_path: Path) -> None:
    data = write_part(tmp_path, "cub")
    images = data.open()
    assert isinstance(images, ImageFolder)
    truth = _truth(data, images)
    pack_images(images, Storage.from_uri(str(tmp_path / "pack")), source={}, truth=truth)
    pack_images(images, Storage.from_uri(str(tmp_path / "plain")), source={})
    with_truth, plain = (data_set("shards", tmp_path / name) for name in ("pack", "plain"))
    assert with_truth.has_truth
    assert not plain.has_truth
    packed = with_truth.truth_of(images.image_ids)
    for index in range(len(images)):
        np.testing.assert_array_equal(packed[index], truth[index])
        np.testing.assert_allclose(packed.boxes(index), truth.boxes(index))
    with pytest.raises(InputError, match="is a pack without true masks"):
        plain.truth_of(images.image_ids)
