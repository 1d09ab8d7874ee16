from __future__ import annotations

import os
import pickle
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from objectaware.config import DataConfig
from objectaware.errors import InputError
from objectaware.stages.identity import data_hash
from opened_parts import open_part

load_cifar = partial(open_part, "cifar-10")


class Python2Pickler(pickle._Pickler):
    """Writes strings as Python 2 did, in which they and bytes were the same."""

    dispatch: ClassVar[dict[type, Any]] = dict(pickle._Pickler.dispatch)

    def save_string(self, value: str | bytes) -> None:
        content = value.encode("latin1") if isinstance(value, str) else value
        length = len(content)
        self.write(b"U" + bytes([length]) if length < 256 else b"T" + length.to_bytes(4, "little"))
        self.write(content)
        self.memoize(value)

    dispatch[bytes] = save_string
    dispatch[str] = save_string


def write_pickle(path: Path, content: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as stream:
        Python2Pickler(stream, protocol=2).dump(content)


def two_pictures(first: int) -> np.ndarray:
    """A red and a blue picture whose first pixel tells the batch, (2, 3072)."""
    pixels = np.zeros((2, 3, 32, 32), dtype=np.uint8)
    pixels[0, 0] = 255
    pixels[1, 2] = 255
    pixels[:, 1, 0, 1] = first
    return pixels.reshape(2, -1)


def write_cifar10(folder: Path) -> None:
    write_pickle(folder / "batches.meta", {"label_names": ["airplane", "automobile"], "num_vis": 3072})
    for number in range(1, 6):
        write_pickle(folder / f"data_batch_{number}", {"data": two_pictures(number), "labels": [1, 0]})
    write_pickle(folder / "test_batch", {"data": two_pictures(9), "labels": [0, 1], "filenames": ["a.png", "b.png"]})


@pytest.mark.parametrize("above", ["", "cifar-10-batches-py"])
def test_cifar_10_is_five_batches_and_one(tmp_path: Path, above: str) -> None:
    write_cifar10(tmp_path / above)
    train, test = load_cifar(tmp_path, "train"), load_cifar(tmp_path, "test")
    assert len(train) == 10
    assert train.labels.tolist() == [1, 0] * 5
    assert train.class_names == ("airplane", "automobile")
    assert train.image_ids[3] == "data_batch_2#1"
    picture = train.read(6)
    assert picture.shape == (32, 32, 3)
    assert picture[5, 5].tolist() == [255, 0, 0]
    assert picture[0, 1].tolist() == [255, 4, 0], "rows before columns, the fourth batch"
    assert test.read(1)[9, 9].tolist() == [0, 0, 255]
    picture[:] = 0
    assert train.read(6)[5, 5].tolist() == [255, 0, 0], "what is read is the reader's own"


def test_cifar_100_has_fine_classes(tmp_path: Path) -> None:
    folder = tmp_path / "cifar-100-python"
    write_pickle(folder / "meta", {"fine_label_names": ["apple", "baby"], "coarse_label_names": ["people"]})
    for name in ("train", "test"):
        content = {"data": two_pictures(1), "fine_labels": [1, 0], "coarse_labels": [0, 0]}
        write_pickle(folder / name, content)
    images = DataConfig(root=str(tmp_path), layout="cifar-100", split="test").open()
    assert images.labels is not None
    assert images.labels.tolist() == [1, 0]
    assert images.class_names == ("apple", "baby")


def test_identity_is_that_of_the_files(tmp_path: Path) -> None:
    write_cifar10(tmp_path)
    data = DataConfig(root=str(tmp_path), layout="cifar-10", split="test")
    before = data_hash(data, verify=True)
    assert data_hash(data, verify=True) == before
    write_pickle(tmp_path / "test_batch", {"data": two_pictures(8), "labels": [0, 1]})
    assert data_hash(data, verify=True) != before


class Evil:
    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.mkdir, ("was-here",)


@pytest.mark.chaos(fault="a hostile pickle of CIFAR", holds="its code does not run")
def test_a_pickle_that_calls_something_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_cifar10(tmp_path)
    write_pickle(tmp_path / "test_batch", {"data": Evil(), "labels": [0, 1]})
    with pytest.raises(InputError, match=r"test_batch: is not a part of the data set \(UnpicklingError: it asks for "):
        load_cifar(tmp_path, "test")
    assert not Path("was-here").exists()


def test_what_is_missing_or_malformed_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"holds no {tmp_path}/data_batch_1"):
        load_cifar(tmp_path, "train")
    write_cifar10(tmp_path)
    (tmp_path / "data_batch_3").unlink()
    with pytest.raises(InputError, match=f"holds no {tmp_path}/data_batch_3"):
        load_cifar(tmp_path, "train")
    write_pickle(tmp_path / "data_batch_3", {"data": two_pictures(3)[:, :-1], "labels": [1, 0]})
    with pytest.raises(InputError, match=r"data_batch_3: has images of shape \(2, 3071\)"):
        load_cifar(tmp_path, "train")
    write_pickle(tmp_path / "data_batch_3", {"data": two_pictures(3)})
    with pytest.raises(InputError, match=r"data_batch_3: is not a part of the data set \(KeyError: 'labels'\)"):
        load_cifar(tmp_path, "train")
