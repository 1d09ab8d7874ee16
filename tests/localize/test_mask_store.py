from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis.extra.numpy import array_shapes, arrays
from numpy.typing import NDArray

from objectaware.data.storage import Storage
from objectaware.errors import InputError
from objectaware.localize.mask_store import (
    MaskRow,
    decode_mask,
    decode_soft_mask,
    encode_mask,
    encode_soft_mask,
    finished_shards,
    mask_fields_schema,
    read_localized_ids,
    read_rows,
    read_shard,
    write_shard,
)


def _row(name: str, seed: int = 0) -> MaskRow:
    generator = np.random.default_rng(seed)
    return MaskRow(
        image_id=name,
        width=30,
        height=20,
        cam=generator.random((8, 8)).astype(np.float32),
        mask=generator.random((20, 30)) > 0.5,
        boxes=generator.random((seed % 3, 4)).astype(np.float32),
    )


def _assert_equal(found: MaskRow, expected: MaskRow) -> None:
    for name in ("image_id", "width", "height", "status", "error"):
        assert getattr(found, name) == getattr(expected, name)
    np.testing.assert_array_equal(found.boxes, expected.boxes)
    assert found.boxes.dtype == np.float32
    assert (found.cam is None) == (expected.cam is None)
    assert (found.mask is None) == (expected.mask is None)
    if found.cam is not None and expected.cam is not None:
        np.testing.assert_allclose(found.cam, expected.cam, atol=1 / 255)
    if found.mask is not None and expected.mask is not None:
        np.testing.assert_array_equal(found.mask, expected.mask)


@given(mask=arrays(np.uint8, array_shapes(min_dims=2, max_dims=2, max_side=9)))
def test_eight_bit_soft_masks_survive_exactly(mask: NDArray[np.uint8]) -> None:
    soft = mask.astype(np.float32) / np.float32(255)
    decoded = decode_soft_mask(encode_soft_mask(soft))
    assert decoded.dtype == np.float32
    np.testing.assert_array_equal(decoded, soft)


def test_soft_masks_are_rounded_not_truncated_and_keep_both_published_thresholds() -> None:
    soft = np.linspace(0, 1, 10_000, dtype=np.float32).reshape(20, 500)
    decoded = decode_soft_mask(encode_soft_mask(soft))
    is_above = soft >= np.float32(1 / 255)
    np.testing.assert_allclose(decoded[is_above], soft[is_above], atol=1 / 510 + 1e-6)
    np.testing.assert_array_equal(decoded > 0, is_above)
    np.testing.assert_array_equal(decoded > 0.5, soft >= 0.5)


def test_a_store_from_before_the_soft_masks_after_crf_is_read(tmp_path: Path) -> None:
    storage = Storage.from_uri(tmp_path)
    write_shard(storage, 0, [_row("a", 1)])
    old = read_shard(storage, 0).drop_columns("refined")
    pq.write_table(old, tmp_path / "shard-000000.parquet")
    (row,) = read_rows(storage)
    _assert_equal(row, _row("a", 1))
    assert row.refined is None


@given(mask=arrays(bool, array_shapes(min_dims=2, max_dims=2, max_side=9)))
def test_binary_masks_survive_exactly(mask: NDArray[np.bool_]) -> None:
    decoded = decode_mask(encode_mask(mask), *mask.shape)
    assert decoded.dtype == bool
    assert decoded.flags.c_contiguous
    np.testing.assert_array_equal(decoded, mask)


def test_rows_come_back_in_the_order_of_groups(tmp_path: Path) -> None:
    storage = Storage.from_uri(tmp_path / "masks")
    failed = MaskRow("broken ü.jpg", 0, 0, status="failed", error="truncated file")
    second, first = [_row("c", 2), failed], [_row("b", 1), _row("a", 3)]
    write_shard(storage, 12, second)
    write_shard(storage, 3, first)
    assert storage.list_names() == ["shard-000003.parquet", "shard-000012.parquet"]
    found = list(read_rows(storage))
    assert len(found) == 4
    for row, expected in zip(found, first + second, strict=True):
        _assert_equal(row, expected)


