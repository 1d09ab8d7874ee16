from __future__ import annotations

import io
import json
from pathlib import Path
from unittest import mock

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image, ImageFile

from objectaware.cli import run
from objectaware.config import DataConfig
from objectaware.data import pack
from objectaware.data.dataset import Dataset
from objectaware.data.folder import ImageFolder
from objectaware.data.images import UnreadableImage
from objectaware.data.pack import PackedImages, pack_images, plan_shards, shrink
from objectaware.data.scenes import build_scenes
from objectaware.data.storage import Storage
from objectaware.errors import InputError
from objectaware.stages.identity import data_hash

NUM_IMAGES = 30


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Thirty pictures of two classes, one of them broken and one a link to nowhere."""
    random = np.random.default_rng(0)
    folder = tmp_path / "photos"
    for number in range(NUM_IMAGES):
        place = folder / ("cat" if number % 2 else "dog") / f"{number:02d}.png"
        place.parent.mkdir(parents=True, exist_ok=True)
        size = (30 + number, 50)
        Image.fromarray(random.integers(0, 255, (*size, 3), dtype=np.uint8)).save(place)
    (folder / "cat" / "03.png").write_bytes(b"not a picture")
    (folder / "dog" / "04.png").unlink()
    (folder / "dog" / "04.png").symlink_to("nowhere.png")
    return folder


def _pack(photos: Path, out: Path, **settings: object) -> PackedImages:
    summary = pack_images(
        ImageFolder.from_classes(photos), Storage.from_uri(out), source={}, **{"shard_bytes": 30_000, **settings}
    )
    assert (summary.num_images, len(summary.unreadable)) == (NUM_IMAGES, 2)
    return PackedImages(str(out))


def _files(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.iterdir()}


def test_what_was_packed_is_read_back(photos: Path, tmp_path: Path) -> None:
    images, packed = ImageFolder.from_classes(photos), _pack(photos, tmp_path / "pack")
    assert len(packed.shard_sizes) > 3
    assert sorted(packed.image_ids) == images.image_ids
    assert packed.image_ids != images.image_ids  # any run of rows is a sample of the data set
    assert packed.class_names == ("cat", "dog")
    assert packed.labels is not None
    assert images.labels is not None
    for index, image_id in enumerate(packed.image_ids):
        place = images.image_ids.index(image_id)
        assert packed.labels[index] == images.labels[place]
        if image_id in ("cat/03.png", "dog/04.png"):
            with pytest.raises(UnreadableImage):
                packed.read(index)
        else:
            assert np.array_equal(packed.read(index), images.read(place))
    with pytest.raises(InputError, match="has no mask"):
        packed.mask(0)
    assert sorted(packed.unreadable) == ["cat/03.png", "dog/04.png"]
    assert packed.unreadable["cat/03.png"].startswith("not an image of a supported format")
    assert packed.unreadable["dog/04.png"] == "the file cannot be read: No such file or directory"


def test_images_that_cannot_be_read_are_named_with_the_reason(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["data", "pack", str(photos), "--out", str(tmp_path / "pack"), "--json", str(tmp_path / "pack.json")]
    assert run(words) == 0
    printed = capsys.readouterr().out.splitlines()
    assert "  dog/04.png: the file cannot be read: No such file or directory" in printed
    values = json.loads((tmp_path / "pack.json").read_text())
    assert [name for name, _ in values["unreadable"]] == ["cat/03.png", "dog/04.png"]


def test_a_pack_that_was_stopped_goes_on_and_a_finished_one_is_left_alone(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = tmp_path / "whole"
    _pack(photos, whole)

    def interrupt(done: int, total: int) -> None:
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        _pack(photos, tmp_path / "parts", on_shard=interrupt)
    with pytest.raises(InputError, match="holds no finished pack"):
        PackedImages(str(tmp_path / "parts"))
    before = _files(tmp_path / "parts")
    _pack(photos, tmp_path / "parts")
    after = _files(tmp_path / "parts")
    assert {name: after[name] for name in before} == before  # no shard was written again
    assert {name: content for name, (content, _) in after.items()} == {
        name: content for name, (content, _) in _files(whole).items()
    }


def test_a_folder_with_another_pack_is_refused(photos: Path, tmp_path: Path) -> None:
    _pack(photos, tmp_path / "pack")
    with pytest.raises(InputError, match=r"other images or settings \(differing: short_side\)"):
        _pack(photos, tmp_path / "pack", short_side=20)
    Image.new("RGB", (8, 8)).save(photos / "cat" / "99.png")
    with pytest.raises(InputError, match="differing: manifest"):
        _pack(photos, tmp_path / "pack")


def test_a_folder_with_anything_else_is_refused(photos: Path, tmp_path: Path) -> None:
    """Such as a mask store, whose shards have the same names."""
    (tmp_path / "masks").mkdir()
    (tmp_path / "masks" / "shard-000000.parquet").write_bytes(b"masks")
    with pytest.raises(InputError, match="holds files and no pack"):
        _pack(photos, tmp_path / "masks")
    assert [path.name for path in (tmp_path / "masks").iterdir()] == ["shard-000000.parquet"]


def test_shards_are_cut_by_size_in_a_random_order() -> None:
    sizes = tuple(int(size) for size in np.random.default_rng(1).integers(0, 100, 500))
    plan = plan_shards(sizes, 1000)
    assert sorted(np.concatenate(plan).tolist()) == list(range(500))
    bytes_of = [sum(sizes[index] for index in shard) for shard in plan]
    assert max(bytes_of) < 1200
    assert min(bytes_of[:-1]) > 800
    assert np.corrcoef(np.concatenate(plan), np.arange(500))[0, 1] < 0.2
    assert [len(shard) for shard in plan_shards((-1, 0, 5), 10)] == [3]


def test_large_images_are_shrunk_and_others_kept_byte_by_byte() -> None:
    picture = np.zeros((60, 90, 3), dtype=np.uint8)
    picture[:, 45:] = 200
    stream = io.BytesIO()
    Image.fromarray(picture).save(stream, format="PNG")
    content = stream.getvalue()
    assert shrink(content, None) == (content, 60, 90)
    assert shrink(content, 60) == (content, 60, 90)
    small, height, width = shrink(content, 40)
    assert (height, width) == (40, 60)
    seen = np.asarray(Image.open(io.BytesIO(small)), dtype=np.int64)
    assert seen.shape == (40, 60, 3)
    assert np.abs(seen[:, :25]).max() < 5
    assert np.abs(seen[:, 35:] - 200).max() < 5


@pytest.mark.parametrize(("variant", "layout"), [("single-object", "backgrounds-challenge"), ("multi-object", "coco")])
def test_masks_boxes_and_labels_go_along(tmp_path: Path, variant: str, layout: str) -> None:
    build_scenes(tmp_path / "scenes", variant=variant, num_train=12, num_val=9, image_size=48)
    words = ["data", "pack", str(tmp_path / "scenes"), "--layout", layout, "--split", "train"]
    assert run([*words, "--out", str(tmp_path / "pack")]) == 0
    data = Dataset.of(DataConfig(root=str(tmp_path / "scenes"), layout=layout, split="train"))
    images, truth = data.images, data.truth()
    packed = PackedImages(str(tmp_path / "pack"))
    assert packed.has_masks
    assert (packed.labels is None) == (layout == "coco")
    for index, image_id in enumerate(packed.image_ids):
        place = images.image_ids.index(image_id)
        assert np.array_equal(packed.mask(index), truth[place])
        assert np.array_equal(packed.boxes(index), truth.boxes(place))


def test_masks_that_cannot_be_used_are_left_out_and_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    build_scenes(tmp_path / "scenes", variant="multi-object", num_train=12, num_val=9, image_size=48)
    file = tmp_path / "scenes" / "annotations" / "instances_train2017.json"
    file.write_text(file.read_text().replace('"height"', '"hight"'))
    words = ["data", "pack", str(tmp_path / "scenes"), "--layout", "coco", "--split", "train"]
    assert run([*words, "--out", str(tmp_path / "pack")]) == 0
    assert "the true masks and boxes are not used: coco = " in capsys.readouterr().err
    packed = PackedImages(str(tmp_path / "pack"))
    assert (len(packed.image_ids), packed.has_masks) == (12, False)


def test_a_pack_of_other_annotations_is_another(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    build_scenes(tmp_path / "scenes", variant="multi-object", num_train=12, num_val=9, image_size=48)
    command = ["data", "pack", str(tmp_path / "scenes"), "--layout", "coco", "--split", "train", "--out"]
    assert run([*command, str(tmp_path / "one")]) == 0
    file = tmp_path / "scenes" / "annotations" / "instances_train2017.json"
    content = json.loads(file.read_text())
    content["annotations"].pop()
    file.write_text(json.dumps(content))
    assert run([*command, str(tmp_path / "one")]) == 2
    assert "differing: truth" in capsys.readouterr().err
    assert run([*command, str(tmp_path / "other")]) == 0
    one, other = (data_hash(DataConfig(root=str(tmp_path / name), layout="shards")) for name in ("one", "other"))
    assert one != other


def test_images_that_need_their_detail_are_not_shrunk(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["data", "pack", str(photos), "--out", str(tmp_path / "pack"), "--short-side"]
    assert run([*words, "256"]) == 2
    assert "short_side = 256: is less than 915 = image_size 224 / sqrt(min_crop_scale 0.08" in capsys.readouterr().err
    assert run([*words, "256", "--image-size", "32", "--min-crop-scale", "0.2"]) == 0
    assert "num_unreadable: 2" in capsys.readouterr().out
    assert PackedImages(str(tmp_path / "pack")).short_side == 256


@pytest.mark.chaos(fault="no memory to decode an image of a pack", holds="an error, and the same command goes on")
def test_want_of_memory_ends_a_pack_that_goes_on_later(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["data", "pack", str(photos), "--layout", "class-folders", "--out", str(tmp_path / "pack")]
    with monkeypatch.context() as patch:
        patch.setattr(ImageFile.ImageFile, "load", mock.Mock(side_effect=MemoryError))
        assert run(words) == 1
    message = capsys.readouterr().err.splitlines()[-1]
    assert message.startswith(f"objectaware: {photos}/")
    assert "cannot be decoded for want of memory" in message
    assert not list((tmp_path / "pack").glob("shard-*"))
    assert run(words) == 0
    assert "num_unreadable: 2" in capsys.readouterr().out


def test_a_shard_appears_whole(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row that cannot be made leaves no shard behind."""
    monkeypatch.setattr(pack, "shrink", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        _pack(photos, tmp_path / "pack")
    assert not list((tmp_path / "pack").glob("shard-*"))


def test_a_data_set_of_which_nothing_can_be_read_is_no_pack(tmp_path: Path) -> None:
    photos = tmp_path / "photos"
    photos.mkdir()
    for name in ("a.png", "b.png"):
        (photos / name).write_bytes(b"not a picture")
    out = Storage.from_uri(tmp_path / "pack")
    with pytest.raises(InputError, match=r"2 images: hold none that can be read, such as [ab]\.png"):
        pack_images(ImageFolder.scan(photos), out, source={})
    Image.new("RGB", (8, 8)).save(photos / "a.png")
    assert list(pack_images(ImageFolder.scan(photos), out, source={}).unreadable) == ["b.png"]


@pytest.mark.parametrize("has_masks", [False, True])
def test_a_pack_of_the_format_before_is_read_unless_its_masks_may_be_askew(
    photos: Path, tmp_path: Path, has_masks: bool
) -> None:
    """Format 1 had no reasons, and did not turn masks with their pictures."""
    out = Storage.from_uri(tmp_path / "pack")
    pack_images(ImageFolder.from_classes(photos), out, source={})
    path = tmp_path / "pack" / "index.parquet"
    index = pq.read_table(path)
    pq.write_table(index.drop_columns(["error"]), path)
    out.write_json("pack.json", {**out.read_json("pack.json"), "format": 1, "has_masks": has_masks})
    if has_masks:
        with pytest.raises(InputError, match=r"is a pack of format 1\. Pack the data again"):
            PackedImages(out.uri)
    else:
        unreadable = PackedImages(out.uri).unreadable
        assert unreadable == dict.fromkeys(["cat/03.png", "dog/04.png"], "gave no picture when it was packed")
