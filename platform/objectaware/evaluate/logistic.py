"""L2-regularised multinomial logistic regression, solved to its exact minimiser.

The linear evaluation of the paper (appendix, after SimCLR) trains this classifier on fixed features for many
strengths of the penalty. The objective is a sum over the samples, with the bias unpenalised:

    F(W, b) = sum_i CE(W x_i + b, y_i) + penalty / 2 * ||W||^2.

scikit-learn's `LogisticRegression(C=1 / penalty)` has the same minimiser for three classes or more. (For two
it fits one vector instead of two; `C=2 / penalty` then gives the same decision function.) The official code
weighs the mean of the squared weights against the mean cross-entropy, mean_i CE_i + w / 2 * mean(W^2); that
is `penalty = w * N / (num_classes * D)` here, save that it penalises the bias as well.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from objectaware.evaluate.checks import Array
from objectaware.evaluate.lbfgs import CurvatureHistory
from objectaware.evaluate.logistic_base import ScaledProblem
from objectaware.evaluate.logistic_problem import LogisticProblem


@dataclass(frozen=True)
class LogisticModel:
    """A linear classifier with scores `features @ weight.T + bias`.

    Attributes:
        weight: (C, D) float64.
        bias: (C,) float64, of zero sum.
    """

    weight: Tensor
    bias: Tensor

    def predict(self, features: Array) -> Tensor:
        """Returns the class of each row of `features` (N, D) as (N,) int64, on the features' device."""
        rows = torch.as_tensor(features)
        return torch.addmm(self.bias.to(rows), rows, self.weight.to(rows).T).argmax(dim=1)


def fit_logistic(
    features: Array,
    labels: Array,
    *,
    num_classes: int,
    penalty: float,
    initial: LogisticModel | None = None,
    max_iterations: int = 1000,
    tolerance: float = 1e-3,
) -> LogisticModel:
    """Fits the classifier for one penalty, in float64.

    Args:
        features: (N, D) floating point, finite.
        labels: (N,) integers in [0, num_classes), each class at least once.
        num_classes: C, at least 2.
        penalty: Positive weight of the squared norm, in the sum form of this module.
        initial: Where to begin; the result does not depend on it beyond `tolerance`.
        max_iterations: Limit of L-BFGS steps.
        tolerance: Relative error of the weights, ||W - W*|| / ||W||, at which to stop. It is judged by the
            gradient, which bounds it from above as the objective is strongly convex in W.

    Returns:
        The model, on the device of the features.

    Raises:
        InputError: Features are not finite, labels are out of range or leave a class empty, or the numbers
            of the two differ.
    """
    path = logistic_path(
        features,
        labels,
        num_classes=num_classes,
        penalties=[penalty],
        initial=initial,
        max_iterations=max_iterations,
        tolerance=tolerance,
    )
    return next(path)


def logistic_path(
    features: Array,
    labels: Array,
    *,
    num_classes: int,
    penalties: Iterable[float],
    initial: LogisticModel | None = None,
    max_iterations: int = 1000,
    tolerance: float = 1e-3,
    dtype: torch.dtype = torch.float64,
) -> Iterator[LogisticModel]:
    """Fits the classifier for a sequence of penalties, each fit prepared by those before it.

    A fit begins where the last two models point to, linearly in log(penalty), and inherits the curvature
    seen so far. From the strongest penalty down this makes the path several times cheaper than its fits.

    Args:
        features: (N, D) floating point, finite.
        labels: (N,) integers in [0, num_classes), each class at least once.
        num_classes: C, at least 2.
        penalties: Positive and strictly decreasing, in the sum form of this module.
        initial: Where to begin the first fit.
        max_iterations: Limit of L-BFGS steps for each fit.
        tolerance: Relative error of the weights, as in `fit_logistic`.
        dtype: Precision of the products with the features. float32 is twice as fast; fits with a weak penalty
            then end at an error of a per cent or so, where rounding hides further descent.

    Returns:
        A model for each penalty, in their order, fitted when it is asked for.

    Raises:
        InputError: As in `fit_logistic`.
    """
    problem = LogisticProblem(torch.as_tensor(features), torch.as_tensor(labels), num_classes, dtype)
    return solution_path(problem, penalties, initial=initial, max_iterations=max_iterations, tolerance=tolerance)


def solution_path(
    problem: ScaledProblem,
    penalties: Iterable[float],
    *,
    initial: LogisticModel | None = None,
    max_iterations: int = 1000,
    tolerance: float = 1e-3,
) -> Iterator[LogisticModel]:
    """Fits a problem for a sequence of penalties; the arguments are those of `logistic_path`."""
    start = problem.start() if initial is None else problem.point_of(initial.weight, initial.bias)
    history = CurvatureHistory()
    solved: deque[tuple[float, Tensor]] = deque(maxlen=2)
    for penalty in penalties:
        assert 0 < penalty < (solved[-1][0] if solved else math.inf), penalty
        if solved:
            problem.shift_curvature(history, penalty - solved[-1][0])
            start = _extrapolate(solved, penalty)
        solution = problem.solve(penalty, start, history, max_iterations=max_iterations, tolerance=tolerance)
        solved.append((penalty, solution))
        yield LogisticModel(*problem.weight_and_bias_of(solution))


def _extrapolate(solved: deque[tuple[float, Tensor]], penalty: float) -> Tensor:
    """Continues the line through the last two solutions, which is linear in log(penalty)."""
    last_penalty, last = solved[-1]
    if len(solved) == 1:
        return last
    earlier_penalty, earlier = solved[0]
    ratio = math.log(penalty / last_penalty) / math.log(last_penalty / earlier_penalty)
    return last + ratio * (last - earlier)