def test_shard_has_the_published_columns_and_types(tmp_path: Path) -> None:
    storage = Storage.from_uri(tmp_path)
    write_shard(storage, 0, [_row("a", 2)])
    table = pq.read_table(tmp_path / "shard-000000.parquet")
    assert table.schema.equals(mask_fields_schema)
    assert table.column_names == [
        "image_id", "width", "height", "cam", "refined", "mask", "boxes", "status", "error"
    ]  # fmt: skip
    assert table["cam"][0].as_py().startswith(b"\x89PNG")


def test_an_empty_store_has_no_rows(tmp_path: Path) -> None:
    storage = Storage.from_uri(tmp_path / "absent")
    assert finished_shards(storage) == set()
    assert list(read_rows(storage)) == []


def test_finished_shards_are_told_from_other_files(tmp_path: Path) -> None:
    storage = Storage.from_uri(tmp_path)
    for group in (0, 7, 1_234_567):
        write_shard(storage, group, [])
    for name in ("shard-000009.parquet.tmp", "shard-x.parquet", "store.json", "old-shard-000004.parquet"):
        storage.write_bytes(name, b"")
    assert finished_shards(storage) == {0, 7, 1_234_567}


def test_writing_a_group_again_replaces_its_shard(tmp_path: Path) -> None:
    storage = Storage.from_uri(tmp_path)
    write_shard(storage, 0, [_row("a"), _row("b")])
    write_shard(storage, 0, [_row("c")])
    assert [row.image_id for row in read_rows(storage)] == ["c"]


@pytest.mark.parametrize("damage", ["truncated", "flipped", "empty", "other columns"])
def test_damaged_shards_are_named(tmp_path: Path, damage: str) -> None:
    storage = Storage.from_uri(tmp_path)
    write_shard(storage, 5, [_row("a"), _row("b")])
    content = storage.read_bytes("shard-000005.parquet")
    if damage == "truncated":
        content = content[: len(content) // 2]
    elif damage == "flipped":
        place = content.index(b"\x89PNG") + 60
        content = content[:place] + bytes([content[place] ^ 0xFF]) + content[place + 1 :]
    elif damage == "empty":
        content = b""
    else:
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table({"image_id": ["a"]}), sink)
        content = sink.getvalue().to_pybytes()
    storage.write_bytes("shard-000005.parquet", content)
    with pytest.raises(InputError, match=r"shard-000005\.parquet"):
        list(read_rows(storage))
    if damage == "flipped":  # in a soft mask, which is not read for ids alone
        assert list(read_localized_ids(storage)) == ["a", "b"]
        return
    with pytest.raises(InputError, match=r"shard-000005\.parquet"):
        list(read_localized_ids(storage))


def test_missing_shard_is_not_called_damaged(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_shard(Storage.from_uri(tmp_path), 0)


def test_mask_of_another_size_than_its_image_is_refused(tmp_path: Path) -> None:
    storage = Storage.from_uri(tmp_path)
    with pytest.raises(InputError, match=r"a\.jpg"):
        write_shard(storage, 0, [MaskRow("a.jpg", width=4, height=5, mask=np.zeros((4, 5), dtype=bool))])
    assert finished_shards(storage) == set()


def test_reading_holds_one_shard_at_a_time(tmp_path: Path) -> None:
    storage = Storage.from_uri(tmp_path)
    noise = np.random.default_rng(0).random((100, 100)).astype(np.float32)
    for group in range(12):
        write_shard(storage, group, [MaskRow(f"{group}-{i}", 1, 1, cam=noise) for i in range(8)])
    shard_bytes = len(storage.read_bytes("shard-000000.parquet"))
    pool_before = pa.total_allocated_bytes()
    tracemalloc.start()
    try:
        rows = read_rows(storage)
        pool_peak = max(pa.total_allocated_bytes() - pool_before for _ in rows)
        _, python_peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert python_peak < 5 * shard_bytes
    assert pool_peak < 5 * shard_bytes
