"""Linear evaluation's work on features, as a function that runs anywhere on the cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from objectaware.config import LinearConfig
from objectaware.evaluate.checks import check_features
from objectaware.evaluate.linear import LinearResult, linear_evaluation, streamed_linear_evaluation
from objectaware.evaluate.logistic import LogisticModel
from objectaware.evaluate.logistic_stream import Batch, FeatureBatches
from objectaware.evaluate.official_linear import official_linear_evaluation
from objectaware.methods.classifier import Classifier, classifier_file
from objectaware.stages.features import LabelledFeatures, compute_device

# Of one value of the features: itself and, in the last fit, its copy without the hold-out in 32 bits and the centred
# and the rotated one in 64; of one sample and class: scores, margins and residuals in 64.
_BYTES_A_VALUE = 24


def solver_bytes(num_samples: int, num_features: int, num_classes: int) -> int:
    """Memory that fitting the classifier to features in memory takes at its peak."""
    return _BYTES_A_VALUE * num_samples * (num_features + num_classes)


def measure_linear(
    config: LinearConfig, train: LabelledFeatures, tests: Mapping[str, LabelledFeatures], streamed: bool = False
) -> dict[str, Any]:
    """Fits and measures the linear classifier.

    Args:
        config: How.
        train: What it is fitted to.
        tests: What it is measured on, by name.
        streamed: Whether the training features stay in storage, to be passed over a part at a time.

    Returns:
        Values of `run_linear`, with the classifier's file in `classifier`.
    """
    device = compute_device(config)
    # A small data set lacks some classes of a large one's list; the classifier knows those that it was shown.
    known = np.unique(train.row_labels())
    result = _fit(config, train, known, device, streamed)
    known_names = [train.class_names[label] for label in known.tolist()]
    accuracies: dict[str, float] = {}
    class_accuracies: dict[str, dict[str, float]] = {}
    num_unknown: dict[str, int] = {}
    for name, test in tests.items():
        places = _among(known, test.row_labels())
        right = _predict(result.model, test, device) == places
        accuracies[name] = 100.0 * float(right.mean())
        class_accuracies[name] = {
            label: 100.0 * float(right[places == place].mean())
            for place, label in enumerate(known_names)
            if (places == place).any()
        }
        num_unknown[name] = int((places == len(known)).sum())
    return {
        "accuracies": accuracies,
        "class_accuracies": class_accuracies,
        "penalty": float(result.penalty),
        "holdout_accuracy": float(result.holdout_accuracies.max()),
        "unreadable": sum(len(one.features.unreadable) for one in (train, *tests.values())),
        "num_unknown": num_unknown,
        "classifier": classifier_file(Classifier(result.model.weight.float(), result.model.bias.float())),
    }


def _fit(
    config: LinearConfig, train: LabelledFeatures, known: NDArray[np.int64], device: torch.device, streamed: bool
) -> LinearResult:
    holdout: dict[str, Any] = {
        "holdout_fraction": config.holdout_fraction,
        "holdout_size": config.holdout_size,
        "seed": config.seed,
        "num_values": config.num_penalties,
    }
    if streamed:
        assert config.compat is None, "the official code's solver has no streaming"

        def read() -> Iterator[Batch]:
            for values, indices in train.features.parts():
                labels = torch.from_numpy(_among(known, train.labels[indices]))
                yield values.to(device), labels.to(device)

        return streamed_linear_evaluation(FeatureBatches(read), refit=config.refit, **holdout)
    values, labels = train.load()
    features, places = values.to(device), torch.from_numpy(_among(known, labels.numpy()))
    if config.compat == "official":
        return official_linear_evaluation(features, places, **holdout)
    return linear_evaluation(features, places, refit=config.refit, **holdout)


def _predict(model: LogisticModel, test: LabelledFeatures, device: torch.device) -> NDArray[np.int64]:
    """The classes predicted for the rows of a test set, (M,)."""
    predicted = []
    for values, _ in test.features.parts():
        check_features("features", values)
        predicted.append(model.predict(values.to(device)).cpu().numpy())
    return np.concatenate(predicted)


def _among(known: NDArray[np.int64], labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Places of labels in the sorted `known`; its length for one that is not there, which no prediction meets."""
    places = np.searchsorted(known, labels)
    is_known = known[np.minimum(places, len(known) - 1)] == labels
    return np.where(is_known, places, len(known)).astype(np.int64)
