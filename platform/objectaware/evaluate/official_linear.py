"""The linear evaluation of the official code, kept for its numbers.

It differs from `objectaware.evaluate.linear` in what it minimises and in how far it gets. The penalty weighs the mean
of the squares of all weights, and that of the biases, against the mean cross-entropy:

    mean_i CE_i + w / 2 * (mean(W^2) + mean(b^2)).

Without the term of the biases that is `penalty = w * N / (C * D)` in the sum form, and scikit-learn's inverse penalty
`C * D / (w * N)`.
One classifier and one optimiser, PyTorch's L-BFGS of step length 1 without a line search, go through the values of w
from the smallest up, each from where the one before ended, in float32 on features as they are. Where the features are
badly conditioned, a fit may stop short of its minimum; the classifier that did best on the hold-out is kept as it was
then, and is not fitted again.

Source: official-implementation §2, "Linear eval".
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from objectaware.errors import InputError
from objectaware.evaluate.checks import Array, check_features, check_labels
from objectaware.evaluate.holdout import stratified_holdout
from objectaware.evaluate.linear import LinearResult, accuracy
from objectaware.evaluate.logistic import LogisticModel
from objectaware.evaluate.logistic_base import count_classes

MAX_ITERATIONS = 1000
INITIAL_STD = 0.01


def official_linear_evaluation(
    train_features: Array,
    train_labels: Array,
    *,
    holdout_fraction: float = 0.2,
    holdout_size: int | None = None,
    seed: int = 0,
    num_values: int = 45,
    min_penalty: float = 1e-6,
    max_penalty: float = 1e5,
    num_classes: int | None = None,
) -> LinearResult:
    """Sweeps w with one classifier and keeps it where it does best on the hold-out.

    Args:
        train_features: (N, D) floating point; the work is done in float32 on its device.
        train_labels: (N,) integers from 0.
        holdout_fraction: As of `linear_evaluation`, whose hold-out this one takes, evenly from the classes.
        holdout_size: Number of samples held out, in place of the share.
        seed: Seed of the hold-out and of the initial weights.
        num_values: Number of values of w.
        min_penalty: Smallest w.
        max_penalty: Largest w.
        num_classes: Number of classes; by default one more than the largest label.

    Returns:
        The classifier, its w, the values of w from the smallest up, and the accuracy on the hold-out after each.

    Raises:
        InputError: As `linear_evaluation`, or the optimiser diverged before any classifier was of use.
    """
    features, labels = torch.as_tensor(train_features).float(), torch.as_tensor(train_labels)
    check_features("train_features", features)
    check_labels("train_labels", labels, features)
    classes = int(labels.max()) + 1 if num_classes is None else num_classes
    kept, held = stratified_holdout(labels.cpu().numpy(), fraction=holdout_fraction, size=holdout_size, seed=seed)
    labels = labels.to(features.device, torch.int64)
    count_classes(labels[kept], classes)
    classifier = _initial_classifier(features.shape[1], classes, seed).to(features.device)
    optimizer = torch.optim.LBFGS(classifier.parameters(), max_iter=MAX_ITERATIONS)
    penalties = np.geomspace(min_penalty, max_penalty, num_values)
    accuracies = np.zeros(num_values)
    best, best_model = -1, _model_of(classifier)
    for index, penalty in enumerate(penalties.tolist()):
        _fit(classifier, optimizer, features[kept], labels[kept], penalty)
        model = _model_of(classifier)
        accuracies[index] = accuracy(model, features[held], labels[held])
        if best < 0 or accuracies[index] > accuracies[best]:
            best, best_model = index, model
    if not bool(torch.isfinite(best_model.weight).all()):
        remedy = "Leave compat out: the exact solver has a line search."
        raise InputError("compat", "official", "its optimiser diverged on these features", remedy)
    return LinearResult(best_model, float(penalties[best]), penalties, accuracies)


def _initial_classifier(num_features: int, num_classes: int, seed: int) -> nn.Linear:
    classifier = nn.Linear(num_features, num_classes)
    generator = torch.Generator().manual_seed(seed)
    for parameter in classifier.parameters():
        nn.init.normal_(parameter, std=INITIAL_STD, generator=generator)
    return classifier


def _fit(classifier: nn.Linear, optimizer: torch.optim.LBFGS, features: Tensor, labels: Tensor, penalty: float) -> None:
    def loss() -> float:
        optimizer.zero_grad()
        value = nn.functional.cross_entropy(classifier(features), labels)
        value = value + 0.5 * penalty * sum(parameter.square().mean() for parameter in classifier.parameters())
        value.backward()  # type: ignore[no-untyped-call]
        return value.item()

    optimizer.step(loss)  # type: ignore[no-untyped-call]


def _model_of(classifier: nn.Linear) -> LogisticModel:
    """The classifier as it is at this moment: the change of type copies."""
    weight, bias = classifier.weight.detach().double(), classifier.bias.detach().double()
    return LogisticModel(weight, bias - bias.mean())
