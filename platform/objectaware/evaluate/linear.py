"""Linear evaluation: accuracy of a linear classifier on features that stay fixed.

Follows the paper's appendix, which follows SimCLR: multinomial logistic regression whose L2 penalty is chosen
among 45 logarithmically spaced values from 1e-6 to 1e5 on a held-out part of the training split. The penalty
has the sum form of `objectaware.evaluate.logistic`, sum_i CE_i + penalty / 2 * ||W||^2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from objectaware.evaluate.checks import Array, check_features, check_labels
from objectaware.evaluate.holdout import stratified_holdout
from objectaware.evaluate.logistic import LogisticModel, fit_logistic, logistic_path, solution_path
from objectaware.evaluate.logistic_stream import FeatureBatches, StreamedProblem

# Relative error of the weights along the path, where models are compared by their accuracy only.
PATH_TOLERANCE = 3e-3


@dataclass(frozen=True)
class LinearResult:
    """What a linear evaluation chose.

    Attributes:
        model: The classifier to test, for `penalty`.
        penalty: The value with the best hold-out accuracy; among equals the first.
        penalties: (num_values,) float64, in the order in which they were tried: from the largest down, but for
            `objectaware.evaluate.official_linear`.
        holdout_accuracies: (num_values,) float64, per cent, in the order of `penalties`.
    """

    model: LogisticModel
    penalty: float
    penalties: NDArray[np.float64]
    holdout_accuracies: NDArray[np.float64]


def linear_evaluation(
    train_features: Array,
    train_labels: Array,
    *,
    holdout_fraction: float = 0.2,
    holdout_size: int | None = None,
    seed: int = 0,
    num_values: int = 45,
    min_penalty: float = 1e-6,
    max_penalty: float = 1e5,
    refit: bool = True,
    num_classes: int | None = None,
) -> LinearResult:
    """Chooses the penalty on a hold-out and fits the classifier with it.

    Args:
        train_features: (N, D) floating point, tensor (on any device, where the work is then done) or array.
        train_labels: (N,) integers from 0.
        holdout_fraction: Share of each class that is held out, in (0, 1), rounded to whole samples; every
            class keeps a sample at least to train on.
        holdout_size: Number of samples held out, in place of the share; `PAPER_HOLDOUT_SIZES` of
            `objectaware.evaluate.holdout` has the paper's.
        seed: Seed of the hold-out's draw.
        num_values: Number of penalties.
        min_penalty: Smallest penalty, positive.
        max_penalty: Largest penalty.
        refit: Whether the final classifier is fitted on all of the training split (the default, as SimCLR
            does) or on the part that was not held out (as the official code does).
        num_classes: Number of classes; by default one more than the largest label.

    Returns:
        The classifier, its penalty, and the accuracy on the hold-out along the path.

    Raises:
        InputError: Features are not finite, labels are out of range, a class has no sample, or no sample can
            be held out.
    """
    features, labels = torch.as_tensor(train_features), torch.as_tensor(train_labels)
    check_features("train_features", features)
    check_labels("train_labels", labels, features)
    classes = int(labels.max()) + 1 if num_classes is None else num_classes
    kept, held = stratified_holdout(labels.cpu().numpy(), fraction=holdout_fraction, size=holdout_size, seed=seed)
    penalties = np.geomspace(max_penalty, min_penalty, num_values)
    path = logistic_path(
        features[kept],
        labels[kept],
        num_classes=classes,
        penalties=penalties.tolist(),
        tolerance=PATH_TOLERANCE,
        dtype=_path_dtype(features),
    )
    held_features, held_labels = features[held], labels[held]
    best, best_model, accuracies = _best_of(path, lambda model: accuracy(model, held_features, held_labels))
    rows = slice(None) if refit else kept
    penalty = float(penalties[best])
    final = fit_logistic(features[rows], labels[rows], num_classes=classes, penalty=penalty, initial=best_model)
    return LinearResult(final, penalty, penalties, accuracies)


def streamed_linear_evaluation(
    batches: FeatureBatches,
    *,
    holdout_fraction: float = 0.2,
    holdout_size: int | None = None,
    seed: int = 0,
    num_values: int = 45,
    min_penalty: float = 1e-6,
    max_penalty: float = 1e5,
    refit: bool = True,
    num_classes: int | None = None,
) -> LinearResult:
    """`linear_evaluation` on features that do not fit in memory: the same choices and minimisers, but for rounding.

    Each step of a search is a pass over the batches; the memory taken is that of one batch, whatever their number.

    Args:
        batches: The training split: features, and labels from 0.
        holdout_fraction: As of `linear_evaluation`.
        holdout_size: As of `linear_evaluation`.
        seed: Seed of the hold-out's draw, which is the same for the same labels.
        num_values: Number of penalties.
        min_penalty: Smallest penalty, positive.
        max_penalty: Largest penalty.
        refit: As of `linear_evaluation`.
        num_classes: Number of classes; by default one more than the largest label.

    Returns:
        As `linear_evaluation`.

    Raises:
        InputError: As `linear_evaluation`.
    """
    labels = batches.labels()
    classes = int(labels.max()) + 1 if num_classes is None else num_classes
    _, held = stratified_holdout(labels.numpy(), fraction=holdout_fraction, size=holdout_size, seed=seed)
    is_held = torch.zeros(len(labels), dtype=torch.bool)
    is_held[held] = True
    kept_batches, held_batches = batches.select(~is_held), batches.select(is_held)
    penalties = np.geomspace(max_penalty, min_penalty, num_values)
    dtype = _path_dtype(next(iter(batches.read()))[0])
    problem = StreamedProblem(kept_batches, classes, dtype)
    path = solution_path(problem, penalties.tolist(), tolerance=PATH_TOLERANCE)
    best, best_model, accuracies = _best_of(path, lambda model: _streamed_accuracy(model, held_batches))
    penalty = float(penalties[best])
    exact = StreamedProblem(batches if refit else kept_batches, classes, torch.float64)
    return LinearResult(next(solution_path(exact, [penalty], initial=best_model)), penalty, penalties, accuracies)


def _path_dtype(features: Tensor) -> torch.dtype:
    """Models along the path are compared by their accuracy only; float32 is twice as fast."""
    return torch.float64 if features.dtype == torch.float64 else torch.float32


def _best_of(
    path: Iterable[LogisticModel], holdout_accuracy: Callable[[LogisticModel], float]
) -> tuple[int, LogisticModel, NDArray[np.float64]]:
    """The first of the best models with its place, and the accuracies of all."""
    accuracies: list[float] = []
    best: tuple[int, LogisticModel] | None = None
    for index, model in enumerate(path):
        accuracies.append(holdout_accuracy(model))
        if best is None or accuracies[index] > accuracies[best[0]]:
            best = index, model
    assert best is not None, "there is no penalty"
    return *best, np.array(accuracies)


def _streamed_accuracy(model: LogisticModel, batches: FeatureBatches) -> float:
    right = [_is_right(model, features, labels) for features, labels in batches.read()]
    return 100.0 * float(torch.cat(right).to(torch.float64).mean())


def accuracy(model: LogisticModel, features: Array, labels: Array) -> float:
    """Returns the share of right predictions in per cent.

    Args:
        model: The classifier.
        features: (N, D) floating point.
        labels: (N,) integers; a label that is no class of the model counts as an error.

    Raises:
        InputError: Features are empty or not finite, or labels do not fit them.
    """
    return 100.0 * float(_is_right(model, features, labels).to(torch.float64).mean())


def classwise_accuracy(model: LogisticModel, features: Array, labels: Array) -> NDArray[np.float64]:
    """Returns the accuracy in per cent of each class, (C,), with NaN for a class without samples.

    Args:
        model: The classifier.
        features: (N, D) floating point.
        labels: (N,) integers.

    Raises:
        InputError: As for `accuracy`.
    """
    right = _is_right(model, features, labels).cpu().numpy()
    truth = torch.as_tensor(labels).cpu().numpy()
    of_class = [right[truth == label] for label in range(len(model.bias))]
    return np.array([100.0 * hits.mean() if hits.size else np.nan for hits in of_class])


def _is_right(model: LogisticModel, features: Array, labels: Array) -> Tensor:
    rows, truth = torch.as_tensor(features), torch.as_tensor(labels)
    check_features("features", rows)
    check_labels("labels", truth, rows)
    return model.predict(rows) == truth.to(rows.device)
