"""Start-up and shutdown times of stages, measured by running them on a few tiny pictures."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from objectaware.data.scenes import build_scenes
from objectaware.planning.measure import MeasureConfig, measure_rates
from objectaware.planning.model import Rates, StageName
from objectaware.stages.linear import linear
from objectaware.stages.localize import localize
from objectaware.stages.pretrain import pretrain
from objectaware.stages.runner import Context, Stage

_SIZE = 32
_BATCH_SIZE = 9


def measure_all(context: Context, config: MeasureConfig, folder: Path) -> Rates:
    """Measure this machine's rates: the times of stages to start on its Ray, and of pieces of work in this process.

    Args:
        context: Context of the stages, with a storage in which they have not been run.
        config: Networks, methods and sizes to measure.
        folder: Folder for pictures and checkpoints.

    Raises:
        InputError: There is no GPU to measure on, or the user's folder has no image.
    """
    context.services.start_ray()  # first, since it is not part of a stage's start
    start_seconds = measure_start_ups(context, folder / "start-ups", use_gpu=config.device == "cuda")
    return measure_rates(config, folder / "rates", start_seconds)


def measure_start_ups(context: Context, folder: Path, *, use_gpu: bool) -> dict[StageName, float]:
    """Run each stage twice on tiny pictures and return the time of the second run, which is mostly start and end.

    Args:
        context: Context of the stages, with a storage in which they have not been run.
        folder: Folder for the pictures.
        use_gpu: Whether their processes take GPUs.

    Returns:
        Seconds, by stage.
    """
    build_scenes(folder, variant="single-object", num_train=2 * _BATCH_SIZE, num_val=_BATCH_SIZE, image_size=_SIZE)
    seconds: dict[StageName, float] = {}

    def timed(name: StageName, stage: Stage[Any], fields: Mapping[str, object]) -> Mapping[str, Any]:
        config = stage.config.model_validate({**fields, "image_size": _SIZE, "execution": {"use_gpu": use_gpu}})
        begun = time.perf_counter()
        values = stage(context, config).values
        seconds[name] = time.perf_counter() - begun
        return values

    # Only pictures, as most users have: with labels, a training would also measure k-NN accuracy.
    photos = {"root": str(folder / "original" / "train")}
    small = {"backbone": "resnet10_narrow", "batch_size": _BATCH_SIZE, "method": {"queue_size": _BATCH_SIZE}}
    localizing = {"data": photos, "localizer": {"num_iterations": 1}, "crf": False}
    train, val = ({"root": str(folder), "layout": "backgrounds-challenge", "split": name} for name in ("train", "val"))
    evaluation = {"train": train, "tests": {"val": val}, "num_penalties": 1, "holdout_size": _BATCH_SIZE}
    for seed in range(2):  # a seed of its own, so that nothing is reused
        training = {"data": photos, "num_epochs": 1, "seed": seed, **small}
        checkpoint = timed("pretrain", pretrain, training)["checkpoint"]
        timed("localize", localize, {**localizing, "checkpoint": checkpoint})
        timed("linear", linear, {**evaluation, "checkpoint": checkpoint})
    return seconds
