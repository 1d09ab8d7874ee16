"""What every method gives the training loop, and the moving average of those with a target network."""

import math

import pytest
import torch

from objectaware.methods.byol import BYOL
from objectaware.methods.method import MomentumMethod, cosine_momentum
from objectaware.methods.moco import MoCo


def test_momentum_rises_from_its_start_to_one() -> None:
    """Grill et al. 2020: 1 − (1 − 0.996)(cos(πk / K) + 1) / 2."""
    momenta = [cosine_momentum(step, 100, initial=0.996) for step in range(100)]
    assert momenta[0] == pytest.approx(0.996)
    assert momenta[50] == pytest.approx(0.998)
    assert momenta[25] == pytest.approx(1 - 0.004 * (math.cos(math.pi / 4) + 1) / 2)
    assert momenta == sorted(momenta)
    assert momenta[-1] < 1


@pytest.mark.parametrize("kind", [MoCo, BYOL])
def test_a_target_network_follows_by_the_schedule_and_once_a_step(kind: type[MoCo] | type[BYOL]) -> None:
    constant, rising = (
        kind("resnet10_narrow", momentum=0.9, momentum_schedule=schedule) for schedule in ("constant", "cosine")
    )
    for method, expected in ((constant, [0.9, 0.9]), (rising, [0.9, 0.95])):
        found = []
        for step in (0, 50):
            method.begin_step(step, 100)
            found.append(method.momentum)
            method.continue_step()
            assert method.momentum == 1.0
        assert found == pytest.approx(expected)


def test_the_target_stays_in_the_further_parts_of_a_batch() -> None:
    torch.manual_seed(0)
    method: MomentumMethod = BYOL("resnet10_narrow", hidden_size=16, momentum=0.5)
    weight = method.target_projector[0].weight
    with torch.no_grad():
        method.projector[0].weight.add_(1.0)
    views = torch.randn(2, 4, 3, 32, 32)
    before = weight.clone()
    method.begin_step(0, 10)
    method(*views)
    moved = weight.clone()
    method.continue_step()
    method(*views)
    assert not torch.equal(before, moved)
    assert torch.equal(weight, moved)
