"""Choosing between CPU and GPU for a stage whose configuration leaves it open."""

from __future__ import annotations

from typing import TypeVar

from objectaware.config import Model
from objectaware.distributed.cluster import has_gpus

Config = TypeVar("Config", bound=Model)


def on_device(config: Config, *, has_gpus: bool) -> Config:
    """Return the configuration with `execution.use_gpu` filled in if it is open.

    Args:
        config: Configuration of a stage.
        has_gpus: Value that is filled in: whether GPUs are available.
    """
    execution = getattr(config, "execution", None)
    if getattr(execution, "use_gpu", False) is not None:  # written out, or a stage without that choice
        return config
    assert isinstance(execution, Model)
    return config.model_copy(update={"execution": execution.model_copy(update={"use_gpu": has_gpus})})


def on_available_device(config: Config) -> Config:
    """Return the configuration with `execution.use_gpu` filled in: true if the Ray in use has GPUs.

    A cluster with fewer GPUs than the stage has processes is refused later, with the numbers in the message. Training
    on CPUs instead would silently take weeks.
    """
    execution = getattr(config, "execution", None)
    if getattr(execution, "use_gpu", False) is not None:
        return config
    return on_device(config, has_gpus=has_gpus())


def device_name(config: object) -> str:
    """Return `cuda` or `cpu`, the device on which the stage computes, for its tags."""
    execution = getattr(config, "execution", None)
    return "cuda" if getattr(execution, "use_gpu", False) else "cpu"
