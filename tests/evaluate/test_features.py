"""Features: computed alike, written whole, read in order, and refused where they are damaged."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from objectaware.data.images import IMAGENET_MEAN, IMAGENET_STD, UnreadableImage
from objectaware.data.storage import Storage
from objectaware.errors import InputError
from objectaware.evaluate.features import (
    Features,
    FeatureSet,
    compute_features,
    evaluation_view,
    finished_parts,
    write_part,
)
from objectaware.methods.backbones import Backbone

CPU = torch.device("cpu")


class Shades:
    """Picture n is gray n everywhere; some cannot be read."""

    def __init__(self, broken: tuple[int, ...] = ()) -> None:
        self._broken = broken

    def __len__(self) -> int:
        return 12

    def read(self, index: int) -> NDArray[np.uint8]:
        if index in self._broken:
            raise UnreadableImage("the file is empty")
        return np.full((30 + index, 40, 3), 10 * index, dtype=np.uint8)


class Means(Backbone):
    """Features: the mean of each channel, through a batch norm."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(3)

    def forward(self, images: Tensor) -> Tensor:
        return self.norm(images.mean(dim=(2, 3)))


def _features(images: Shades, indices: list[int], backbone: Backbone | None = None, batch_size: int = 256) -> Tensor:
    return compute_features(
        backbone or Means().eval(),
        images,
        indices,
        size=32,
        center_crop=False,
        device=CPU,
        batch_size=batch_size,
    ).values


def test_the_papers_view_is_the_centre_of_the_picture_at_256_to_224() -> None:
    picture = np.zeros((512, 768, 3), dtype=np.uint8)
    picture[:, :, 0] = np.arange(768) // 4  # red tells the column
    picture[:, :, 1] = (np.arange(512) // 4)[:, None]
    view = evaluation_view(picture, 224, center_crop=True)
    assert view.shape == (224, 224, 3)
    # 512 × 768 becomes 256 × 384: the view starts at row 16 and column 80 of that, 32 and 160 of the picture.
    assert np.abs(view[0, 0, :2].astype(int) - [40, 8]).max() <= 1
    assert np.abs(view[-1, -1, :2].astype(int) - [151, 119]).max() <= 1


def test_the_squashed_view_holds_the_whole_picture() -> None:
    picture = np.zeros((100, 300, 3), dtype=np.uint8)
    picture[:, :30] = 255
    view = evaluation_view(picture, 50, center_crop=False)
    assert view.shape == (50, 50, 3)
    assert (view[:, :4] == 255).all()
    assert (view[:, 7:] == 0).all()


@pytest.mark.parametrize("shape", [(10, 500), (500, 10), (7, 7)])
def test_narrow_and_tiny_pictures_fill_the_view(shape: tuple[int, int]) -> None:
    view = evaluation_view(np.full((*shape, 3), 9, dtype=np.uint8), 32, center_crop=True)
    assert view.shape == (32, 32, 3)
    assert (view == 9).all()


def test_features_are_of_normalised_pictures_in_the_order_asked_for() -> None:
    backbone = Means().eval()
    indices = [7, 0, 11, 3]
    expected = (torch.tensor(indices)[:, None] * 10 / 255 - torch.tensor(IMAGENET_MEAN)) / torch.tensor(IMAGENET_STD)
    torch.testing.assert_close(
        _features(Shades(), indices, backbone), expected / (1 + backbone.norm.eps) ** 0.5, atol=1e-4, rtol=1e-4
    )


def test_batches_do_not_matter_and_the_network_is_left_as_it_was() -> None:
    backbone = Means().train()
    before = {key: value.clone() for key, value in backbone.state_dict().items()}
    whole = _features(Shades(), list(range(12)), backbone)
    parts = _features(Shades(), list(range(12)), backbone, batch_size=5)
    torch.testing.assert_close(whole, parts)
    assert backbone.training
    assert all(torch.equal(value, before[key]) for key, value in backbone.state_dict().items())


def test_pictures_that_cannot_be_read_are_left_out_and_told() -> None:
    found = compute_features(
        Means().eval(), Shades(broken=(0, 4, 5)), range(8), size=32, center_crop=True, device=CPU, batch_size=2
    )
    assert found.indices.tolist() == [1, 2, 3, 6, 7]
    assert found.unreadable == dict.fromkeys((0, 4, 5), "the file is empty")
    torch.testing.assert_close(found.values, _features(Shades(), [1, 2, 3, 6, 7]))


def test_a_set_without_any_readable_picture_is_refused() -> None:
    with pytest.raises(InputError, match="none that can be read"):
        _features(Shades(broken=(1, 2)), [1, 2])


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
