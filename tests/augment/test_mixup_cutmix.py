import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from objectaware.augment.mixup_cutmix import cut_boxes, cutmix, folded_weights, mixup, neighbours


def _views(number: int) -> torch.Tensor:
    return torch.rand(number, 3, 5, 6, generator=torch.Generator().manual_seed(0))


def test_a_mix_is_the_weighted_sum_of_a_view_and_its_partner() -> None:
    views, partner, weight = _views(4), torch.tensor([2, 0, 1, 3]), torch.tensor([0.9, 0.5, 0.7, 0.6])
    mixed = mixup(views, partner, weight)
    for place in range(4):
        expected = weight[place] * views[place] + (1 - weight[place]) * views[partner[place]]
        torch.testing.assert_close(mixed[place], expected)


def test_a_weight_of_one_is_the_view_and_of_zero_the_partner() -> None:
    views = _views(4)
    assert torch.equal(mixup(views, neighbours(4), torch.ones(4)), views)
    assert torch.equal(mixup(views, neighbours(4), torch.zeros(4)), views[[1, 0, 3, 2]])


@settings(deadline=None)
@given(st.integers(1, 60), st.integers(1, 30))
def test_neighbours_are_each_others_partners_in_any_even_share(pairs: int, share: int) -> None:
    partner = neighbours(2 * pairs)
    places = torch.arange(2 * pairs)
    assert torch.equal(partner[partner], places)
    assert (partner != places).all()
    for start in range(0, 2 * pairs, 2 * share):
        part = places[start : start + 2 * share]
        assert torch.equal(start + neighbours(len(part)), partner[part])


def test_folded_weights_are_those_of_beta_1_1() -> None:
    weights = folded_weights(torch.linspace(0, 1, 10_001, dtype=torch.float64))
    assert weights.min() == 0.5
    assert weights.max() == 1
    assert abs(weights.mean() - 0.75) < 1e-3


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
