from __future__ import annotations

import time
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from objectaware.training.precision import choose_precision


class Clock:
    """Takes the place of the process's clock; the network moves it."""

    def __init__(self) -> None:
        self.now = 0.0


class Network(nn.Module):
    """A network whose passes take as long as it is told, by precision and number of the pass."""

    def __init__(self, clock: Clock, seconds: Callable[[bool, int], float]) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(3)
        self.clock, self.seconds, self.passes = clock, seconds, {True: 0, False: 0}
        self.shapes: set[tuple[int, ...]] = set()

    def __deepcopy__(self, memo: object) -> Network:
        copied = Network(self.clock, self.seconds)
        copied.shapes = self.shapes
        return copied

    def forward(self, images: Tensor) -> Tensor:
        is_half = torch.is_autocast_enabled("cpu")
        self.clock.now += self.seconds(is_half, self.passes[is_half])
        self.passes[is_half] += 1
        self.shapes.add(tuple(images.shape))
        return self.norm(images).mean(dim=(2, 3))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(time, "perf_counter", lambda: clock.now)
    return clock


def _choose(network: nn.Module, batch_size: int = 4) -> str:
    return choose_precision(network, torch.device("cpu"), batch_size=batch_size, image_size=8)


@pytest.mark.parametrize(("half", "full", "expected"), [(1, 2, "bf16"), (20, 2, "fp32"), (2, 2, "fp32")])
def test_the_faster_precision_is_chosen_and_32_bits_on_a_tie(
    half: float, full: float, expected: str, clock: Clock
) -> None:
    assert _choose(Network(clock, lambda is_half, number: half if is_half else full)) == expected


@pytest.mark.parametrize("slow", [True, False])
def test_the_first_pass_and_single_hiccups_are_not_counted(slow: bool, clock: Clock) -> None:
    """One precision is the faster but for a pass; the other is faster in its first pass alone."""

    def seconds(is_half: bool, number: int) -> float:
        if is_half is slow:
            return 5.0 if number else 0.1
        return 100.0 if number in (0, 2) else 1.0

    assert _choose(Network(clock, seconds)) == ("fp32" if slow else "bf16")


def test_the_network_is_left_as_it_was(clock: Clock) -> None:
    network = Network(clock, lambda is_half, number: 1.0).eval()
    before = {key: value.clone() for key, value in network.state_dict().items()}
    _choose(network, batch_size=1000)
    assert not network.training
    assert all(torch.equal(value, before[key]) for key, value in network.state_dict().items())
    assert all(parameter.grad is None for parameter in network.parameters())
    assert network.shapes == {(64, 3, 8, 8)}
