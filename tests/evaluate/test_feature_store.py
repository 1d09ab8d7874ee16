"""Parts of features in storage: written whole, read in order, damage told."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from objectaware.data.storage import Storage
from objectaware.errors import InputError
from objectaware.evaluate.feature_store import FeatureSet, finished_parts, write_part
from objectaware.evaluate.features import Features


@pytest.fixture
def folder(tmp_path: Path) -> Storage:
    return Storage.from_uri(tmp_path / "features")


def part(indices: list[int], unreadable: dict[int, str] | None = None) -> Features:
    values = torch.tensor(indices, dtype=torch.float32)[:, None] * torch.tensor([1.0, 10.0])
    if not indices:
        values = torch.empty(0, 0)
    return Features(values, torch.tensor(indices, dtype=torch.int64), unreadable or {})


def test_parts_come_back_in_order_with_the_images_they_are_of(folder: Storage) -> None:
    write_part(folder, 1, part([7, 9], {8: "the file is empty"}))
    write_part(folder, 0, part([2, 3, 5]))
    write_part(folder, 2, part([], {11: "gone"}))
    found = pickle.loads(pickle.dumps(FeatureSet.open(folder, 3)))
    values, indices = found.load()
    assert indices.tolist() == [2, 3, 5, 7, 9]
    torch.testing.assert_close(values, part([2, 3, 5, 7, 9]).values)
    assert found.unreadable == {8: "the file is empty", 11: "gone"}
    assert (found.num_rows, found.num_columns()) == (5, 2)
    assert [rows.tolist() for _, rows in found.parts()] == [[2, 3, 5], [7, 9]]


def test_a_part_counts_once_both_of_its_files_are_there(folder: Storage) -> None:
    write_part(folder, 0, part([0]))
    write_part(folder, 4, part([1]))
    folder.delete("part-00004.json")  # what a writer leaves that is killed between the two
    folder.write_bytes("part-00007.npy", b"")
    assert finished_parts(folder) == {0}


def test_what_is_read_may_be_written_to_without_harm_to_the_file(folder: Storage) -> None:
    write_part(folder, 0, part([1, 2]))
    for _ in range(2):
        values, _ = next(FeatureSet.open(folder, 1).parts())
        assert values[0, 0] == 1.0
        values.zero_()


@pytest.mark.parametrize("content", [b"", b"\x93NUMPY", None])
def test_a_damaged_or_missing_file_is_named(folder: Storage, content: bytes | None) -> None:
    write_part(folder, 0, part([1, 2]))
    found = FeatureSet.open(folder, 1)
    folder.delete("part-00000.npy")
    if content is not None:
        folder.write_bytes("part-00000.npy", content)
    with pytest.raises(InputError, match=r"part-00000\.npy: is missing or damaged"):
        found.load()


def test_rows_that_are_too_few_are_damage(folder: Storage) -> None:
    write_part(folder, 0, part([1, 2]))
    found = FeatureSet.open(folder, 1)
    np.save(str(folder.local_path("part-00000.npy")), np.zeros((1, 2), dtype=np.float32))
    with pytest.raises(InputError, match="damaged"):
        found.load()


def test_a_set_without_any_readable_image_is_refused(folder: Storage) -> None:
    write_part(folder, 0, part([], {0: "gone", 1: "gone"}))
    with pytest.raises(InputError, match="2 images: hold none that can be read"):
        FeatureSet.open(folder, 1)
