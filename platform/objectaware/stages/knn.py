"""Stage `knn`: how well features separate classes without training a classifier."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from objectaware.evaluate.features import knn_accuracy
from objectaware.model import Positive, PositiveNumber
from objectaware.stages.features import (
    LabelledFeatures,
    TestsConfig,
    compute_device,
    feature_computation,
    known_classes,
    log_accuracies,
    run_on_features,
)
from objectaware.stages.registry import stage
from objectaware.stages.runner import Computation, Context, StageRun


class KnnConfig(TestsConfig):
    """Nearest neighbours: how well features separate classes without training a classifier.

    Attributes:
        train: Labelled images that serve as neighbours.
        tests: Labelled images to be classified, by name.
        num_neighbours: Number of neighbours, k.
        temperature: Temperature τ of the votes, exp(cosine similarity / τ).
    """

    num_neighbours: Positive = 20
    temperature: PositiveNumber = 0.07


@stage("knn", version=2)
def knn(context: Context, config: KnnConfig) -> Computation[KnnConfig]:
    """Classify each test set's images by their nearest neighbours in the training set.

    Returns:
        Values `accuracies` (in per cent, by test set), `coverage` (by test set: which images the accuracy covers and
        which are left out, see `objectaware.evaluate.coverage.Coverage`) and `unreadable` (number of unreadable images
        in all sets).

    Raises:
        InputError: A data set has no labels, no readable image or no class in common with `train`, or `train` shows
            only one class.
    """

    def measure(run: StageRun, config: KnnConfig, found: Mapping[str, LabelledFeatures]) -> Mapping[str, Any]:
        values = run_on_features(measure_knn, config, found)
        log_accuracies(run, config, "knn", values["accuracies"], values["coverage"])
        return values

    return feature_computation(context, config, measure, title="nearest neighbours")


def measure_knn(config: KnnConfig, found: Mapping[str, LabelledFeatures]) -> dict[str, dict[str, Any]]:
    """Return `accuracies`, in per cent, and `coverage`, both by test set."""
    device = compute_device(config)
    known, coverage = known_classes(config, found)
    bank, bank_labels = found["train"].matched(known).load(device)
    accuracies = {}
    for name in config.tests:
        values, labels = found[f"test {name}"].matched(known).load(device)
        is_known = labels >= 0
        accuracies[name] = knn_accuracy(
            bank,
            bank_labels,
            values[is_known],
            labels[is_known],
            num_neighbours=config.num_neighbours,
            temperature=config.temperature,
        )
    return {"accuracies": accuracies, "coverage": coverage}
