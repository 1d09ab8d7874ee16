"""Whether a stage computes on GPUs, where its configuration leaves that open."""

from __future__ import annotations

from typing import TypeVar

from objectaware.config import Model
from objectaware.distributed.cluster import has_gpus

Config = TypeVar("Config", bound=Model)


def on_device(config: Config, *, has_gpus: bool) -> Config:
    """Return the configuration with `execution.use_gpu` written out where it leaves that open.

    Args:
        config: Of a stage.
        has_gpus: Whether it runs on GPUs then.
    """
    execution = getattr(config, "execution", None)
    if getattr(execution, "use_gpu", False) is not None:  # written out, or a stage without that choice
        return config
    assert isinstance(execution, Model)
    return config.model_copy(update={"execution": execution.model_copy(update={"use_gpu": has_gpus})})


def on_available_device(config: Config) -> Config:
    """Return the configuration with `execution.use_gpu` written out: GPUs where the Ray in use has any.

    A cluster with fewer GPUs than the stage has processes is refused later on with the arithmetic. It is not trained
    on CPUs instead, which would take weeks without a word.
    """
    execution = getattr(config, "execution", None)
    if getattr(execution, "use_gpu", False) is not None:
        return config
    return on_device(config, has_gpus=has_gpus())


def device_name(config: object) -> str:
    """Return `cuda` or `cpu`: where the stage of a configuration computes, for its tags."""
    execution = getattr(config, "execution", None)
    return "cuda" if getattr(execution, "use_gpu", False) else "cpu"
