import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from objectaware.augment.mixup import folded_weights, mixup, neighbours


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
