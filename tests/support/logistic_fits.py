"""One fit of the linear classifier."""

from __future__ import annotations

import torch

from objectaware.evaluate.features import Array
from objectaware.evaluate.logistic import LogisticProblem, solution_path
from objectaware.methods.checkpoint import Classifier


def fit_logistic(
    features: Array,
    labels: Array,
    *,
    num_classes: int,
    penalty: float,
    initial: Classifier | None = None,
    tolerance: float = 1e-3,
) -> Classifier:
    """Fit the classifier for one penalty, in float64."""
    problem = LogisticProblem(torch.as_tensor(features), torch.as_tensor(labels), num_classes, torch.float64)
    return next(solution_path(problem, [penalty], initial=initial, tolerance=tolerance))
