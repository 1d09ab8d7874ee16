"""A pack whose file was damaged, cut off or lost after it was written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from inputs import write_pictures
from objectaware.cli import run
from objectaware.data.dataset import TrainingImages
from objectaware.data.pack import INDEX_NAME, PackedImages, shard_name
from objectaware.data.storage import Storage
from objectaware.errors import InputError

SHARD = shard_name(0)


@pytest.fixture
def packed(tmp_path: Path) -> tuple[list[str], Path]:
    """The command that packs a dozen pictures, done, and the pack."""
    photos, pack = tmp_path / "photos", tmp_path / "pack"
    write_pictures(photos, 12, 48)
    command = ["data", "pack", str(photos), "--out", str(pack), "--image-size", "32"]
    assert run(command) == 0
    return command, pack


def _pictures(pack: Path) -> list[np.ndarray]:
    # As training reads them: it would put another image in the place of one that gives no picture.
    images = TrainingImages(PackedImages(str(pack)), max_bytes=0)
    return [images.read(index) for index in range(len(images))]


def _flipped(content: bytes, place: int) -> bytes:
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


DAMAGES = {
    "one bit of a picture": (SHARD, lambda content: _flipped(content, len(content) // 2)),
    "one bit of the footer": (SHARD, lambda content: _flipped(content, len(content) - 8)),
    "truncated": (SHARD, lambda content: content[: len(content) // 2]),
    "empty": (SHARD, lambda content: b""),
    "another file": (SHARD, lambda content: b"not a shard" * 1000),
    "a truncated index": (INDEX_NAME, lambda content: content[: len(content) // 2]),
}


@pytest.mark.chaos(
    fault="a corrupt shard of a data pack", holds="its name in a message; deleted and packed again, all pictures back"
)
@pytest.mark.parametrize("name", sorted(DAMAGES))
def test_a_damaged_file_is_named_and_can_be_made_again(name: str, packed: tuple[list[str], Path]) -> None:
    command, pack = packed
    before = _pictures(pack)
    file, damage = DAMAGES[name]
    (pack / file).write_bytes(damage((pack / file).read_bytes()))
    with pytest.raises(InputError, match=rf"data\.root = .*/{file}: is damaged") as refusal:
        _pictures(pack)
    assert "data pack again" in str(refusal.value)
    (pack / file).unlink()
    if file == SHARD:
        with pytest.raises(InputError, match=rf"{file}: is missing"):
            _pictures(pack)
    assert run(command) == 0
    assert all(np.array_equal(one, other) for one, other in zip(before, _pictures(pack), strict=True))


@pytest.mark.chaos(fault="the store of a data pack away", holds="an error that is tried again, not a refusal")
def test_a_store_that_is_away_is_no_damage(packed: tuple[list[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    images = PackedImages(str(packed[1]))

    def away(*_: object) -> bytes:
        raise OSError("no route to host")

    monkeypatch.setattr(Storage, "open_file", away)
    monkeypatch.setattr(Storage, "read_bytes", away)
    with pytest.raises(OSError, match="no route"):
        images.read(0)


@pytest.mark.chaos(fault="the store of a data pack away for a moment", holds="the error that it gave, not a refusal")
def test_a_store_that_is_back_is_no_damage(packed: tuple[list[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    images = PackedImages(str(packed[1]))

    def broken_off(*_: object) -> pa.NativeFile:
        raise OSError("connection reset")

    monkeypatch.setattr(Storage, "open_file", broken_off)
    with pytest.raises(OSError, match="connection reset"):
        images.read(0)
