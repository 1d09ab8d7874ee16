"""Error of a classifier that was shown a few images of each class, on features that stay fixed."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from objectaware.errors import InputError
from objectaware.evaluate.checks import Array, check_features, check_labels
from objectaware.evaluate.logistic import fit_logistic

PENALTY = 1.0
"""Weight of the classifier's squared norm, in the sum form of `objectaware.evaluate.logistic`."""


def few_shot_error(features: Array, labels: Array, *, num_shots: int, seed: int) -> float:
    """Fits a classifier to a few images of each class and measures it on all others.

    The classifier is logistic regression with a fixed penalty, as there is no hold-out that could choose one. With one
    shot of each of two classes the penalty does not matter: by symmetry the boundary is the plane half-way between the
    two, and the classifier that of the nearest shot by the ℓ2 distance.

    Args:
        features: (N, D) floating point.
        labels: (N,) integers from 0, at least two classes without a gap.
        num_shots: Images of each class that are shown, at least 1.
        seed: Seed of the draw.

    Returns:
        Share of the other images that are classified wrongly, in per cent; each image counts the same.

    Raises:
        InputError: Features are not finite, labels do not fit, or a class has no image beside its shots.
    """
    rows, classes = torch.as_tensor(features), torch.as_tensor(labels)
    check_features("features", rows)
    check_labels("labels", classes, rows)
    truth = classes.cpu().numpy()
    shown = draw_shots(truth, num_shots=num_shots, seed=seed)
    rest = np.setdiff1d(np.arange(len(truth)), shown)
    model = fit_logistic(
        rows[shown].double(), classes[shown], num_classes=int(truth.max()) + 1, penalty=PENALTY, tolerance=1e-6
    )
    predicted = model.predict(rows[rest].double()).cpu().numpy()
    return 100.0 * float((predicted != truth[rest]).mean())


def draw_shots(labels: NDArray[np.integer], *, num_shots: int, seed: int) -> NDArray[np.int64]:
    """Draws images of each class, without replacement.

    Returns:
        Sorted indices, `num_shots` of each class.

    Raises:
        InputError: A class has no image left beside them.
    """
    generator = np.random.default_rng(seed)
    shown = []
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        if len(members) <= num_shots:
            problem = f"leaves no image to classify of a class that has {len(members)}"
            raise InputError("num_shots", num_shots, problem, "Lower it, or give more images.")
        shown.append(generator.permutation(members)[:num_shots])
    return np.sort(np.concatenate(shown))
