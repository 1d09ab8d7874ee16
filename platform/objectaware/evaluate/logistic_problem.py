"""The objective of logistic regression on features in memory, its gradient and its solution."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from objectaware.evaluate.checks import check_features, check_labels
from objectaware.evaluate.logistic_base import Evaluation, Geometry, ScaledProblem, count_classes, cross_entropy


class LogisticProblem(ScaledProblem):
    """The problem with its features, rotated and scaled, in memory.

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
        frequencies = count_classes(labels, num_classes).to(torch.float64) / len(labels)
        self._labels = labels.unsqueeze(1)
        # The mean as the rows' precision has it, so that what is subtracted and what is added back agree.
        mean = features.mean(dim=0, dtype=torch.float64).to(dtype)
        centred = features.to(dtype) - mean
        scale = math.sqrt(float(centred.square().mean(dtype=torch.float64))) or 1.0
        centred /= scale
        axes = torch.linalg.eigh((centred.T @ centred).to(torch.float64)).eigenvectors
        self._rows = centred @ axes.to(dtype)
        variances = self._rows.square().mean(dim=0, dtype=torch.float64)
        super().__init__(Geometry(len(labels), frequencies, mean.to(torch.float64), scale, axes, variances, dtype))

    def evaluate(self, point: Tensor, penalty: float) -> Evaluation:
        """Returns the objective and its gradient at a point."""
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
