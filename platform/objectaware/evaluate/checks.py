"""Checks of the features and labels that evaluations take."""

from __future__ import annotations

from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from objectaware.errors import InputError

Array = Tensor | NDArray[Any]
"""A tensor on any device, or a NumPy array."""


def check_features(field: str, features: Tensor) -> None:
    """Checks that features are a finite floating-point matrix (N, D) with a row at least.

    Args:
        field: What the user calls them.
        features: To be checked.

    Raises:
        InputError: They are not.
    """
    if features.ndim != 2 or len(features) == 0 or not features.is_floating_point():
        given = f"{features.dtype} of shape {tuple(features.shape)}"
        problem = "must be a floating-point matrix with a row for each image, and one at least"
        raise InputError(field, given, problem, "Give features of shape (N, D).")
    num_bad = int((~torch.isfinite(features).all(dim=1)).sum())
    if num_bad:
        remedy = "Check the checkpoint: a run that diverged gives such features."
        raise InputError(field, f"{num_bad} of {len(features)} rows", "hold NaN or infinity", remedy)


def check_labels(field: str, labels: Tensor, features: Tensor) -> None:
    """Checks that labels are integers (N,), one for each row of `features`.

    Args:
        field: What the user calls them.
        labels: To be checked.
        features: (N, D).

    Raises:
        InputError: They are not.
    """
    if labels.shape != features.shape[:1] or labels.is_floating_point() or labels.is_complex():
        given = f"{labels.dtype} of shape {tuple(labels.shape)}"
        problem = f"must be integers, one for each of {len(features)} rows of features"
        raise InputError(field, given, problem, "Give the class number of each image.")
