"""Configuration of the evaluations."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from objectaware.config.base import Address, DataConfig, Model, Positive
from objectaware.data.layouts import LAYOUTS, layout_named


class LinearConfig(Model):
    """Linear evaluation of a checkpoint.

    Attributes:
        checkpoint: Folder that pretraining wrote, or a file of another system's (docs/checkpoints.md).
        train: Labelled images that the classifier is fitted to.
        tests: Labelled images that it is measured on, by name.
        image_size: Side of the network's input in pixels.
        center_crop: The paper's protocol (short side 256 / 224 of the size, centre crop) or the squashed picture.
        holdout_fraction: Share of the training images that chooses the penalty.
        holdout_size: Number of training images that choose it, in place of the share; the paper's numbers are in
            docs/recipes.md.
        refit: Whether the final classifier learns from the held-out images, too (SimCLR's protocol), or keeps to
            the others (the official code's).
        num_penalties: Values of the penalty between 1e-6 and 1e5.
        seed: Decides the hold-out.
    """

    checkpoint: Address
    train: DataConfig
    tests: dict[str, DataConfig]
    image_size: Annotated[int, Field(ge=32)] = 224
    center_crop: bool = True
    holdout_fraction: Annotated[float, Field(gt=0, lt=1)] = 0.2
    holdout_size: Positive | None = None
    refit: bool = True
    num_penalties: Positive = 45
    seed: Annotated[int, Field(ge=0)] = 0

    @model_validator(mode="after")
    def _one_holdout(self) -> Self:
        if self.holdout_size is not None and "holdout_fraction" in self.model_fields_set:
            raise ValueError("holdout_size and holdout_fraction say the same; leave one of them out")
        return self


def _has_objects(data: DataConfig) -> DataConfig:
    if not layout_named(data.layout).masks:
        known = ", ".join(layout.name for layout in LAYOUTS if layout.masks)
        raise ValueError(f"the layout {data.layout} has neither true masks nor true boxes; those that have: {known}")
    return data


MeasurableData = Annotated[DataConfig, AfterValidator(_has_objects)]
"""Images of a layout that comes with true masks or boxes."""


class LocalizationConfig(Model):
    """Scoring of masks against true masks and boxes.

    Attributes:
        data: Images with true masks or boxes: docs/data.md says which layouts have them. Where there are boxes alone,
            they are measured by MaxBoxAccV2 and CorLoc alone.
        masks: Masks of these images, by name of the row in the table: a mask store, a folder of PNG or NPY files
            named as the images, or a COCO result file (`.json`).
        image_size: Side in pixels that pictures are squashed to for all measures; the paper's is 224.
    """

    data: MeasurableData
    masks: dict[str, Address]
    image_size: Annotated[int, Field(ge=32)] = 224
