"""Stage `knn`: what the features tell without a classifier being trained."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from objectaware.config import KnnConfig
from objectaware.evaluate.knn import knn_accuracy
from objectaware.stages.features import (
    LabelledFeatures,
    check_features,
    compute_device,
    feature_sets,
    input_hashes,
    run_on_features,
)
from objectaware.stages.runner import Context, StageResult, StageRun, run_stage


def run_knn(context: Context, config: KnnConfig, *, title: str | None = None) -> StageResult:
    """Classifies each test set's images by their nearest neighbours in the training set.

    Returns:
        Values `accuracies` (per cent, by test set) and `unreadable` (number of images left out).

    Raises:
        InputError: A data set has no labels or no readable image.
    """
    sets = {"train": config.train, **{f"test {name}": data for name, data in config.tests.items()}}
    inputs = input_hashes(context, config, sets)

    def compute(run: StageRun, config: KnnConfig) -> Mapping[str, Any]:
        found = feature_sets(context, config, sets, inputs)
        tests = {name: found[f"test {name}"] for name in config.tests}
        accuracies = run_on_features(measure_knn, config, found["train"], tests)
        run.tracker.log_table("knn", [{"test set": name, "accuracy": value} for name, value in accuracies.items()])
        run.tracker.log_metrics({f"accuracy.{name}": value for name, value in accuracies.items()})
        return {"accuracies": accuracies, "unreadable": sum(len(one.features.unreadable) for one in found.values())}

    tags = {"dataset": config.train.root}
    check = partial(check_features, sets=sets)
    return run_stage(context, "knn", title or "nearest neighbours", config, inputs, compute, tags=tags, check=check)


def measure_knn(config: KnnConfig, train: LabelledFeatures, tests: Mapping[str, LabelledFeatures]) -> dict[str, float]:
    """Accuracy in per cent by test set."""
    device = compute_device(config)
    bank, bank_labels = train.load()
    bank = bank.to(device)
    accuracies = {}
    for name, test in tests.items():
        values, labels = test.load()
        accuracies[name] = knn_accuracy(
            bank,
            bank_labels,
            values.to(device),
            labels,
            num_neighbours=config.num_neighbours,
            temperature=config.temperature,
        )
    return accuracies
