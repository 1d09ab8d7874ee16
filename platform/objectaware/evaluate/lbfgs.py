"""Limited-memory BFGS (Liu and Nocedal, 1989) for smooth convex functions of one tensor.

SciPy's L-BFGS-B starts each call without curvature. Along a path of problems that differ by the strength of
their quadratic penalty, the curvature seen so far stays useful; `CurvatureHistory` keeps it. The vectors stay on the
device where the function is computed.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

Evaluate = Callable[[Tensor], tuple[float, Tensor]]

# Constants of the Wolfe conditions for quasi-Newton directions (Nocedal and Wright, 2006, section 3.1).
SUFFICIENT_DECREASE = 1e-4
CURVATURE = 0.9
# Ten bisections span three decimal orders of step length; a search that needs more has met rounding error.
MAX_SEARCH_STEPS = 10


@dataclass
class CurvatureHistory:
    """The latest pairs (step, change of gradient), which stand for the inverse Hessian.

    Attributes:
        size: Number of pairs kept.
        pairs: The pairs with their inner products, oldest first.
    """

    size: int = 20
    pairs: deque[tuple[Tensor, Tensor, float]] = field(default_factory=deque)

    def add(self, step: Tensor, change: Tensor) -> None:
        """Keep a pair and drop the oldest beyond `size`; a pair without positive curvature is left out."""
        curvature = _dot(step, change)
        if curvature <= 0.0:
            return
        self.pairs.append((step, change, curvature))
        if len(self.pairs) > self.size:
            self.pairs.popleft()

    def shift(self, hessian_change: Callable[[Tensor], Tensor]) -> None:
        """Adapt the pairs to a function whose Hessian differs from the present one's by a known map."""
        old = list(self.pairs)
        self.pairs.clear()
        for step, change, _ in old:
            self.add(step, change + hessian_change(step))

    def apply_inverse(self, gradient: Tensor, prior: Tensor) -> Tensor:
        """Return the estimated inverse Hessian times `gradient`, by the two-loop recursion.

        Args:
            gradient: Any shape.
            prior: Estimate of the inverse Hessian's diagonal, of the same shape. With pairs only its
                proportions count: the latest pair sets its size.
        """
        result = gradient.clone()
        projections = []
        for step, change, curvature in reversed(self.pairs):
            projection = _dot(step, result) / curvature
            result -= projection * change
            projections.append(projection)
        result *= prior
        if self.pairs:
            _, change, curvature = self.pairs[-1]
            result *= curvature / _dot(change, prior * change)
        for (step, change, curvature), projection in zip(self.pairs, reversed(projections), strict=True):
            result += (projection - _dot(change, result) / curvature) * step
        return result


def minimise(
    evaluate: Evaluate,
    start: Tensor,
    first: tuple[float, Tensor],
    is_solved: Callable[[Tensor, Tensor], bool],
    *,
    history: CurvatureHistory,
    prior: Tensor,
    max_iterations: int,
    value_rounding: float,
) -> Tensor:
    """Minimise a smooth convex function.

    Args:
        evaluate: Returns value and gradient at a point of the shape of `start`.
        start: Where to begin, any shape.
        first: Value and gradient there.
        is_solved: Called with point and gradient; the search ends when it returns True.
        history: Curvature from a similar problem, or empty; updated in place.
        prior: Estimate of the inverse Hessian's diagonal, of the shape of `start`, positive.
        max_iterations: Number of steps after which the search ends.
        value_rounding: Relative rounding error of the value. A step that promises a smaller descent
            ends the search, since no line search can distinguish such a descent from noise.

    Returns:
        The last point, which is the best one seen.
    """
    point = start
    value, gradient = first
    for _ in range(max_iterations):
        direction = -history.apply_inverse(gradient, prior)
        slope = _dot(gradient, direction)
        if is_solved(point, gradient) or -slope <= value_rounding * abs(value):
            break
        found = _wolfe_step(evaluate, point, direction, value, slope)
        if found is None:
            break
        next_point, value, next_gradient = found
        history.add(next_point - point, next_gradient - gradient)
        point, gradient = next_point, next_gradient
    return point


def _wolfe_step(
    evaluate: Evaluate, point: Tensor, direction: Tensor, value: float, slope: float
) -> tuple[Tensor, float, Tensor] | None:
    """Find a step that meets the weak Wolfe conditions, by doubling and bisection; return None if it finds none."""
    length, lower, upper = 1.0, 0.0, math.inf
    for _ in range(MAX_SEARCH_STEPS):
        candidate = point + length * direction
        new_value, gradient = evaluate(candidate)
        # Written so that a value that is not a number counts as too high.
        if not new_value <= value + SUFFICIENT_DECREASE * length * slope:
            upper = length
        elif _dot(gradient, direction) < CURVATURE * slope:
            lower = length
        else:
            return candidate, new_value, gradient
        length = (lower + upper) / 2 if math.isfinite(upper) else 2 * lower
    return None


def _dot(left: Tensor, right: Tensor) -> float:
    return float(torch.dot(left.flatten(), right.flatten()))
