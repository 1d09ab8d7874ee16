"""Configuration of the evaluations."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from objectaware.data.dataset import DataConfig
from objectaware.data.layouts import layout_named, layouts
from objectaware.model import Address, Model, Positive, filled


class EvaluateExecution(Model):
    """How an evaluation of features runs.

    Attributes:
        num_workers: Processes that compute features; by default one for each GPU of the Ray in use, and one where it
            has none.
        num_loader_threads: Threads with which each decodes images.
        num_compute_threads: Threads that each process computes with on a CPU.
        use_gpu: One GPU a process; by default where the Ray in use has GPUs.
        max_memory_mib: Memory that the solver of linear evaluation may take, on the device where it computes. Features
            that need more are streamed from storage, with every step one pass over them.
    """

    num_workers: Positive | None = None
    num_loader_threads: Positive = 2
    num_compute_threads: Positive = 1
    use_gpu: bool | None = None
    max_memory_mib: Positive = 8192


class FeatureConfig(Model):
    """What all evaluations of features have in common: a network, and how it sees the pictures.

    Attributes:
        checkpoint: Folder that pretraining wrote, or a file of another system's (docs/checkpoints.md).
        image_size: Side of the network's input in pixels.
        center_crop: The paper's protocol (short side 256 / 224 of the size, centre crop) or the squashed picture.
        execution: How it runs.
    """

    checkpoint: Address
    image_size: Annotated[int, Field(ge=32)] = 224
    center_crop: bool = True
    execution: EvaluateExecution = EvaluateExecution()


class LinearConfig(FeatureConfig):
    """Linear evaluation of a checkpoint.

    Attributes:
        train: Labelled images that the classifier is fitted to.
        tests: Labelled images that it is measured on, by name.
        holdout_fraction: Share of the training images that chooses the penalty.
        holdout_size: Number of training images that choose it, in place of the share; the paper's numbers are in
            docs/recipes.md.
        refit: Whether the final classifier learns from the held-out images, too (SimCLR's protocol), or keeps to
            the others (the official code's, hence false with `compat`).
        num_penalties: Values of the penalty between 1e-6 and 1e5.
        compat: `official`: the published code's solver and penalty in place of the exact minimiser, for its numbers.
        seed: Decides the hold-out, and with `compat` the initial weights.
    """

    train: DataConfig
    tests: dict[str, DataConfig]
    holdout_fraction: Annotated[float, Field(gt=0, lt=1)] = 0.2
    holdout_size: Positive | None = None
    refit: bool = True
    num_penalties: Positive = 45
    compat: Literal["official"] | None = None
    seed: Annotated[int, Field(ge=0)] = 0

    @model_validator(mode="before")
    @classmethod
    def _fill_refit(cls, values: object) -> object:
        """Writes the default that depends on another field out, so that a stored recipe says it."""
        if isinstance(values, dict) and values.get("compat") == "official":
            return filled(values, {"refit": False})
        return values

    @model_validator(mode="after")
    def _fields_apply(self) -> Self:
        if self.holdout_size is not None and "holdout_fraction" in self.model_fields_set:
            raise ValueError("holdout_size and holdout_fraction say the same; leave one of them out")
        if self.compat == "official" and self.refit:
            raise ValueError("refit has no meaning with compat = official, which does not refit; leave it out")
        return self


class BackgroundConfig(FeatureConfig):
    """Linear evaluation on every variant of the Backgrounds Challenge.

    Attributes:
        root: Folder that holds `original`, `mixed_same` and the other variants.
        seed: Decides the hold-out.
    """

    root: Address
    seed: Annotated[int, Field(ge=0)] = 0


class KnnConfig(FeatureConfig):
    """Nearest neighbours: what the features tell without a classifier being trained.

    Attributes:
        train: Labelled images that are the neighbours.
        tests: Labelled images that are classified, by name.
        num_neighbours: k.
        temperature: τ of the votes, exp(cosine similarity / τ).
    """

    train: DataConfig
    tests: dict[str, DataConfig]
    num_neighbours: Positive = 20
    temperature: Annotated[float, Field(gt=0)] = 0.07


def _has_objects(data: DataConfig) -> DataConfig:
    if not layout_named(data.layout).masks:
        known = ", ".join(layout.name for layout in layouts() if layout.masks)
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
