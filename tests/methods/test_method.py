"""What every method gives the training loop, and the moving average of those with a target network."""

import math

import pytest
import torch

from objectaware.config import MethodConfig
from objectaware.methods.byol import BYOL
from objectaware.methods.method import Method, Mixing, MomentumMethod, cosine_momentum
from objectaware.methods.moco import MoCo


@pytest.mark.parametrize("name", MethodConfig.variants())
def test_every_method_keeps_the_contract(name: str) -> None:
    torch.manual_seed(0)
    config = MethodConfig.model_validate(name)
    method = config.build("resnet10_narrow", num_classes=3)
    assert isinstance(method, Method)
    assert config.title
    method.begin_step(0, 10)
    labels = torch.tensor([0, 1, 2, 0]) if config.needs_labels else None
    mixing = Mixing(torch.rand(4), torch.tensor([1, 0, 3, 2])) if config.takes_mixtures else None
    for mixture in {id(one): one for one in (None, mixing)}.values():
        loss = method(torch.randn(2, 4, 3, 32, 32), labels=labels, mixing=mixture)
        assert loss.shape == ()
        loss.backward()
        assert math.isfinite(method.chance_loss)
    method.continue_step()
    assert all(parameter.grad is not None for parameter in method.parameters() if parameter.requires_grad)
    assert (method.embeddings is None) == config.needs_labels


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
    method(views)
    moved = weight.clone()
    method.continue_step()
    method(views)
    assert not torch.equal(before, moved)
    assert torch.equal(weight, moved)
