from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from objectaware.data.images import IMAGENET_MEAN, IMAGENET_STD, UnreadableImage
from objectaware.errors import InputError
from objectaware.evaluate.features import compute_features, evaluation_view
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
