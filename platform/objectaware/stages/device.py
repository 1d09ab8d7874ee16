"""Whether a stage computes on GPUs, where its configuration leaves that open."""

from __future__ import annotations

from typing import TypeVar

from objectaware.config import (
    ClassDistanceConfig,
    DetectionConfig,
    FewShotConfig,
    KnnConfig,
    LinearConfig,
    LocalizeConfig,
    PretrainConfig,
)
from objectaware.distributed.cluster import has_gpus

Config = TypeVar(
    "Config",
    PretrainConfig,
    LocalizeConfig,
    DetectionConfig,
    LinearConfig,
    KnnConfig,
    FewShotConfig,
    ClassDistanceConfig,
)


def on_available_device(config: Config) -> Config:
    """The configuration with `execution.use_gpu` written out: GPUs where the Ray in use has any.

    A cluster with fewer GPUs than the stage has processes is refused later on with the arithmetic; it is not trained
    on CPUs instead, which would take weeks without a word.
    """
    if config.execution.use_gpu is not None:
        return config
    execution = config.execution.model_copy(update={"use_gpu": has_gpus()})
    return config.model_copy(update={"execution": execution})


def device_name(config: object) -> str:
    """`cuda` or `cpu`: where the stage of a configuration computes, for its tags."""
    execution = getattr(config, "execution", None)
    return "cuda" if getattr(execution, "use_gpu", False) else "cpu"
