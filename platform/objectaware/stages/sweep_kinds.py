"""The kinds of stages that a sweep takes: the configuration of each, what runs it, and what later stages take of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from objectaware.config import (
    BackgroundConfig,
    ClassDistanceConfig,
    DetectionConfig,
    FeatureConfig,
    FewShotConfig,
    KnnConfig,
    LinearConfig,
    LocalizationConfig,
    LocalizeConfig,
    LocalizersConfig,
    Model,
    PretrainConfig,
)
from objectaware.config.sweep import StageKind
from objectaware.distributed.cluster import Need
from objectaware.distributed.detection import fine_tuning_needs
from objectaware.distributed.localize import localize_needs
from objectaware.distributed.pretrain import pretrain_needs
from objectaware.stages.background import background_linear, run_background
from objectaware.stages.contextual import run_class_distance
from objectaware.stages.detection import run_detection
from objectaware.stages.device import on_device
from objectaware.stages.evaluate import run_linear, run_localization
from objectaware.stages.few_shot import run_few_shot
from objectaware.stages.knn import run_knn
from objectaware.stages.localize import run_localize
from objectaware.stages.localizers import localizers_parts, run_localizer_rows
from objectaware.stages.pretrain import run_pretrain
from objectaware.stages.runner import StageResult
from objectaware.stages.shift import run_one_shift

STAND_IN = "/computed-by-an-earlier-stage"
"""Address in place of the outcome of a stage that has not run."""

_TASK = Need("task", 1, 1)


@dataclass(frozen=True)
class Kind:
    """A kind of stage.

    Attributes:
        config: Model of its configuration.
        run: Runs it: takes the context, the configuration and the title.
        outcome: What `{from: NAME}` takes of it: the name of one of its values; None where each has to be named.
        parts: The configurations that it comes down to; by default its own alone.
    """

    config: type[Model]
    run: Callable[..., StageResult]
    outcome: str | None = None
    parts: Callable[[Any], Sequence[Model]] = lambda config: [config]


KINDS: dict[StageKind, Kind] = {
    "pretrain": Kind(PretrainConfig, run_pretrain, "checkpoint"),
    "localize": Kind(LocalizeConfig, run_localize, "masks"),
    "localization": Kind(LocalizationConfig, run_localization),
    "localizers": Kind(
        LocalizersConfig, run_localizer_rows, parts=lambda config: localizers_parts(config, classifier=STAND_IN)
    ),
    "linear": Kind(LinearConfig, run_linear, "classifier"),
    "shift": Kind(LinearConfig, run_one_shift, "classifier"),
    "background": Kind(
        BackgroundConfig, run_background, "classifier", parts=lambda config: [background_linear(config)]
    ),
    "knn": Kind(KnnConfig, run_knn),
    "few_shot": Kind(FewShotConfig, run_few_shot),
    "class_distance": Kind(ClassDistanceConfig, run_class_distance),
    "detection": Kind(DetectionConfig, run_detection, "checkpoint"),
}


def part_needs(part: Model, *, has_gpus: bool) -> list[Need]:
    """Processes that a stage keeps running at once.

    Args:
        part: Its configuration, or that of a part of it.
        has_gpus: Whether it runs on GPUs where its configuration leaves that open.
    """
    match part:
        case PretrainConfig():
            return pretrain_needs(on_device(part.execution, has_gpus=has_gpus))
        case LocalizeConfig():
            return localize_needs(on_device(part.execution, has_gpus=has_gpus))
        case DetectionConfig():
            return fine_tuning_needs(on_device(part.execution, has_gpus=has_gpus))
        case FeatureConfig():
            return [Need("task", 1, 1, float(bool(on_device(part.execution, has_gpus=has_gpus).use_gpu)))]
        case _:
            return [_TASK]
