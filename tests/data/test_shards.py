from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from objectaware.config import DataConfig
from objectaware.data.folder import ImageFolder
from objectaware.data.pack import PackedImages, Recent, pack_images
from objectaware.data.storage import Storage
from objectaware.errors import InputError
from objectaware.stages.identity import data_hash
from objectaware.training.inputs import windowed_batches

NUM_IMAGES = 400


class _Left:
    """Objects in the left half of every picture."""

    def __getitem__(self, index: int) -> NDArray[np.bool_]:
        return np.tile([True, True, False, False], (4, 1))

    def boxes(self, index: int) -> NDArray[np.float64]:
        return np.array([[0, 0, 0.5, 1]])


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """400 tiny pictures, each of the colour of its number and with a mask, in about 20 shards."""
    folder = tmp_path_factory.mktemp("pack")
    for number in range(NUM_IMAGES):
        path = folder / "photos" / f"{number:03d}.png"
        path.parent.mkdir(exist_ok=True)
        Image.new("RGB", (4, 4), (number % 256, number // 256, 0)).save(path)
    size = (folder / "photos" / "000.png").stat().st_size
    images = ImageFolder.scan(folder / "photos")
    pack_images(images, Storage.from_uri(folder / "pack"), source={}, truth=_Left(), shard_bytes=20 * size)
    return folder / "pack"


class Watched(PackedImages):
    """Counts what is read of the store."""

    num_reads = 0

    def _read_columns(self, shard: int, group: int, column: str) -> Any:
        self.num_reads += 1
        return super()._read_columns(shard, group, column)


def _number(images: PackedImages, index: int) -> int:
    red, green, _ = images.read(index)[0, 0]
    return int(red) + 256 * int(green)


def test_an_epoch_reads_every_group_of_rows_once_whatever_the_size_of_the_pack(pack: Path) -> None:
    """Memory is bounded by the window, and yet nothing is fetched twice, masks not either."""
    images = Watched(str(pack), window=2)
    num_shards = len(images.shard_sizes)
    assert num_shards > 15
    order = windowed_batches(images.shard_sizes, 2, 10, seed=0, epoch=0).ravel()
    seen = [_number(images, int(index)) for index in order]
    assert len(set(seen)) == len(order) == NUM_IMAGES
    assert seen != sorted(seen)
    assert images.num_reads == num_shards  # a shard of 20 rows is one group
    assert len(images._groups._values) <= 5
    assert {int(images.mask(int(index)).sum()) for index in order} == {8}
    assert images.num_reads == 2 * num_shards


def test_many_threads_read_the_right_images(pack: Path) -> None:
    images = PackedImages(str(pack), window=1)
    wrong: list[int] = []

    def read(seed: int) -> None:
        indices = np.random.default_rng(seed).integers(0, NUM_IMAGES, 60).tolist()
        wrong.extend(index for index in indices if f"{_number(images, index):03d}.png" != images.image_ids[index])

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_pack_is_a_layout_of_a_recipe(pack: Path) -> None:
    config = DataConfig(root=str(pack), layout="shards")
    assert config.shuffle_window == 4
    images = config.open()
    assert isinstance(images, PackedImages)
    assert len(images) == NUM_IMAGES
    with pytest.raises(ValueError, match="shuffle_window = 2 has no meaning for the layout folder"):
        DataConfig(root=str(pack), shuffle_window=2)


def test_a_folder_without_a_pack_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"holds no finished pack \(pack.json\)"):
        PackedImages(str(tmp_path))


def test_a_packs_hash_tells_its_content_not_its_place(pack: Path, tmp_path: Path) -> None:
    moved = tmp_path / "moved"
    moved.mkdir()
    for path in pack.iterdir():
        (moved / path.name).write_bytes(path.read_bytes())
    here, there = (DataConfig(root=str(place), layout="shards") for place in (pack, moved))
    assert data_hash(here) == data_hash(there)
    assert data_hash(here, verify=True) == data_hash(there, verify=True) != data_hash(here)
    shard = moved / "shard-00001.parquet"
    shard.write_bytes(shard.read_bytes()[:-1] + b"X")
    assert data_hash(here, verify=True) != data_hash(there, verify=True)


def test_recent_values_stay_within_their_room() -> None:
    loaded: list[int] = []

    def load(key: int) -> int:
        loaded.append(key)
        return key

    recent = Recent(load, size=lambda value: value, capacity=10)
    assert [recent[key] for key in (4, 5, 4, 3, 4, 5)] == [4, 5, 4, 3, 4, 5]
    assert loaded == [4, 5, 3, 5]  # 5 made room for 3: 4 had been asked for since
    assert recent[50] == 50
    assert recent[50] == 50
    assert loaded == [4, 5, 3, 5, 50]


def test_a_failed_load_is_raised_and_tried_again() -> None:
    answers = iter([OSError("away"), 7])

    def load(key: int) -> int:
        answer = next(answers)
        if isinstance(answer, OSError):
            raise answer
        return answer

    recent = Recent(load, size=lambda value: 1, capacity=1)
    with pytest.raises(OSError, match="away"):
        recent[0]
    assert recent[0] == 7
