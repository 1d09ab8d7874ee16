"""Whether a stage computes on GPUs, where its configuration leaves that open."""

from __future__ import annotations

from typing import TypeVar

from objectaware.config import (
    DetectionExecution,
    EvaluateExecution,
    LocalizeExecution,
    Model,
    PretrainExecution,
)
from objectaware.distributed.cluster import has_gpus

Config = TypeVar("Config", bound=Model)
Execution = TypeVar("Execution", PretrainExecution, LocalizeExecution, DetectionExecution, EvaluateExecution)


def on_device(execution: Execution, *, has_gpus: bool) -> Execution:
    """The execution with `use_gpu` written out where it leaves that open.

    Args:
        execution: How a stage runs.
        has_gpus: Whether it runs on GPUs then.
    """
    return execution if execution.use_gpu is not None else execution.model_copy(update={"use_gpu": has_gpus})


def on_available_device(config: Config) -> Config:
    """The configuration with `execution.use_gpu` written out: GPUs where the Ray in use has any.

    A cluster with fewer GPUs than the stage has processes is refused later on with the arithmetic; it is not trained
    on CPUs instead, which would take weeks without a word.
    """
    execution = getattr(config, "execution", None)
    if execution is None or execution.use_gpu is not None:
        return config
    return config.model_copy(update={"execution": on_device(execution, has_gpus=has_gpus())})


def device_name(config: object) -> str:
    """`cuda` or `cpu`: where the stage of a configuration computes, for its tags."""
    execution = getattr(config, "execution", None)
    return "cuda" if getattr(execution, "use_gpu", False) else "cpu"
