"""Stages `linear` and `localization`: what a network has learnt, and how well it finds the objects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from objectaware.config import LinearConfig, LocalizationConfig
from objectaware.distributed.task import run_task
from objectaware.evaluate.background import bg_gap
from objectaware.stages.identity import checkpoint_hash, data_hash, mask_store_hash
from objectaware.stages.measure import measure_linear, measure_localization
from objectaware.stages.runner import Context, StageResult, StageRun, run_stage


def run_linear(context: Context, config: LinearConfig, *, title: str | None = None) -> StageResult:
    """Fits a linear classifier to a checkpoint's features and measures it on each test set.

    Returns:
        Values `accuracies` (per cent, by test set; with `bg_gap` where both of its variants are among them),
        `penalty`, `holdout_accuracy` and `unreadable` (number of images left out).
    """
    inputs = {
        "checkpoint": checkpoint_hash(config.checkpoint),
        "train": data_hash(config.train, verify=context.verify),
    }
    for name, data in config.tests.items():
        inputs[f"test {name}"] = data_hash(data, verify=context.verify)

    def compute(run: StageRun) -> Mapping[str, Any]:
        values = run_task(measure_linear, config)
        accuracies = values["accuracies"]
        if {"mixed_same", "mixed_rand"} <= accuracies.keys():
            accuracies["bg_gap"] = bg_gap(accuracies)
        run.tracker.log_table("linear", [{"test set": name, "accuracy": value} for name, value in accuracies.items()])
        run.tracker.log_metrics({f"accuracy.{name}": value for name, value in accuracies.items()})
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
    )


def run_localization(context: Context, config: LocalizationConfig, *, title: str | None = None) -> StageResult:
    """Scores mask stores against true masks, with the trivial baselines beside them.

    Returns:
        Value `mask_miou`: by row, mean IoU of the foreground. Each store gives `<name>` (its stored mask) and
        `<name> soft` (its CAM from 0.5 on); `center_box` is the best centred box, an oracle, and `full_image`.
    """
    inputs = {"data": data_hash(config.data, verify=context.verify)}
    for name, masks in config.masks.items():
        inputs[f"masks {name}"] = mask_store_hash(masks)

    def compute(run: StageRun) -> Mapping[str, Any]:
        values = run_task(measure_localization, config)
        rows = [{"localizer": name, "mask mIoU": value} for name, value in values.items()]
        run.tracker.log_table("localization", rows)
        run.tracker.log_metrics({f"mask_miou.{name.replace(' ', '_')}": value for name, value in values.items()})
        return {"mask_miou": values}

    return run_stage(
        context,
        "localization",
        title or "localization",
        config,
        inputs,
        compute,
        tags={"dataset": config.data.root},
    )
