"""L2-regularised multinomial logistic regression, solved to its exact minimiser.

The linear evaluation of the paper (App. A, after SimCLR) trains this classifier on fixed features for many
regularisation strengths. The objective is the sum form, with the bias unpenalised:

    F(W, b) = sum_i CE(W x_i + b, y_i) + penalty / 2 * ||W||^2.

scikit-learn's ``LogisticRegression(C=1 / penalty)`` has the same minimiser for three classes or more. (For two it
fits one vector instead of two; ``C=2 / penalty`` then gives the same decision function.) The official code penalises
the mean of the squared weights against the mean cross-entropy, mean_i CE + w / 2 * mean(W^2), which is
``penalty = w * N / (num_classes * D)`` here, save that it penalises the bias as well.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from objectaware.errors import InputError
from objectaware.evaluate.lbfgs import CurvatureHistory, minimise

Array = Tensor | NDArray[Any]


@dataclass(frozen=True)
class LogisticModel:
    """A linear classifier with scores ``features @ weight.T + bias``.

    Attributes:
        weight: (C, D) float64.
        bias: (C,) float64, of zero sum.
    """

    weight: Tensor
    bias: Tensor

    def predict(self, features: Array) -> Tensor:
        """Returns the class of each row of ``features`` (N, D) as (N,) int64, on the features' device."""
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
        penalty: Positive weight of the squared norm in the sum form (see the module's text).
        initial: Where to begin; the result does not depend on it beyond ``tolerance``.
        max_iterations: Limit of L-BFGS steps.
        tolerance: Relative error of the weights, ||W - W*|| / ||W||, at which to stop. The gradient bounds it from
            above (the objective is strongly convex in W), so that the true error is smaller.

    Returns:
        The model, on the device of the features.

    Raises:
        InputError: Features are not finite, labels are out of range or leave a class empty, or shapes disagree.
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
    """Fits the classifier for a sequence of penalties, each fit prepared by the ones before it.

    A fit begins at the extrapolation of the last two models in log(penalty) and inherits the curvature seen so far,
    which makes a path from the strongest penalty down several times cheaper than its fits alone.

    Args:
        penalties: Positive and strictly decreasing.
        dtype: Precision of the products with the features; float32 is twice as fast, and exact enough to compare
            accuracies.

    The other arguments, and the errors raised, are those of ``fit_logistic``.

    Yields:
        A model for each penalty, in their order.
    """
    problem = _Problem(torch.as_tensor(features), torch.as_tensor(labels), num_classes, dtype)
    history = CurvatureHistory()
    points = [problem.start() if initial is None else problem.point_of(initial)]
    log_penalties: list[float] = []
    for penalty in penalties:
        assert penalty > 0 and (not log_penalties or math.log(penalty) < log_penalties[-1]), penalty
        log_penalties.append(math.log(penalty))
        if len(log_penalties) > 1:
            problem.shift_curvature(history, penalty - math.exp(log_penalties[-2]))
        solution = problem.solve(
            penalty, _extrapolate(points, log_penalties), history, max_iterations=max_iterations, tolerance=tolerance
        )
        points = [*points[-1:], solution] if len(log_penalties) > 1 else [solution]
        yield problem.model_of(solution)


def _extrapolate(points: list[Tensor], log_penalties: list[float]) -> Tensor:
    """Continues the line through the last two solutions, linear in log(penalty)."""
    if len(points) < 2:
        return points[-1]
    before, last, now = log_penalties[-3:]
    return points[-1] + (now - last) / (last - before) * (points[-1] - points[-2])


class _Problem:
    """The objective, divided by N, in variables in which it is well scaled.

    Points are (C, D + 1) float64: the weights of the centred features divided by one common scale, then the bias.
    Centring is absorbed by the unpenalised bias and the scale by the penalty, so the minimiser stays the same.
    """

    def __init__(self, features: Tensor, labels: Tensor, num_classes: int, dtype: torch.dtype) -> None:
        check_features("features", features)
        self._num_samples = len(features)
        self._class_counts = _count_classes(features, labels, num_classes)
        self._labels = labels.to(features.device, torch.int64).unsqueeze(1)
        self._mean = features.mean(dim=0, dtype=torch.float64)
        self._rows = features.to(dtype) - self._mean.to(dtype)
        variances = self._rows.square().mean(dim=0, dtype=torch.float64)
        self._scale = math.sqrt(float(variances.mean())) or 1.0
        self._rows /= self._scale
        self._variances = variances / self._scale**2

    def start(self) -> Tensor:
        """Returns the minimiser for an infinite penalty: no weights, and the logarithms of the class frequencies."""
        weight = self._mean.new_zeros(len(self._class_counts), len(self._mean))
        return torch.cat([weight, self._class_counts.log().unsqueeze(1)], dim=1)

    def point_of(self, model: LogisticModel) -> Tensor:
        weight, bias = model.weight.to(self._mean), model.bias.to(self._mean)
        return torch.cat([weight * self._scale, (bias + weight @ self._mean).unsqueeze(1)], dim=1)

    def model_of(self, point: Tensor) -> LogisticModel:
        weight = point[:, :-1] / self._scale
        bias = point[:, -1] - weight @ self._mean
        return LogisticModel(weight, bias - bias.mean())

    def solve(
        self, penalty: float, start: Tensor, history: CurvatureHistory, *, max_iterations: int, tolerance: float
    ) -> Tensor:
        scaled_penalty = self._scaled(penalty)
        # The curvature along the bias is near the class frequency, whatever the penalty.
        frequencies = self._class_counts / self._num_samples

        def is_solved(point: Tensor, gradient: Tensor) -> bool:
            allowed = tolerance * float(point[:, :-1].norm())
            bias_error = float((gradient[:, -1] / frequencies).norm())
            return float(gradient.norm()) <= scaled_penalty * allowed and bias_error <= allowed

        return minimise(
            lambda point: self.evaluate(point, penalty),
            start,
            is_solved,
            history=history,
            prior=1.0 / self.curvature(start, penalty),
            max_iterations=max_iterations,
            value_rounding=torch.finfo(self._rows.dtype).eps / math.sqrt(self._num_samples),
        )

    def evaluate(self, point: Tensor, penalty: float) -> tuple[float, Tensor]:
        """Returns value and gradient at a point."""
        weight, bias = point[:, :-1], point[:, -1]
        losses, residuals = self._losses_and_residuals(point)
        scaled_penalty = self._scaled(penalty)
        value = losses.mean(dtype=torch.float64) + scaled_penalty / 2 * weight.square().sum()
        gradient = torch.empty_like(point)
        gradient[:, :-1] = (residuals.T @ self._rows).to(point.dtype) / self._num_samples + scaled_penalty * weight
        gradient[:, -1] = residuals.mean(dim=0, dtype=torch.float64)
        return float(value), gradient

    def curvature(self, point: Tensor, penalty: float) -> Tensor:
        """Returns an estimate of the Hessian's diagonal at a point, as if features and probabilities were unrelated.

        It takes in what makes the problem ill-conditioned: features of unlike variance, rare classes, and a penalty
        far above the curvature of the cross-entropy, which the bias does not feel.
        """
        doubts = self._losses_and_residuals(point)[1].abs_()
        by_class = (doubts * (1.0 - doubts)).mean(dim=0, dtype=torch.float64).unsqueeze(1)
        of_weight = by_class * self._variances + self._scaled(penalty)
        return torch.cat([of_weight, by_class], dim=1)

    def _losses_and_residuals(self, point: Tensor) -> tuple[Tensor, Tensor]:
        scores = torch.addmm(point[:, -1].to(self._rows), self._rows, point[:, :-1].to(self._rows).T)
        return _loss_and_residual(scores, self._labels)

    def shift_curvature(self, history: CurvatureHistory, penalty_change: float) -> None:
        """Accounts for a change of the penalty in curvature seen before it: the penalty's Hessian is a constant."""
        change = self._mean.new_full((len(self._mean) + 1,), self._scaled(penalty_change))
        change[-1] = 0.0
        history.shift(lambda step: step * change)

    def _scaled(self, penalty: float) -> float:
        return penalty / (self._num_samples * self._scale**2)


def _loss_and_residual(scores: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Returns cross-entropy (N, 1) and its gradient by the scores (N, C), for labels (N, 1).

    Both are written with the probabilities of the wrong classes. 1 - p of the right class would lose all its digits
    where p is nearly one, which is everywhere in a separable problem with a weak penalty.
    """
    margins = scores - scores.gather(1, labels)
    largest = margins.amax(dim=1, keepdim=True)
    wrong = margins.sub_(largest).exp_().scatter_(1, labels, 0.0)
    wrong_mass = wrong.sum(dim=1, keepdim=True)
    total_less_one = wrong_mass + torch.expm1(-largest)
    residual = wrong.scatter_(1, labels, -wrong_mass).div_(1.0 + total_less_one)
    return largest + torch.log1p(total_less_one), residual


def check_features(field: str, features: Tensor) -> None:
    """Raises InputError unless ``features`` is a finite (N, D) floating-point matrix with at least one row."""
    if features.ndim != 2 or len(features) == 0 or not features.is_floating_point():
        problem = "must be a floating-point matrix with a row for each image"
        raise InputError(field, f"{features.dtype} of shape {tuple(features.shape)}", problem, "Give features (N, D).")
    num_bad = int((~torch.isfinite(features).all(dim=1)).sum())
    if num_bad:
        remedy = "Check the checkpoint: a run that diverged gives such features."
        raise InputError(field, f"{num_bad} of {len(features)} rows", "hold NaN or infinity", remedy)


def _count_classes(features: Tensor, labels: Tensor, num_classes: int) -> Tensor:
    """Returns the number of samples of each class, (C,) float64, after checking the labels."""
    if labels.shape != features.shape[:1]:
        problem = f"must be one label for each of {len(features)} rows"
        raise InputError("labels", f"shape {tuple(labels.shape)}", problem, "Give labels (N,).")
    if num_classes < 2 or int(labels.min()) < 0 or int(labels.max()) >= num_classes:
        span = f"{int(labels.min())} to {int(labels.max())}"
        remedy = "Number two classes or more from 0."
        raise InputError("labels", span, f"must lie in 0 to {num_classes - 1}", remedy)
    counts = torch.bincount(labels.to(features.device, torch.int64), minlength=num_classes)
    if int(counts.min()) == 0:
        empty = [int(index) for index in torch.nonzero(counts == 0).flatten()]
        remedy = "Give each class at least one training image, or leave the class out."
        raise InputError("labels", f"classes {empty}", "have no training sample", remedy)
    return counts.to(torch.float64)
