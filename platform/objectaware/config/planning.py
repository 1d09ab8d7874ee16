"""Configuration of measurements for plans."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from objectaware.config.variants import BackboneName, MethodConfig
from objectaware.model import Address, Model, Side, filled

# On a CPU a step of 256 images takes minutes.
_BATCH_SIZES = {"cpu": 32, "cuda": 256}


def _measurable(name: str) -> str:
    """Refuse a method that needs labels, since the photos for measuring have no classes."""
    names = [name for name, variant in MethodConfig.variants().items() if not variant.needs_labels]
    if name not in names:
        raise ValueError(f"choose {' | '.join(names)}")
    return name


MethodName = Annotated[str, AfterValidator(_measurable)]


class MeasureConfig(Model):
    """Measurements on one machine.

    Attributes:
        device: Device on which networks compute.
        backbones: Networks to measure.
        methods: Methods with which the networks are trained.
        expansions: Expansions of ContraCAM to measure.
        image_size: Side in pixels of the networks' input.
        batch_size: Images per step; by default 32 on a CPU and 256 on a GPU.
        images: Folder of photos; by default scenes of 480 pixels.
    """

    device: Literal["cpu", "cuda"]
    backbones: Annotated[tuple[BackboneName, ...], Field(min_length=1)] = ("resnet18",)
    methods: Annotated[tuple[MethodName, ...], Field(min_length=1)] = (MethodConfig.default_name,)
    expansions: Annotated[tuple[Literal[1, 2, 4], ...], Field(min_length=1)] = (1, 2)
    image_size: Side = 224
    batch_size: Annotated[int, Field(ge=2)]
    images: Address | None = None

    @model_validator(mode="before")
    @classmethod
    def _fill_batch_size(cls, values: object) -> object:
        """Fill in the default that depends on the device."""
        if isinstance(values, dict) and values.get("device") in _BATCH_SIZES:
            return filled(values, {"batch_size": _BATCH_SIZES[str(values["device"])]})
        return values
