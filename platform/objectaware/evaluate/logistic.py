"""L2-regularised multinomial logistic regression, solved to its exact minimiser.

The linear evaluation of the paper (appendix, after SimCLR) trains this classifier on fixed features for many
strengths of the penalty. The objective is a sum over the samples, with the bias unpenalised:

    F(W, b) = sum_i CE(W x_i + b, y_i) + penalty / 2 * ||W||^2.

scikit-learn's `LogisticRegression(C=1 / penalty)` has the same minimiser for three classes or more. For two classes it
fits one vector instead of two; `C=2 / penalty` then gives the same decision function. The official code weighs the mean
of the squared weights against the mean cross-entropy, mean_i CE_i + w / 2 * mean(W^2). That is
`penalty = w * N / (num_classes * D)` here, but the official code penalises the bias as well.

Features in memory are rotated once to their principal axes (`LogisticProblem`). Features that do not fit in memory are
read in batches, one pass per step (`StreamedProblem`). Both have the same objective; only the rounding differs.

The minimiser is L-BFGS (Liu and Nocedal, 1989), written here because it keeps its curvature from one penalty to the
next, on any device. For 45 penalties on 2,000 x 128 features of 20 classes it took 444 passes and 0.74 s on one core
(relative error of the weights at most 0.2%). On the same scaled problem, each warm-started, SciPy's L-BFGS-B took 1,543
passes and 1.95 s (2.4%), and `torch.optim.LBFGS` 723 passes and 0.87 s (60%: it stopped early at weak penalties).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from objectaware.errors import InputError
from objectaware.evaluate.features import check_features, check_labels
from objectaware.methods.checkpoint import Classifier


def solution_path(
    problem: ScaledProblem, penalties: Iterable[float], *, initial: Classifier | None = None, tolerance: float = 1e-3
) -> Iterator[Classifier]:
    """Fit the classifier for a sequence of penalties, starting each fit from the results of the fits before it.

    A fit begins where the last two models point to, linearly in log(penalty), and inherits the curvature
    seen so far. From the strongest penalty down this makes the path several times cheaper than its fits.

    Args:
        problem: The features and labels to fit.
        penalties: Positive and strictly decreasing, in the sum form of this module.
        initial: Where to begin the first fit; the result does not depend on it beyond `tolerance`.
        tolerance: Relative error of the weights, ||W - W*|| / ||W||, at which to stop. It is judged by the gradient,
            which bounds it from above as the objective is strongly convex in W.

    Yields:
        One model per penalty in float64, in their order, fitted when the iterator reaches it. Its biases have zero
        sum.
    """
    start = problem.start() if initial is None else problem.point_of(initial.weight, initial.bias)
    history = CurvatureHistory()
    solved: deque[tuple[float, Tensor]] = deque(maxlen=2)
    for penalty in penalties:
        assert 0 < penalty < (solved[-1][0] if solved else math.inf), penalty
        if solved:
            last_penalty, start = solved[-1]
            problem.shift_curvature(history, penalty - last_penalty)
        if len(solved) == 2:  # continue the line through both, which is linear in log(penalty)
            earlier_penalty, earlier = solved[0]
            ratio = math.log(penalty / last_penalty) / math.log(last_penalty / earlier_penalty)
            start = start + ratio * (start - earlier)
        solution = problem.solve(penalty, start, history, tolerance)
        solved.append((penalty, solution))
        yield Classifier(*problem.weight_and_bias_of(solution))


class Evaluation(NamedTuple):
    """Results of one pass over the samples at a point.

    Attributes:
        value: The objective divided by N.
        gradient: Gradient of `value`, (C, D + 1) float64.
        doubts: Returns the mean of |r| (1 - |r|) of each class over the samples, (C,) float64, where r is the gradient
            of a sample's cross-entropy by its scores. Only called for the first pass of a search.
    """

    value: float
    gradient: Tensor
    doubts: Callable[[], Tensor]


class ScaledProblem(ABC):
    """Mean cross-entropy plus the penalty, as a function of points (C, D + 1) float64.

    A point holds the weights of the features' principal components, divided by one common scale, then the bias.
    The minimiser is the same as for the features as given: the unpenalised bias compensates the mean, the penalty the
    scale, and a rotation does not change the norm. Neither a common offset nor the unit slows the search. Correlated
    features hardly do, because the Hessian is nearly diagonal along the principal axes.

    Args:
        num_samples: N.
        frequencies: Share of each class, (C,) float64, all positive.
        mean: Mean of the features, (D,), rounded to the precision of the products.
        scale: Root mean square of the centred features; 1 where they are all the same.
        axes: Principal axes in columns, (D, D) float64.
        variances: Variances of the components along them, divided by the square of the scale, (D,) float64.
        dtype: Precision of the products with the features. float32 is twice as fast; fits with a weak penalty
            then end at an error of a per cent or so, where rounding hides further descent.
    """

    def __init__(
        self,
        num_samples: int,
        frequencies: Tensor,
        mean: Tensor,
        scale: float,
        axes: Tensor,
        variances: Tensor,
        dtype: torch.dtype,
    ) -> None:
        self._num_samples, self._frequencies, self._mean = num_samples, frequencies, mean.to(torch.float64)
        self._scale, self._axes, self._variances, self._dtype = scale, axes, variances, dtype

    @abstractmethod
    def evaluate(self, point: Tensor, penalty: float) -> Evaluation:
        """Evaluate a point in one pass over the samples, for a penalty in the sum form."""

    def start(self) -> Tensor:
        """Return the minimiser for an infinite penalty: the logarithms of the class frequencies."""
        weight = self._mean.new_zeros(len(self._frequencies), len(self._mean))
        return torch.cat([weight, self._frequencies.log().unsqueeze(1)], dim=1)

    def point_of(self, weight: Tensor, bias: Tensor) -> Tensor:
        """Return the point of weights (C, D) and biases (C,) of the features as given."""
        weight, bias = weight.to(self._mean), bias.to(self._mean)
        scaled = weight @ self._axes * self._scale
        return torch.cat([scaled, (bias + weight @ self._mean).unsqueeze(1)], dim=1)

    def weight_and_bias_of(self, point: Tensor) -> tuple[Tensor, Tensor]:
        """Return weights (C, D) and biases (C,), of zero sum, of the features as given."""
        weight = point[:, :-1] @ self._axes.T / self._scale
        bias = point[:, -1] - weight @ self._mean
        return weight, bias - bias.mean()

    def solve(self, penalty: float, start: Tensor, history: CurvatureHistory, tolerance: float) -> Tensor:
        """Return the minimiser for a penalty (sum form), up to the relative error `tolerance`."""
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
            prior=1.0 / self._curvature(first.doubts(), penalty),
            max_iterations=MAX_ITERATIONS,
            # The errors of the samples are independent, so that their mean is this much more exact.
            value_rounding=torch.finfo(self._dtype).eps / math.sqrt(self._num_samples),
        )

    def shift_curvature(self, history: CurvatureHistory, penalty_change: float) -> None:
        """Adapt curvature that was seen under another penalty, whose Hessian is a known constant."""
        change = self._mean.new_full((len(self._mean) + 1,), self._scaled(penalty_change))
        change[-1] = 0.0
        history.shift(lambda step: step * change)

    def _curvature(self, doubts: Tensor, penalty: float) -> Tensor:
        """Estimate the Hessian's diagonal (C, D + 1), as if features and probabilities were unrelated.

        It accounts for the causes of bad conditioning: components of unlike variance, rare classes, and a penalty far
        above the curvature of the cross-entropy, which does not act on the bias.
        """
        # Where rounding leaves no doubt there is no gradient either; the bound keeps the inverse finite.
        by_class = doubts.unsqueeze(1).clamp_min(torch.finfo(torch.float64).eps)
        return torch.cat([by_class * self._variances + self._scaled(penalty), by_class], dim=1)

    def _scaled(self, penalty: float) -> float:
        return penalty / (self._num_samples * self._scale**2)


def cross_entropy(scores: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return the cross-entropy (N, 1) and its gradient by the scores (N, C), for labels (N, 1).

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
    """Return the number of samples of each class, (C,) int64, all positive.

    Raises:
        InputError: There is only one class, a label is out of range, or a class has no sample.
    """
    if num_classes < 2:
        problem = "is the only class, and a classifier needs two"
        raise InputError("labels", int(labels[0]), problem, "Give samples of at least two classes.")
    lowest, highest = int(labels.min()), int(labels.max())
    if lowest < 0 or highest >= num_classes:
        remedy = "Number the classes from 0."
        raise InputError("labels", f"{lowest} to {highest}", f"must lie in 0 to {num_classes - 1}", remedy)
    counts = torch.bincount(labels, minlength=num_classes)
    if int(counts.min()) == 0:
        empty = torch.nonzero(counts == 0).flatten().tolist()
        remedy = "Give each class at least one training image, or number the classes without gaps."
        raise InputError("labels", f"classes {empty}", "have no training image", remedy)
    return counts


class LogisticProblem(ScaledProblem):
    """The problem with its features, rotated and scaled, in memory.

    Args:
        features: (N, D) floating point, finite.
        labels: (N,) integers in [0, num_classes), each class at least once.
        num_classes: C, at least 2.
        dtype: Precision of the products with the features; see `ScaledProblem`.

    Raises:
        InputError: Features are not finite, labels are out of range or leave a class empty, or the numbers
            of the two differ.
    """

    def __init__(self, features: Tensor, labels: Tensor, num_classes: int, dtype: torch.dtype) -> None:
        check_features("features", features)
        check_labels("labels", labels, features)
        labels = labels.to(features.device, torch.int64)
        frequencies = count_classes(labels, num_classes).to(torch.float64) / len(labels)
        self._labels = labels.unsqueeze(1)
        # Rounded to the rows' precision, so that the same mean is subtracted here and added back later.
        mean = features.mean(dim=0, dtype=torch.float64).to(dtype)
        centred = features.to(dtype) - mean
        scale = math.sqrt(float(centred.square().mean(dtype=torch.float64))) or 1.0
        centred /= scale
        axes = torch.linalg.eigh((centred.T @ centred).to(torch.float64)).eigenvectors
        self._rows = centred @ axes.to(dtype)
        variances = self._rows.square().mean(dim=0, dtype=torch.float64)
        super().__init__(len(labels), frequencies, mean, scale, axes, variances, dtype)

    def evaluate(self, point: Tensor, penalty: float) -> Evaluation:
        """Return the objective and its gradient at a point."""
        weight, scaled_penalty = point[:, :-1], self._scaled(penalty)
        rows_weight, rows_bias = weight.to(self._rows), point[:, -1].to(self._rows)
        losses, residuals = cross_entropy(torch.addmm(rows_bias, self._rows, rows_weight.T), self._labels)
        value = losses.mean(dtype=torch.float64) + scaled_penalty / 2 * weight.square().sum()
        of_loss = (residuals.T @ self._rows).to(point.dtype) / len(self._rows)
        of_bias = residuals.mean(dim=0, dtype=torch.float64)
        gradient = torch.cat([of_loss + scaled_penalty * weight, of_bias.unsqueeze(1)], dim=1)

        def doubts() -> Tensor:
            sizes = residuals.abs()
            return (sizes * (1.0 - sizes)).mean(dim=0, dtype=torch.float64)

        return Evaluation(float(value), gradient, doubts)


Batch = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class FeatureBatches:
    """Labelled features that can be read again and again, in the same order.

    Attributes:
        read: Starts a pass that yields one batch at a time, on the device that does the work: features (n, D)
            floating point and labels (n,) int64.
    """

    read: Callable[[], Iterator[Batch]]

    def select(self, chosen: Tensor) -> FeatureBatches:
        """Return the batches of some of the rows, in their order.

        Args:
            chosen: (N,) boolean, one per row of all batches in their order.
        """

        def read() -> Iterator[Batch]:
            begin = 0
            for features, labels in self.read():
                rows = chosen[begin : begin + len(labels)].to(features.device)
                begin += len(labels)
                if bool(rows.any()):
                    yield features[rows], labels[rows]

        return FeatureBatches(read)

    def labels(self) -> Tensor:
        """Return the labels of all rows, (N,) int64 on the CPU."""
        return torch.cat([labels.cpu() for _, labels in self.read()])


class StreamedProblem(ScaledProblem):
    """The problem with its features in batches.

    Args:
        batches: Batches with at least one row in all; features finite.
        num_classes: C, at least 2; every class has a row.
        dtype: Precision of the products with the features.

    Raises:
        InputError: Features are not finite, or labels are out of range or leave a class empty.
    """

    def __init__(self, batches: FeatureBatches, num_classes: int, dtype: torch.dtype) -> None:
        self._batches = batches
        all_labels, totals = [], []
        for features, labels in batches.read():
            check_features("features", features)
            check_labels("labels", labels, features)
            all_labels.append(labels)
            totals.append(features.sum(dim=0, dtype=torch.float64))
        counts, total = count_classes(torch.cat(all_labels), num_classes), sum(totals[1:], start=totals[0])
        num_samples = int(counts.sum())
        self._rows_mean = (total / num_samples).to(dtype)
        moments = torch.zeros(len(total), len(total), dtype=torch.float64, device=total.device)
        for features, _ in batches.read():
            centred = features.to(dtype) - self._rows_mean
            moments += (centred.T @ centred).to(torch.float64)
        scale = math.sqrt(float(moments.trace()) / (num_samples * len(total))) or 1.0
        values, axes = torch.linalg.eigh(moments)
        # Rounding can leave the smallest a little below 0.
        variances = values.clamp_min(0.0) / (num_samples * scale**2)
        frequencies = counts.to(torch.float64) / num_samples
        super().__init__(num_samples, frequencies, self._rows_mean, scale, axes, variances, dtype)

    def evaluate(self, point: Tensor, penalty: float) -> Evaluation:
        """Return the objective and its gradient at a point, by one pass over the batches."""
        weight, scaled_penalty = point[:, :-1], self._scaled(penalty)
        rows_weight = (weight @ self._axes.T / self._scale).to(self._rows_mean)
        rows_bias = point[:, -1].to(self._rows_mean)
        loss = point.new_zeros(())
        of_rows, of_bias, doubts = torch.zeros_like(weight), point.new_zeros(len(point)), point.new_zeros(len(point))
        for features, labels in self._batches.read():
            centred = features.to(self._dtype) - self._rows_mean
            losses, residuals = cross_entropy(torch.addmm(rows_bias, centred, rows_weight.T), labels.unsqueeze(1))
            loss += losses.sum(dtype=torch.float64)
            of_rows += (residuals.T @ centred).to(torch.float64)
            of_bias += residuals.sum(dim=0, dtype=torch.float64)
            sizes = residuals.abs()
            doubts += (sizes * (1.0 - sizes)).sum(dim=0, dtype=torch.float64)
        value = loss / self._num_samples + scaled_penalty / 2 * weight.square().sum()
        of_loss = of_rows @ self._axes / self._scale / self._num_samples
        of_bias /= self._num_samples
        gradient = torch.cat([of_loss + scaled_penalty * weight, of_bias.unsqueeze(1)], dim=1)
        return Evaluation(float(value), gradient, lambda: doubts / self._num_samples)


Evaluate = Callable[[Tensor], tuple[float, Tensor]]

MAX_ITERATIONS = 1000
"""Limit of L-BFGS steps of a fit."""

# Constants of the Wolfe conditions for quasi-Newton directions (Nocedal and Wright, 2006, section 3.1).
SUFFICIENT_DECREASE = 1e-4
CURVATURE = 0.9
# Ten bisections span three decimal orders of step length; a search that needs more has met rounding error.
MAX_SEARCH_STEPS = 10


@dataclass
class CurvatureHistory:
    """The latest pairs (step, change of gradient), which stand for the inverse Hessian.

    Attributes:
        pairs: The pairs with their inner products, oldest first; the `maxlen` of the queue is the number that is kept.
    """

    pairs: deque[tuple[Tensor, Tensor, float]] = field(default_factory=lambda: deque(maxlen=20))

    def add(self, step: Tensor, change: Tensor) -> None:
        """Keep a pair in the place of the oldest; a pair without positive curvature is left out."""
        curvature = _dot(step, change)
        if curvature > 0.0:
            self.pairs.append((step, change, curvature))

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
