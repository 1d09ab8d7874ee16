"""The minimiser on functions whose minimum is known."""

from __future__ import annotations

from collections import deque

import torch
from torch import Tensor

from objectaware.evaluate.logistic import CurvatureHistory, Evaluate, minimise

CURVATURES = torch.logspace(-2, 3, 12, dtype=torch.float64)
MINIMUM = torch.linspace(-1, 1, 12, dtype=torch.float64)


class Counted:
    """A function that counts its evaluations."""

    def __init__(self, function: Evaluate) -> None:
        self.function, self.num_calls = function, 0

    def __call__(self, point: Tensor) -> tuple[float, Tensor]:
        self.num_calls += 1
        return self.function(point)


def quadratic(point: Tensor) -> tuple[float, Tensor]:
    gradient = CURVATURES * (point - MINIMUM)
    return float(gradient @ (point - MINIMUM)) / 2, gradient


def run(function: Evaluate, *, prior: Tensor | None = None, max_iterations: int = 500, rounding: float = 0.0) -> Tensor:
    start = torch.zeros(12, dtype=torch.float64)
    return minimise(
        function,
        start,
        function(start),
        lambda point, gradient: float(gradient.norm()) < 1e-9,
        history=CurvatureHistory(),
        prior=torch.ones(12, dtype=torch.float64) if prior is None else prior,
        max_iterations=max_iterations,
        value_rounding=rounding,
    )


def test_finds_the_minimum_of_an_ill_conditioned_quadratic() -> None:
    torch.testing.assert_close(run(quadratic), MINIMUM, rtol=0.0, atol=1e-6)


def test_exact_prior_is_newtons_step() -> None:
    function = Counted(quadratic)
    torch.testing.assert_close(run(function, prior=1 / CURVATURES), MINIMUM)
    assert function.num_calls == 2


def test_first_step_that_is_far_too_short_is_doubled() -> None:
    point = run(quadratic, prior=1e-2 / CURVATURES, max_iterations=1)
    assert float((point - MINIMUM).norm()) < 0.95 * float(MINIMUM.norm())


def test_step_that_is_far_too_long_is_halved() -> None:
    point = run(quadratic, prior=100 / CURVATURES, max_iterations=1)
    assert quadratic(point)[0] < quadratic(torch.zeros_like(point))[0]


def test_step_into_infinity_is_halved() -> None:
    def bounded(point: Tensor) -> tuple[float, Tensor]:
        value, gradient = quadratic(point)
        return (value if float(point.abs().max()) < 2 else float("nan")), gradient

    torch.testing.assert_close(run(bounded, prior=100 / CURVATURES), MINIMUM, rtol=0.0, atol=1e-6)


def test_descent_below_the_rounding_error_is_not_tried() -> None:
    function = Counted(lambda point: (1e6 + quadratic(point)[0], quadratic(point)[1]))
    run(function, prior=1 / CURVATURES, rounding=1e-2)
    assert function.num_calls == 1


def test_function_that_cannot_fall_ends_the_search_where_it_began() -> None:
    point = run(lambda point: (1.0, torch.ones_like(point)))
    assert torch.equal(point, torch.zeros_like(point))


def test_history_is_short_positive_and_follows_a_change_of_the_hessian() -> None:
    history = CurvatureHistory(deque(maxlen=2))
    steps = list(torch.eye(12, dtype=torch.float64)[:3])
    for step in steps:
        history.add(step, CURVATURES * step)
    history.add(steps[0], -steps[0])
    assert len(history.pairs) == 2
    history.shift(lambda step: 5.0 * step)
    product = history.apply_inverse(steps[2], torch.ones(12, dtype=torch.float64))
    torch.testing.assert_close(product, steps[2] / (CURVATURES[2] + 5.0))
