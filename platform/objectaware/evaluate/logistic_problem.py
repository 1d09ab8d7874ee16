"""The objective of logistic regression, its gradient and its solution, in well-scaled variables."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from objectaware.errors import InputError
from objectaware.evaluate.checks import check_features, check_labels
from objectaware.evaluate.lbfgs import CurvatureHistory, minimise


class Evaluation(NamedTuple):
    """What one pass over the samples tells about a point.

    Attributes:
        value: The objective divided by N.
        gradient: Of `value`, (C, D + 1) float64.
        residuals: Gradient of each sample's cross-entropy by its scores, (N, C).
    """

    value: float
    gradient: Tensor
    residuals: Tensor


class LogisticProblem:
    """Mean cross-entropy plus the penalty, as a function of points (C, D + 1) float64.

    A point holds the weights of the features' principal components, divided by one common scale, then the bias.
    The unpenalised bias takes up the mean and the penalty the scale, and the norm does not feel the rotation, so
    the minimiser is the same as for the features as given. Neither a common offset nor the unit slows the search,
    and correlated features hardly do: along the principal axes the Hessian is nearly diagonal.

    Args:
        features: (N, D) floating point, finite.
        labels: (N,) integers in [0, num_classes), each class at least once.
        num_classes: C, at least 2.
        dtype: Precision of the products with the features.

    Raises:
        InputError: Features are not finite, labels are out of range or leave a class empty, or the numbers
            of the two differ.
    """

    def __init__(self, features: Tensor, labels: Tensor, num_classes: int, dtype: torch.dtype) -> None:
        check_features("features", features)
        check_labels("labels", labels, features)
        labels = labels.to(features.device, torch.int64)
        self._num_samples = len(features)
        self._frequencies = _count_classes(labels, num_classes).to(torch.float64) / len(labels)
        self._labels = labels.unsqueeze(1)
        # The mean as the rows' precision has it, so that what is subtracted and what is added back agree.
        mean = features.mean(dim=0, dtype=torch.float64).to(dtype)
        self._mean = mean.to(torch.float64)
        centred = features.to(dtype) - mean
        self._scale = math.sqrt(float(centred.square().mean(dtype=torch.float64))) or 1.0
        centred /= self._scale
        self._axes = torch.linalg.eigh((centred.T @ centred).to(torch.float64)).eigenvectors
        self._rows = centred @ self._axes.to(dtype)
        self._variances = self._rows.square().mean(dim=0, dtype=torch.float64)

    def start(self) -> Tensor:
        """Returns the minimiser for an infinite penalty: the logarithms of the class frequencies."""
        weight = self._mean.new_zeros(len(self._frequencies), len(self._mean))
        return torch.cat([weight, self._frequencies.log().unsqueeze(1)], dim=1)

    def point_of(self, weight: Tensor, bias: Tensor) -> Tensor:
        """Returns the point of weights (C, D) and biases (C,) of the features as given."""
        weight, bias = weight.to(self._mean), bias.to(self._mean)
        return torch.cat([weight @ self._axes * self._scale, (bias + weight @ self._mean).unsqueeze(1)], dim=1)

    def weight_and_bias_of(self, point: Tensor) -> tuple[Tensor, Tensor]:
        """Returns weights (C, D) and biases (C,), of zero sum, of the features as given."""
        weight = point[:, :-1] @ self._axes.T / self._scale
        bias = point[:, -1] - weight @ self._mean
        return weight, bias - bias.mean()

    def solve(
        self,
        penalty: float,
        start: Tensor,
        history: CurvatureHistory,
        *,
        max_iterations: int,
        tolerance: float,
    ) -> Tensor:
        """Returns the minimiser for a penalty (sum form), up to the relative error `tolerance`."""
        scaled_penalty = self._scaled(penalty)

        def is_solved(point: Tensor, gradient: Tensor) -> bool:
            allowed = tolerance * float(point[:, :-1].norm())
            # The bias has the curvature of its class's frequency; a strong penalty would let it go too soon.
            bias_error = float((gradient[:, -1] / self._frequencies).norm())
            return float(gradient.norm()) <= scaled_penalty * allowed and bias_error <= allowed

        first = self.evaluate(start, penalty)
        return minimise(
            lambda point: self.evaluate(point, penalty)[:2],
            start,
            (first.value, first.gradient),
            is_solved,
            history=history,
            prior=1.0 / self.curvature(first.residuals, penalty),
            max_iterations=max_iterations,
            # The errors of the samples are independent, so that their mean is this much more exact.
            value_rounding=torch.finfo(self._rows.dtype).eps / math.sqrt(self._num_samples),
        )

    def evaluate(self, point: Tensor, penalty: float) -> Evaluation:
        """Returns the objective, its gradient and the residuals at a point."""
        weight, scaled_penalty = point[:, :-1], self._scaled(penalty)
        rows_weight, rows_bias = weight.to(self._rows), point[:, -1].to(self._rows)
        losses, residuals = _cross_entropy(torch.addmm(rows_bias, self._rows, rows_weight.T), self._labels)
        value = losses.mean(dtype=torch.float64) + scaled_penalty / 2 * weight.square().sum()
        of_loss = (residuals.T @ self._rows).to(point.dtype) / self._num_samples
        of_bias = residuals.mean(dim=0, dtype=torch.float64)
        gradient = torch.cat([of_loss + scaled_penalty * weight, of_bias.unsqueeze(1)], dim=1)
        return Evaluation(float(value), gradient, residuals)

    def curvature(self, residuals: Tensor, penalty: float) -> Tensor:
        """Estimates the Hessian's diagonal (C, D + 1), as if features and probabilities were unrelated.

        It takes in what makes the problem ill-conditioned: components of unlike variance, rare classes, and a
        penalty far above the curvature of the cross-entropy, which the bias does not feel.

        Args:
            residuals: Of an evaluation at the point, (N, C).
            penalty: In the sum form.
        """
        doubts = residuals.abs()
        by_class = (doubts * (1.0 - doubts)).mean(dim=0, dtype=torch.float64).unsqueeze(1)
        # Where rounding leaves no doubt there is no gradient either; the bound keeps the inverse finite.
        by_class = by_class.clamp_min(torch.finfo(torch.float64).eps)
        return torch.cat([by_class * self._variances + self._scaled(penalty), by_class], dim=1)

    def shift_curvature(self, history: CurvatureHistory, penalty_change: float) -> None:
        """Adapts curvature that was seen under another penalty, whose Hessian is known: a constant."""
        change = self._mean.new_full((len(self._mean) + 1,), self._scaled(penalty_change))
        change[-1] = 0.0
        history.shift(lambda step: step * change)

    def _scaled(self, penalty: float) -> float:
        return penalty / (self._num_samples * self._scale**2)


def _cross_entropy(scores: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the cross-entropy (N, 1) and its gradient by the scores (N, C), for labels (N, 1).

    Both are written in the probabilities of the wrong classes: 1 - p of the right class would lose its
    digits where p is nearly one, which is everywhere in a separable problem with a weak penalty.
    """
    margins = scores - scores.gather(1, labels)
    largest = margins.amax(dim=1, keepdim=True)
    wrong = margins.sub_(largest).exp_().scatter_(1, labels, 0.0)
    wrong_mass = wrong.sum(dim=1, keepdim=True)
    mass_less_one = wrong_mass + torch.expm1(-largest)
    residuals = wrong.scatter_(1, labels, -wrong_mass).div_(1.0 + mass_less_one)
    return largest + torch.log1p(mass_less_one), residuals


def _count_classes(labels: Tensor, num_classes: int) -> Tensor:
    """Returns the number of samples of each class, (C,) int64, all positive."""
    lowest, highest = int(labels.min()), int(labels.max())
    if num_classes < 2 or lowest < 0 or highest >= num_classes:
        remedy = "Number the classes from 0; there must be two at least."
        raise InputError("labels", f"{lowest} to {highest}", f"must lie in 0 to {num_classes - 1}", remedy)
    counts = torch.bincount(labels, minlength=num_classes)
    if int(counts.min()) == 0:
        empty = torch.nonzero(counts == 0).flatten().tolist()
        remedy = "Give each class a training image at least, or number the classes without gaps."
        raise InputError("labels", f"classes {empty}", "have no training image", remedy)
    return counts
