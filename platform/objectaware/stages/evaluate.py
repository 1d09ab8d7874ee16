"""Stages `linear` and `localization`: what a network has learnt, and how well it finds the objects."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from objectaware.config import DataConfig, LinearConfig, LocalizationConfig
from objectaware.data.dataset import Dataset
from objectaware.distributed.task import run_tasks
from objectaware.errors import InputError
from objectaware.evaluate.background import bg_gap
from objectaware.evaluate.localization import box_count_histogram
from objectaware.evaluate.mask_scores import MEASURES
from objectaware.methods.classifier import CLASSIFIER_NAME
from objectaware.stages.features import (
    LabelledFeatures,
    check_features,
    feature_sets,
    input_hashes,
    log_accuracies,
    run_on_features,
)
from objectaware.stages.identity import masks_hash
from objectaware.stages.measure_linear import measure_linear, solver_bytes
from objectaware.stages.measure_masks import measure
from objectaware.stages.runner import Context, StageResult, StageRun, run_stage
from objectaware.tracking.panels import box_histogram

_MIB = 2**20
_NUM_MEASURED_AT_ONCE = 2  # a process of PyTorch each, where a table may have a dozen rows


def run_linear(context: Context, config: LinearConfig, *, title: str | None = None) -> StageResult:
    """Fits a linear classifier to a checkpoint's features and measures it on each test set.

    The features are computed once for a checkpoint and a data set, and read by every evaluation of them. Where the
    solver would take more memory than `config.execution.max_memory_mib`, it streams them from storage.

    Returns:
        Values `accuracies` (per cent, by test set; with `bg_gap` where both of its variants are among them),
        `class_accuracies` (by test set and name of the class, for those that have test images), `coverage` (by test
        set, the images that the accuracy is over and those left out, see `objectaware.evaluate.coverage.Coverage`),
        `penalty`, `holdout_accuracy`, `unreadable` (number of images of all sets left out), `streamed` (whether the
        solver streamed) and `classifier` (folder of the classifier's file; its rows are the classes that have training
        images, in the order of their numbers).

    Raises:
        InputError: A data set has no labels, no readable image or no class in common with `train`, `train` shows one
            class alone, or `compat` needs more memory than there is.
    """
    sets = labelled_sets(config)
    inputs = input_hashes(context, config, sets)

    def compute(run: StageRun, config: LinearConfig) -> Mapping[str, Any]:
        found = feature_sets(context, config, sets, inputs)
        tests = {name: found[f"test {name}"] for name in config.tests}
        streamed = _has_to_stream(run, config, found["train"])
        values = run_on_features(measure_linear, config, found["train"], tests, streamed)
        run.folder.write_bytes(CLASSIFIER_NAME, values["classifier"])
        values |= {"classifier": run.folder.uri, "streamed": streamed}
        accuracies = values["accuracies"]
        if {"mixed_same", "mixed_rand"} <= accuracies.keys():
            accuracies["bg_gap"] = bg_gap(accuracies)
        log_accuracies(run.tracker, "linear", accuracies, values["coverage"])
        by_class = [
            {"test set": name, "class": label, "accuracy": value}
            for name, cells in values["class_accuracies"].items()
            for label, value in cells.items()
        ]
        run.tracker.log_table("linear by class", by_class)
        run.tracker.log_metrics({"holdout_accuracy": values["holdout_accuracy"]})
        return values

    return run_stage(
        context,
        "linear",
        title or "linear evaluation",
        config,
        inputs,
        compute,
        tags={"dataset": config.train.root},
        check=partial(check_features, sets=sets),
    )


def labelled_sets(config: LinearConfig) -> dict[str, DataConfig]:
    """The data sets of a linear evaluation by name."""
    return {"train": config.train, **{f"test {name}": data for name, data in config.tests.items()}}


def _has_to_stream(run: StageRun, config: LinearConfig, train: LabelledFeatures) -> bool:
    """Whether the solver has to leave the training features in storage; says so."""
    num_rows, num_columns = train.features.num_rows, train.features.num_columns()
    needed = solver_bytes(num_rows, num_columns, len(np.unique(train.row_labels())))
    if needed <= config.execution.max_memory_mib * _MIB:
        return False
    problem = f"{num_rows} × {num_columns} features would take {math.ceil(needed / _MIB)} MiB in the solver"
    if config.compat is not None:
        remedy = "Raise it where the machine has that, or leave compat out: the exact solver can stream."
        raise InputError("execution.max_memory_mib", config.execution.max_memory_mib, f"is too low: {problem}", remedy)
    run.progress.line(
        f"  {problem}, more than max_memory_mib ({config.execution.max_memory_mib}): streamed from storage"
    )
    return True


def run_localization(context: Context, config: LocalizationConfig, *, title: str | None = None) -> StageResult:
    """Scores masks against true ones, with the trivial baselines beside them.

    Returns:
        Value `scores`: the measures by row (`objectaware.evaluate.mask_scores.MEASURES` says what they are). A mask
        store with CRF gives `<name>` and, for the soft masks before it, `<name> soft`; other masks give `<name>`.
        Where no masks have that name, `full image` is among the rows, and always a baseline in the centre: the best
        centred box, an oracle, or where there are boxes alone or ignored pixels, `center map`. A measure that the
        truth does not allow is absent: without masks mIoU and PxAP, without boxes MaxBoxAccV2 and CorLoc.
        Value `boxes_per_image`: by name, and for `truth`, how many images have each number of boxes.
        Value `coverage`: the images that each name's measures of pixels and of boxes are over, and those left out; see
        `objectaware.evaluate.coverage.Coverage`.
    """
    data = Dataset(config.data)
    inputs = {"data": data.content_hash(context.verify), "truth": data.truth().content_hash(context.verify)}
    for name, masks in config.masks.items():
        inputs[f"masks {name}"] = masks_hash(masks)

    def compute(run: StageRun, config: LocalizationConfig) -> Mapping[str, Any]:
        *measured, truth = _measure_all(config)
        if truth["notice"]:
            run.progress.line(truth["notice"])
        scores = {**truth["scores"]}
        coverage = {**truth["coverage"]}
        histograms = {"truth": truth["boxes_per_image"]}
        for name, values in zip(config.masks, measured, strict=True):
            scores |= values["scores"]
            coverage |= values["coverage"]
            histograms[name] = values["boxes_per_image"]
            picture = box_histogram(Counter(values["boxes_per_image"]), Counter(truth["boxes_per_image"]))
            run.tracker.log_png(f"boxes_per_image/{_key(name)}.png", picture)
        run.tracker.log_table("localization", [{"localizer": row, **cells} for row, cells in titled(scores).items()])
        for row, cells in scores.items():
            run.tracker.log_metrics({f"{measure}.{_key(row)}": value for measure, value in cells.items()})
        counts = {name: _histogram(numbers) for name, numbers in histograms.items()}
        return {"scores": scores, "boxes_per_image": counts, "coverage": coverage}

    return run_stage(
        context,
        "localization",
        title or "localization",
        config,
        inputs,
        compute,
        tags={"dataset": config.data.root},
    )


def _measure_all(config: LocalizationConfig) -> list[dict[str, Any]]:
    """What `measure_masks` gives for each of the masks, and last what `measure_truth` gives."""
    tasks = [*((config, name) for name in config.masks), (config, None)]
    return run_tasks(measure, tasks, at_once=_NUM_MEASURED_AT_ONCE)


def _key(row: str) -> str:
    """A row's name as part of a path or of a metric's name."""
    return re.sub(r"[^\w.-]+", "_", row)


def _histogram(counts: list[int]) -> dict[str, int]:
    return {str(count): number for count, number in box_count_histogram(counts).items()}


def titled(scores: Mapping[str, Mapping[str, float]]) -> dict[str, dict[str, float]]:
    """The scores of `run_localization` with the titles of their columns, which say what is an oracle."""
    return {
        row: {title: cells[measure] for measure, title in MEASURES.items() if measure in cells}
        for row, cells in scores.items()
    }
