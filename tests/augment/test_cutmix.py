import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from objectaware.augment.cutmix import cut_boxes, cutmix

_SHARE = st.floats(0, 1, width=32)


@settings(deadline=None)
@given(_SHARE, st.floats(0, 0.99), st.floats(0, 0.99), st.integers(1, 64), st.integers(1, 64))
def test_the_weight_is_the_share_of_pixels_that_stay(
    weight: float, y: float, x: float, height: int, width: int
) -> None:
    boxes, corrected = cut_boxes(torch.tensor([weight]), torch.tensor([[y, x]]), height, width)
    own, other = torch.zeros(1, 1, height, width), torch.ones(1, 1, height, width)
    mixed = cutmix(torch.cat([own, other]), torch.tensor([1, 0]), torch.cat([boxes, boxes]))
    share = (mixed[0] == 0).double().mean().item()
    assert abs(share - corrected.item()) < 1e-5
    assert corrected.item() >= weight - 1e-5  # a border cuts off, never adds
    assert abs((mixed[1] == 1).double().mean().item() - share) < 1e-9


def test_a_box_inside_has_sides_of_the_root_of_the_partners_share() -> None:
    boxes, weight = cut_boxes(torch.tensor([0.75]), torch.tensor([[0.5, 0.5]]), 224, 224)
    assert boxes.tolist() == [[56, 168, 56, 168]]
    assert weight.tolist() == [0.75]


def test_a_box_over_the_corner_is_cut_off_and_the_weight_with_it() -> None:
    boxes, weight = cut_boxes(torch.tensor([0.75]), torch.tensor([[0.0, 0.0]]), 224, 224)
    assert boxes.tolist() == [[0, 56, 0, 56]]
    assert weight.tolist() == [1 - 1 / 16]


def test_the_partners_pixels_keep_their_places() -> None:
    views = torch.rand(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    mixed = cutmix(views, torch.tensor([1, 0]), torch.tensor([[2, 5, 1, 4], [0, 0, 0, 0]]))
    assert torch.equal(mixed[0, :, 2:5, 1:4], views[1, :, 2:5, 1:4])
    mixed[0, :, 2:5, 1:4] = views[0, :, 2:5, 1:4]
    assert torch.equal(mixed, views)
