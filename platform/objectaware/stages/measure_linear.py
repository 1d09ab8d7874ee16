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
    known = train.shown_classes("train")
    coverage = {name: test.coverage(f"test {name}", known) for name, test in tests.items()}
    result = _fit(config, train.matched(known), device, streamed)
    accuracies: dict[str, float] = {}
    class_accuracies: dict[str, dict[str, float]] = {}
    for name, test in tests.items():
        matched = test.matched(known)
        places = matched.row_labels()
        right = _predict(result.model, matched, device) == places
        accuracies[name] = 100.0 * float(right[places >= 0].mean())
        class_accuracies[name] = {
            label: 100.0 * float(right[places == place].mean())
            for place, label in enumerate(known)
            if (places == place).any()
        }
    return {
        "accuracies": accuracies,
        "class_accuracies": class_accuracies,
        "coverage": {name: one.values() for name, one in coverage.items()},
        "penalty": float(result.penalty),
        "holdout_accuracy": float(result.holdout_accuracies.max()),
        "unreadable": sum(len(one.features.unreadable) for one in (train, *tests.values())),
        "classifier": classifier_file(Classifier(result.model.weight.float(), result.model.bias.float())),
    }


def _fit(config: LinearConfig, train: LabelledFeatures, device: torch.device, streamed: bool) -> LinearResult:
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
                yield values.to(device), torch.from_numpy(train.labels[indices]).to(device)

        return streamed_linear_evaluation(FeatureBatches(read), refit=config.refit, **holdout)
    values, labels = train.load()
    features = values.to(device)
    if config.compat == "official":
        return official_linear_evaluation(features, labels, **holdout)
    return linear_evaluation(features, labels, refit=config.refit, **holdout)


def _predict(model: LogisticModel, test: LabelledFeatures, device: torch.device) -> NDArray[np.int64]:
    """The classes predicted for the rows of a test set, (M,)."""
    predicted = []
    for values, _ in test.features.parts():
        check_features("features", values)
        predicted.append(model.predict(values.to(device)).cpu().numpy())
    return np.concatenate(predicted)
