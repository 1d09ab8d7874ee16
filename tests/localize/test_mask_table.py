from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

from objectaware.data.storage import Storage
from objectaware.errors import InputError
from objectaware.localize.mask_store import MaskRow, MaskTable, write_shard


def _row(name: str, number: int) -> MaskRow:
    mask = np.zeros((6, 9), dtype=bool)
    mask.flat[number] = True
    return MaskRow(
        name,
        width=9,
        height=6,
        cam=np.full((3, 3), number / 255, dtype=np.float32),
        mask=mask,
        boxes=np.full((number % 3, 4), number / 100, dtype=np.float32),
    )


NAMES = ["b/10.jpg", "a b.png", "ü.jpg", "Z.jpg", "b/9.jpg", "a", "zz"]


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    storage = Storage.from_uri(tmp_path / "store")
    rows = [_row(name, number) for number, name in enumerate(NAMES)]
    write_shard(storage, 1, rows[:3])
    write_shard(storage, 0, [*rows[3:], MaskRow("broken.jpg", 0, 0, status="failed", error="truncated")])
    return storage


def test_every_image_is_found_whatever_the_order_of_the_shards(storage: Storage, tmp_path: Path) -> None:
    table = MaskTable.open(storage, tmp_path / "cache")
    assert len(table) == len(NAMES) + 1
    for number, name in enumerate(NAMES):
        cam, mask, boxes = table.cam(name), table.mask(name), table.boxes(name)
        assert cam is not None
        assert cam.dtype == np.uint8
        np.testing.assert_array_equal(cam, np.full((3, 3), number))
        assert mask is not None
        assert mask.shape == (6, 9)
        assert np.flatnonzero(mask).tolist() == [number]
        assert boxes is not None
        np.testing.assert_array_equal(boxes, np.full((number % 3, 4), number / 100, dtype=np.float32))


@pytest.mark.parametrize("name", ["broken.jpg", "absent.jpg", "", "zzz", "A"])
def test_failed_and_absent_images_give_none(storage: Storage, tmp_path: Path, name: str) -> None:
    table = MaskTable.open(storage, tmp_path / "cache")
    assert table.cam(name) is None
    assert table.mask(name) is None
    assert table.boxes(name) is None


def test_rows_without_mask_or_cam_give_none_for_these_alone(tmp_path: Path) -> None:
    storage = Storage.from_uri(tmp_path / "store")
    write_shard(storage, 0, [MaskRow("a", 4, 4)])
    table = MaskTable.open(storage, tmp_path / "cache")
    assert table.cam("a") is None
    assert table.mask("a") is None
    boxes = table.boxes("a")
    assert boxes is not None
    assert boxes.shape == (0, 4)


def test_an_empty_store_opens(tmp_path: Path) -> None:
    table = MaskTable.open(Storage.from_uri(tmp_path / "none"), tmp_path / "cache")
    assert len(table) == 0
    assert table.boxes("a") is None


def test_second_opening_reads_no_shard(storage: Storage, tmp_path: Path) -> None:
    MaskTable.open(storage, tmp_path / "cache")
    for name in storage.list_names("shard-"):
        storage.write_bytes(name, b"no longer a shard")
    assert MaskTable.open(storage, tmp_path / "cache").mask("zz") is not None


@pytest.mark.parametrize("change", ["another shard", "another configuration"])
def test_a_changed_store_is_copied_anew(storage: Storage, tmp_path: Path, change: str) -> None:
    MaskTable.open(storage, tmp_path / "cache")
    write_shard(storage, 0, [_row("new", 1)])
    if change == "another shard":
        write_shard(storage, 2, [])
    else:
        storage.write_json("store.json", {"num_iterations": 1})
    assert MaskTable.open(storage, tmp_path / "cache").mask("new") is not None


def test_stores_do_not_share_a_copy(storage: Storage, tmp_path: Path) -> None:
    other = Storage.from_uri(tmp_path / "other")
    write_shard(other, 0, [_row("only here", 1)])
    write_shard(other, 1, [])
    MaskTable.open(storage, tmp_path / "cache")
    assert MaskTable.open(other, tmp_path / "cache").mask("only here") is not None


def test_copy_of_a_damaged_store_fails_and_leaves_nothing(storage: Storage, tmp_path: Path) -> None:
    storage.write_bytes("shard-000001.parquet", b"broken")
    with pytest.raises(InputError, match="shard-000001"):
        MaskTable.open(storage, tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


def test_pickling_carries_the_path_and_not_the_masks(storage: Storage, tmp_path: Path) -> None:
    table = MaskTable.open(storage, tmp_path / "cache")
    content = pickle.dumps(table)
    assert len(content) < 1000
    mask = pickle.loads(content).mask("b/9.jpg")
    assert np.flatnonzero(mask).tolist() == [4]
