"""Logistic regression on features that do not fit in memory: the same objective, one pass over batches a step.

The minimiser is that of `objectaware.evaluate.logistic_problem`. Where that one keeps the features rotated to their
principal axes, here the weights are turned instead, for each pass; the rounding differs, the objective does not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from objectaware.evaluate.checks import check_features, check_labels
from objectaware.evaluate.logistic_base import Evaluation, Geometry, ScaledProblem, count_classes, cross_entropy

Batch = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class FeatureBatches:
    """Labelled features that are read anew, in the same order, as often as they are asked for.

    Attributes:
        read: Begins a pass: features (n, D) floating point and labels (n,) int64, a batch at a time, on the device
            where the work shall be done.
    """

    read: Callable[[], Iterator[Batch]]

    def select(self, chosen: Tensor) -> FeatureBatches:
        """Some of the rows, in their order.

        Args:
            chosen: (N,) boolean, by row of all batches one after the other.
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
        """The labels of all rows, (N,) int64 on the CPU."""
        return torch.cat([labels.cpu() for _, labels in self.read()])


class StreamedProblem(ScaledProblem):
    """The problem with its features in batches.

    Args:
        batches: Of at least one row; features finite.
        num_classes: C, at least 2; every class has a row.
        dtype: Precision of the products with the features.

    Raises:
        InputError: Features are not finite, or labels are out of range or leave a class empty.
    """

    def __init__(self, batches: FeatureBatches, num_classes: int, dtype: torch.dtype) -> None:
        self._batches = batches
        counts, total = _totals(batches, num_classes)
        num_samples = int(counts.sum())
        self._rows_mean = (total / num_samples).to(dtype)
        moments = torch.zeros(len(total), len(total), dtype=torch.float64, device=total.device)
        for features, _ in batches.read():
            centred = features.to(dtype) - self._rows_mean
            moments += (centred.T @ centred).to(torch.float64)
        scale = math.sqrt(float(moments.trace()) / (num_samples * len(total))) or 1.0
        values, axes = torch.linalg.eigh(moments)
        # Rounding can leave the least of them a little below 0.
        variances = values.clamp_min(0.0) / (num_samples * scale**2)
        mean = self._rows_mean.to(torch.float64)
        frequencies = counts.to(torch.float64) / num_samples
        super().__init__(Geometry(num_samples, frequencies, mean, scale, axes, variances, dtype))

    def evaluate(self, point: Tensor, penalty: float) -> Evaluation:
        """Returns the objective and its gradient at a point, by one pass over the batches."""
        geometry, weight, scaled_penalty = self._geometry, point[:, :-1], self._scaled(penalty)
        rows_weight = (weight @ geometry.axes.T / geometry.scale).to(self._rows_mean)
        rows_bias = point[:, -1].to(self._rows_mean)
        loss = point.new_zeros(())
        of_rows, of_bias, doubts = torch.zeros_like(weight), point.new_zeros(len(point)), point.new_zeros(len(point))
        for features, labels in self._batches.read():
            centred = features.to(geometry.dtype) - self._rows_mean
            losses, residuals = cross_entropy(torch.addmm(rows_bias, centred, rows_weight.T), labels.unsqueeze(1))
            loss += losses.sum(dtype=torch.float64)
            of_rows += (residuals.T @ centred).to(torch.float64)
            of_bias += residuals.sum(dim=0, dtype=torch.float64)
            sizes = residuals.abs()
            doubts += (sizes * (1.0 - sizes)).sum(dim=0, dtype=torch.float64)
        value = loss / geometry.num_samples + scaled_penalty / 2 * weight.square().sum()
        of_loss = of_rows @ geometry.axes / geometry.scale / geometry.num_samples
        of_bias /= geometry.num_samples
        gradient = torch.cat([of_loss + scaled_penalty * weight, of_bias.unsqueeze(1)], dim=1)
        return Evaluation(float(value), gradient, lambda: doubts / geometry.num_samples)


def _totals(batches: FeatureBatches, num_classes: int) -> tuple[Tensor, Tensor]:
    """Number of rows of each class (C,), and the sum of the features (D,) float64, after checks of both."""
    all_labels, total = [], None
    for features, labels in batches.read():
        check_features("features", features)
        check_labels("labels", labels, features)
        all_labels.append(labels)
        of_batch = features.sum(dim=0, dtype=torch.float64)
        total = of_batch if total is None else total + of_batch
    assert total is not None, "there are no batches"
    return count_classes(torch.cat(all_labels), num_classes), total
