"""Stage `linear`: the quality of a network's features, measured by a linear classifier."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, model_validator

from objectaware.config import DataConfig
from objectaware.errors import InputError
from objectaware.evaluate.features import check_features
from objectaware.evaluate.linear import LinearResult, bg_gap, linear_evaluation
from objectaware.evaluate.logistic import Batch, FeatureBatches
from objectaware.methods.checkpoint import CLASSIFIER_NAME, Classifier, classifier_file
from objectaware.model import Count, Positive, filled
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

_MIB = 2**20
# Bytes per value of the features: itself and, in the last fit, its copy without the hold-out (32 bits each) and the
# centred and the rotated copy (64 bits each). Bytes per sample and class: scores, margins and residuals (64 bits each).
_BYTES_A_VALUE = 24
_BYTES_A_VALIDATION_VALUE = 4


class LinearConfig(TestsConfig):
    """Linear evaluation of a checkpoint.

    Attributes:
        train: Labelled images that the classifier is fitted to.
        tests: Labelled images that it is measured on, by name.
        validation: Labelled images that choose the penalty, in place of a hold-out. The classifier is then fitted to
            all of `train`, and never to these.
        holdout_fraction: Share of the training images that is held out to choose the penalty.
        holdout_size: Number of training images that are held out, in place of the share. docs/recipes.md lists the
            paper's numbers.
        refit: Whether the final classifier is fitted to all training images (SimCLR's protocol) or without the
            held-out ones (the official code's protocol, so it must be false with `compat`). False with `validation`,
            which is not part of `train`.
        num_penalties: Number of values of the penalty between 1e-6 and 1e5.
        compat: `official` selects the published code's solver and penalty instead of the exact minimiser, to reproduce
            the published numbers.
        seed: Seed of the hold-out and, with `compat`, of the initial weights.
    """

    validation: DataConfig | None = None
    holdout_fraction: Annotated[float, Field(gt=0, lt=1)] = 0.2
    holdout_size: Positive | None = None
    refit: bool = True
    num_penalties: Positive = 45
    compat: Literal["official"] | None = None
    seed: Count = 0

    @model_validator(mode="before")
    @classmethod
    def _fill_refit(cls, values: object) -> object:
        """Fill in the default that depends on another field, so that a stored recipe is complete."""
        if isinstance(values, dict) and (values.get("compat") == "official" or values.get("validation") is not None):
            return filled(values, {"refit": False})
        return values

    @model_validator(mode="after")
    def _fields_apply(self) -> Self:
        if self.holdout_size is not None and "holdout_fraction" in self.model_fields_set:
            raise ValueError("holdout_size and holdout_fraction say the same; leave one of them out")
        if self.compat == "official" and self.refit:
            raise ValueError("refit has no meaning with compat = official, which does not refit; leave it out")
        if self.validation is not None:
            self._validation_applies()
        return self

    def _validation_applies(self) -> None:
        """Refuse what contradicts a validation set."""
        for name in ("holdout_size", "holdout_fraction"):
            if name in self.model_fields_set and getattr(self, name) is not None:
                raise ValueError(f"validation and {name} both choose the penalty; leave one of them out")
        if self.refit:
            raise ValueError("refit has no meaning with validation, which holds nothing out of train; leave it out")
        if "validation" in self.tests:
            raise ValueError("tests names a set validation, and so is the one that chooses the penalty; rename it")

    def data_sets(self) -> dict[str, DataConfig]:
        """Return `train`, `test NAME` for each test set, and `validation` if there is one."""
        own = {} if self.validation is None else {"validation": self.validation}
        return {**super().data_sets(), **own}


@stage("linear", version=6, outcome="classifier", outputs=(CLASSIFIER_NAME,))
def linear(context: Context, config: LinearConfig) -> Computation[LinearConfig]:
    """Fit a linear classifier to a checkpoint's features and measure it on each test set.

    The features are computed once per checkpoint and data set, and read by every evaluation of them. If the solver
    would take more memory than `config.execution.max_memory_mib`, it streams them from storage.

    Returns:
        Values `accuracies` (in per cent, by test set; with `bg_gap` if both of its variants are among them),
        `class_accuracies` (by test set and class name, for classes with test images), `coverage` (by test set: which
        images the accuracy covers and which are left out, see `objectaware.evaluate.coverage.Coverage`; with
        `validation` that of its images, too), `penalty`,
        `holdout_accuracy`, `unreadable` (number of unreadable images in all sets), `streamed` (whether the solver
        streamed) and `classifier` (folder of the classifier's file; its rows are the classes that have training
        images, in the order of their numbers).

    Raises:
        InputError: A data set has no labels, no readable image or no class in common with `train`, `train` shows only
            one class, or `compat` needs more memory than there is.
    """

    def measure(run: StageRun, config: LinearConfig, found: Mapping[str, LabelledFeatures]) -> Mapping[str, Any]:
        streamed = _has_to_stream(run, config, found)
        values = run_on_features(measure_linear, config, found, streamed)
        run.folder.write_bytes(CLASSIFIER_NAME, values["classifier"])
        accuracies = values["accuracies"]
        if {"mixed_same", "mixed_rand"} <= accuracies.keys():
            accuracies["bg_gap"] = bg_gap(accuracies)
        log_accuracies(run, config, "linear", accuracies, values["coverage"])
        by_class = [
            {"test set": name, "class": label, "accuracy": value}
            for name, cells in values["class_accuracies"].items()
            for label, value in cells.items()
        ]
        run.tracker.log_table("linear by class", by_class)
        run.tracker.log_metrics({"holdout_accuracy": values["holdout_accuracy"]}, model=config.checkpoint)
        return {**values, "classifier": run.folder.uri, "streamed": streamed}

    return feature_computation(context, config, measure, title="linear evaluation")


def _has_to_stream(run: StageRun, config: LinearConfig, found: Mapping[str, LabelledFeatures]) -> bool:
    """Return whether the solver must leave features in storage, and report it if so."""
    train, validation = found["train"], found.get("validation")
    num_rows, num_columns = train.features.num_rows, train.features.num_columns()
    num_classes = len(np.unique(train.row_labels()))
    needed = _BYTES_A_VALUE * num_rows * (num_columns + num_classes)  # peak memory of fitting to features in memory
    if validation is not None:
        needed += _BYTES_A_VALIDATION_VALUE * validation.features.num_rows * num_columns
    if needed <= config.execution.max_memory_mib * _MIB:
        return False
    problem = f"{num_rows} × {num_columns} features would take {math.ceil(needed / _MIB)} MiB in the solver"
    if config.compat is not None:
        remedy = "Raise it where the machine has that, or leave compat out: the exact solver can stream."
        raise InputError("execution.max_memory_mib", config.execution.max_memory_mib, f"is too low: {problem}", remedy)
    limit = f"max_memory_mib ({config.execution.max_memory_mib})"
    run.progress.line(f"  {problem}, more than {limit}: streamed from storage")
    return True


def measure_linear(config: LinearConfig, found: Mapping[str, LabelledFeatures], streamed: bool) -> dict[str, Any]:
    """Fit and measure the linear classifier.

    Args:
        config: How to fit it.
        found: Features by name: `train`, that it is fitted to, `test NAME`, that it is measured on, and `validation` if
            the configuration has one.
        streamed: Whether the features of both stay in storage, and are read one part at a time.

    Returns:
        Values of `linear` that depend on the features alone, with the classifier's file in `classifier`.
    """
    device = compute_device(config)
    known, coverage = known_classes(config, found)
    validation = found.get("validation")
    if validation is not None:
        coverage["validation"] = validation.coverage("validation", known).values()
        validation = validation.matched(known)
    result = _fit(config, found["train"].matched(known), validation, device, streamed)
    accuracies: dict[str, float] = {}
    class_accuracies: dict[str, dict[str, float]] = {}
    for name in config.tests:
        matched = found[f"test {name}"].matched(known)
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
        "coverage": coverage,
        "penalty": float(result.penalty),
        "holdout_accuracy": float(result.holdout_accuracies.max()),
        "classifier": classifier_file(result.model),
    }


def _fit(
    config: LinearConfig,
    train: LabelledFeatures,
    validation: LabelledFeatures | None,
    device: torch.device,
    streamed: bool,
) -> LinearResult:
    def batches(labelled: LabelledFeatures) -> FeatureBatches:
        def read() -> Iterator[Batch]:
            for values, indices in labelled.features.parts():
                labels = torch.from_numpy(labelled.labels[indices])
                known = labels >= 0
                if bool(known.any()):
                    yield values[known].to(device), labels[known].to(device)

        return FeatureBatches(read)

    options: dict[str, Any] = {
        "validation": None if validation is None else batches(validation),
        "holdout_fraction": config.holdout_fraction,
        "holdout_size": config.holdout_size,
        "seed": config.seed,
        "num_values": config.num_penalties,
        "refit": config.refit,
        "compat": config.compat,
    }
    if streamed:
        return linear_evaluation(batches(train), **options)
    features, labels = train.load(device)
    return linear_evaluation(features, labels, **options)


def _predict(model: Classifier, test: LabelledFeatures, device: torch.device) -> NDArray[np.int64]:
    """Return the predicted class of each row of a test set, (M,)."""
    predicted = []
    for values, _ in test.features.parts():
        check_features("features", values)
        predicted.append(model.predict(values.to(device)).cpu().numpy())
    return np.concatenate(predicted)
