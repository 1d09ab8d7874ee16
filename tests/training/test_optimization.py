"""Learning rates, momenta and optimizers by name."""

import math
from itertools import pairwise

import pytest
import torch
from torch import nn

from objectaware.config import OptimizerConfig, PretrainConfig
from objectaware.methods.method import Method, ParameterGroup
from objectaware.training.optimizers.lars import LARS, LARSConfig
from objectaware.training.optimizers.sgd import SGDConfig
from objectaware.training.pretraining import learning_rate_at, set_learning_rate

PAPER = PretrainConfig.model_validate({"data": {"root": "photos"}})


def _weights(*parameters: nn.Parameter) -> list[ParameterGroup]:
    return [ParameterGroup(params=list(parameters), is_bias=False, has_constant_rate=False)]


def test_the_default_learning_rate_is_the_papers_and_constant_within_an_epoch() -> None:
    """Golden check 13."""
    rates = [learning_rate_at(PAPER, epoch * 10, 10) for epoch in (0, 400, 799)]
    assert rates == pytest.approx([0.03, 0.0155, 0.0010001], abs=5e-8)
    assert len({learning_rate_at(PAPER, 4000 + step, 10) for step in range(10)}) == 1


def test_a_cosine_by_step_meets_the_one_by_epoch_at_the_start_of_each_epoch() -> None:
    by_step = PAPER.model_copy(update={"learning_rate_schedule": "cosine_step"})
    for epoch in (0, 1, 400, 799):
        assert learning_rate_at(by_step, epoch * 10, 10) == pytest.approx(learning_rate_at(PAPER, epoch * 10, 10))
    rates = [learning_rate_at(by_step, step, 10) for step in range(8000)]
    assert all(later < earlier for earlier, later in pairwise(rates))


@pytest.mark.parametrize("schedule", ["cosine_epoch", "cosine_step"])
def test_warm_up_rises_by_step_and_the_cosine_takes_the_rest(schedule: str) -> None:
    settings = PAPER.model_copy(update={"num_warmup_epochs": 10, "learning_rate_schedule": schedule})
    rates = [learning_rate_at(settings, step, 5) for step in range(51)]
    assert rates[:50] == pytest.approx([0.03 * (step + 1) / 50 for step in range(50)])
    assert rates[50] == pytest.approx(0.03)
    # Half of the remaining 790 epochs later, half way down.
    assert learning_rate_at(settings, 50 + 395 * 5, 5) == pytest.approx(0.0155)


def test_lars_scales_a_layers_gradient_to_its_weights() -> None:
    weight = nn.Parameter(torch.tensor([[3.0, 4.0]]))
    optimizer = LARS(_weights(weight), learning_rate=2.0, momentum=0.9, weight_decay=0.0, trust_coefficient=0.001)
    weight.grad = torch.tensor([[0.0, 100.0]])
    optimizer.step()
    # ‖w‖ = 5, ‖g‖ = 100: an update of 0.001 · 5 in the gradient's direction, whatever its length.
    torch.testing.assert_close(weight.data, torch.tensor([[3.0, 4.0 - 2 * 0.005]]))
    norm = math.hypot(3.0, 3.99)
    optimizer.step()
    expected = 3.99 - 2 * (0.9 * 0.005 + 0.001 * norm)
    torch.testing.assert_close(weight.data, torch.tensor([[3.0, expected]]))


def test_lars_decays_before_it_scales() -> None:
    weight = nn.Parameter(torch.tensor([[3.0, 4.0]]))
    optimizer = LARS(_weights(weight), learning_rate=1.0, momentum=0.0, weight_decay=1.0, trust_coefficient=0.001)
    weight.grad = torch.zeros(1, 2)
    optimizer.step()
    torch.testing.assert_close(weight.data, torch.tensor([[3.0, 4.0]]) * 0.999)


def test_lars_leaves_biases_and_batch_norm_to_plain_sgd_without_decay() -> None:
    network = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    plain = [network[0].bias, network[1].weight, network[1].bias]
    before = [parameter.detach().clone() for parameter in plain]
    optimizer = LARSConfig(weight_decay=10.0, base_learning_rate=0.5).build(Method.groups_of(network))
    for parameter in network.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    for parameter, start in zip(plain, before, strict=True):
        torch.testing.assert_close(parameter.data, start - 0.5)


def test_lars_takes_a_weight_or_gradient_of_zero_as_it_is() -> None:
    zero, still = nn.Parameter(torch.zeros(1, 2)), nn.Parameter(torch.ones(1, 2))
    optimizer = LARS(_weights(zero, still), learning_rate=1.0, momentum=0.0, weight_decay=0.0)
    zero.grad, still.grad = torch.ones(1, 2), torch.zeros(1, 2)
    optimizer.step()
    torch.testing.assert_close(zero.data, -torch.ones(1, 2))
    torch.testing.assert_close(still.data, torch.ones(1, 2))


@pytest.mark.parametrize("decays_biases", [True, False])
def test_sgd_decays_biases_and_batch_norm_as_it_is_told(decays_biases: bool) -> None:
    network = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    nn.init.ones_(network[0].weight)
    config = SGDConfig(base_learning_rate=0.5, weight_decay=0.1, decays_biases=decays_biases)
    optimizer = config.build(Method.groups_of(network))
    for parameter in network.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    torch.testing.assert_close(network[0].weight.data, torch.full((4, 3), 0.95))
    torch.testing.assert_close(network[1].weight.data, torch.full((4,), 0.95 if decays_biases else 1.0))


@pytest.mark.parametrize("name", OptimizerConfig.variants())
def test_frozen_parameters_are_left_out(name: str) -> None:
    network = nn.Linear(3, 4)
    network.weight.requires_grad_(False)
    built = OptimizerConfig.variants()[name]().build(Method.groups_of(network))
    assert [parameter for group in built.param_groups for parameter in group["params"]] == [network.bias]


def test_a_group_with_a_constant_rate_keeps_that_of_the_start() -> None:
    scheduled, constant = nn.Linear(3, 4), nn.Linear(3, 4)
    groups = [*Method.groups_of(scheduled), *Method.groups_of(constant, has_constant_rate=True)]
    optimizer = PAPER.optimizer.build(groups)
    set_learning_rate(PAPER, optimizer, 4000, 10)
    rates = {group["has_constant_rate"]: group["lr"] for group in optimizer.param_groups}
    assert rates == {False: pytest.approx(0.0155), True: 0.03}
