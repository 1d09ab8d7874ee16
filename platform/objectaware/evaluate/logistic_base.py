"""What logistic regression has in common wherever its features lie: well-scaled variables, and the search in them."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from objectaware.errors import InputError
from objectaware.evaluate.lbfgs import CurvatureHistory, minimise


class Evaluation(NamedTuple):
    """What one pass over the samples tells about a point.

    Attributes:
        value: The objective divided by N.
        gradient: Of `value`, (C, D + 1) float64.
        doubts: Gives the mean of |r| (1 - |r|) of each class over the samples, (C,) float64, where r is the gradient
            of a sample's cross-entropy by its scores. Only the first pass of a search is asked for it.
    """

    value: float
    gradient: Tensor
    doubts: Callable[[], Tensor]


@dataclass(frozen=True)
class Geometry:
    """What the scaled variables are made of.

    Attributes:
        num_samples: N.
        frequencies: Share of each class, (C,) float64, all positive.
        mean: Of the features, (D,) float64, as the precision of the products has it.
        scale: Root mean square of the centred features; 1 where they are all the same.
        axes: Principal axes in columns, (D, D) float64.
        variances: Of the components along them, divided by the square of the scale, (D,) float64.
        dtype: Precision of the products with the features.
    """

    num_samples: int
    frequencies: Tensor
    mean: Tensor
    scale: float
    axes: Tensor
    variances: Tensor
    dtype: torch.dtype


class ScaledProblem(ABC):
    """Mean cross-entropy plus the penalty, as a function of points (C, D + 1) float64.

    A point holds the weights of the features' principal components, divided by one common scale, then the bias.
    The unpenalised bias takes up the mean and the penalty the scale, and the norm does not feel the rotation, so
    the minimiser is the same as for the features as given. Neither a common offset nor the unit slows the search,
    and correlated features hardly do: along the principal axes the Hessian is nearly diagonal.

    Args:
        geometry: Of the features.
    """

    def __init__(self, geometry: Geometry) -> None:
        self._geometry = geometry

    @abstractmethod
    def evaluate(self, point: Tensor, penalty: float) -> Evaluation:
        """Passes once over the samples, for a penalty in the sum form."""

    def start(self) -> Tensor:
        """Returns the minimiser for an infinite penalty: the logarithms of the class frequencies."""
        frequencies, mean = self._geometry.frequencies, self._geometry.mean
        weight = mean.new_zeros(len(frequencies), len(mean))
        return torch.cat([weight, frequencies.log().unsqueeze(1)], dim=1)

    def point_of(self, weight: Tensor, bias: Tensor) -> Tensor:
        """Returns the point of weights (C, D) and biases (C,) of the features as given."""
        geometry = self._geometry
        weight, bias = weight.to(geometry.mean), bias.to(geometry.mean)
        scaled = weight @ geometry.axes * geometry.scale
        return torch.cat([scaled, (bias + weight @ geometry.mean).unsqueeze(1)], dim=1)

    def weight_and_bias_of(self, point: Tensor) -> tuple[Tensor, Tensor]:
        """Returns weights (C, D) and biases (C,), of zero sum, of the features as given."""
        weight = point[:, :-1] @ self._geometry.axes.T / self._geometry.scale
        bias = point[:, -1] - weight @ self._geometry.mean
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
        scaled_penalty, frequencies = self._scaled(penalty), self._geometry.frequencies

        def is_solved(point: Tensor, gradient: Tensor) -> bool:
            allowed = tolerance * float(point[:, :-1].norm())
            # The bias has the curvature of its class's frequency; a strong penalty would let it go too soon.
            bias_error = float((gradient[:, -1] / frequencies).norm())
            return float(gradient.norm()) <= scaled_penalty * allowed and bias_error <= allowed

        first = self.evaluate(start, penalty)
        return minimise(
            lambda point: self.evaluate(point, penalty)[:2],
            start,
            (first.value, first.gradient),
            is_solved,
            history=history,
            prior=1.0 / self._curvature(first.doubts(), penalty),
            max_iterations=max_iterations,
            # The errors of the samples are independent, so that their mean is this much more exact.
            value_rounding=torch.finfo(self._geometry.dtype).eps / math.sqrt(self._geometry.num_samples),
        )

    def shift_curvature(self, history: CurvatureHistory, penalty_change: float) -> None:
        """Adapts curvature that was seen under another penalty, whose Hessian is known: a constant."""
        mean = self._geometry.mean
        change = mean.new_full((len(mean) + 1,), self._scaled(penalty_change))
        change[-1] = 0.0
        history.shift(lambda step: step * change)

    def _curvature(self, doubts: Tensor, penalty: float) -> Tensor:
        """Estimates the Hessian's diagonal (C, D + 1), as if features and probabilities were unrelated.

        It takes in what makes the problem ill-conditioned: components of unlike variance, rare classes, and a
        penalty far above the curvature of the cross-entropy, which the bias does not feel.
        """
        # Where rounding leaves no doubt there is no gradient either; the bound keeps the inverse finite.
        by_class = doubts.unsqueeze(1).clamp_min(torch.finfo(torch.float64).eps)
        return torch.cat([by_class * self._geometry.variances + self._scaled(penalty), by_class], dim=1)

    def _scaled(self, penalty: float) -> float:
        return penalty / (self._geometry.num_samples * self._geometry.scale**2)


def cross_entropy(scores: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
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


def count_classes(labels: Tensor, num_classes: int) -> Tensor:
    """Returns the number of samples of each class, (C,) int64, all positive.

    Raises:
        InputError: There is one class alone, a label is out of range, or a class has no sample.
    """
    if num_classes < 2:
        problem = "is the only class: there is nothing to tell apart"
        raise InputError("labels", int(labels[0]), problem, "Give samples of two classes at least.")
    lowest, highest = int(labels.min()), int(labels.max())
    if lowest < 0 or highest >= num_classes:
        remedy = "Number the classes from 0."
        raise InputError("labels", f"{lowest} to {highest}", f"must lie in 0 to {num_classes - 1}", remedy)
    counts = torch.bincount(labels, minlength=num_classes)
    if int(counts.min()) == 0:
        empty = torch.nonzero(counts == 0).flatten().tolist()
        remedy = "Give each class a training image at least, or number the classes without gaps."
        raise InputError("labels", f"classes {empty}", "have no training image", remedy)
    return counts
