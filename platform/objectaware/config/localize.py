"""Configuration of localization."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from objectaware.data.dataset import DataConfig
from objectaware.data.masks import MIN_BOX_AREA, OBJECT_MARGIN
from objectaware.model import (
    Byte,
    CheckpointAddress,
    ClassifierAddress,
    Execution,
    Fraction,
    Model,
    Positive,
    filled,
)

Localizer = Literal["contracam", "classifier_cam", "integrated_gradients", "smoothgrad", "center_box", "full_image"]


class LocalizeExecution(Execution):
    """How localization runs.

    Attributes:
        num_cam_actors: Processes that compute ContraCAM.
        num_crf_actors: Processes that run CRF and boxes.
        use_gpu: One GPU a ContraCAM process; by default where the Ray in use has GPUs.
        num_compute_threads: Threads a ContraCAM process computes with on a CPU.
        record_iterations: Keep the CAM of each iteration of ContraCAM for a dozen images, and show them.
    """

    num_cam_actors: Positive = 1
    num_crf_actors: Positive = 2
    use_gpu: bool | None = None
    num_compute_threads: Positive = 2
    record_iterations: bool = False


LOCALIZER_DEFAULTS: dict[str, dict[str, object]] = {
    "contracam": {"num_iterations": 10, "expansion": 2, "remove_negative_signals": True, "temperature": 1.0},
    "classifier_cam": {"expansion": 2},
    "integrated_gradients": {"num_gradients": 10, "temperature": 1.0},
    "smoothgrad": {"num_gradients": 10, "noise_level": 0.15, "temperature": 1.0},
    "center_box": {},
    "full_image": {},
}
"""The fields of `LocalizeConfig` that only some localizers have, with their defaults."""

_NEEDED_FIELDS: dict[str, tuple[str, ...]] = {
    "contracam": ("checkpoint",),
    "classifier_cam": ("checkpoint", "classifier"),
    "integrated_gradients": ("checkpoint",),
    "smoothgrad": ("checkpoint",),
    "center_box": ("side_fraction",),
    "full_image": (),
}
_OPTIONAL_FIELDS: dict[str, tuple[str, ...]] = {
    "contracam": ("mask_color", "negatives"),
    "integrated_gradients": ("negatives",),
    "smoothgrad": ("negatives",),
}


def localizer_fields(localizer: str) -> set[str]:
    """The fields of `LocalizeConfig` that this localizer has and not all others; none for a name that is unknown."""
    return {
        *LOCALIZER_DEFAULTS.get(localizer, {}),
        *_NEEDED_FIELDS.get(localizer, ()),
        *_OPTIONAL_FIELDS.get(localizer, ()),
    }


class LocalizeConfig(Model):
    """Localization of the objects of a set of images. All localizers' soft maps take the same way from there on.

    Attributes:
        data: Images.
        localizer: `contracam`, the paper's; `classifier_cam` of the predicted class; `integrated_gradients` and
            `smoothgrad` of the contrastive score; `center_box` and `full_image`, which look at no picture.
        checkpoint: Folder that pretraining wrote, or a file of another system's (docs/checkpoints.md), for those that
            look through a network.
        num_iterations: T of iterative ContraCAM.
        expansion: Resolution of a CAM's activations, 1, 2 or 4 times the network's.
        remove_negative_signals: The ReLU on α of eq. 2, for ContraCAM.
        temperature: Of the contrastive score.
        mask_color: What ContraCAM's masked pixels become, RGB; by default the mean colour of the group.
        negatives: Images that are every image's only negatives, by their path relative to the data's folder; by
            default a group's images are each other's.
        classifier: Of classifier_cam: the folder of a linear evaluation on the same checkpoint, or a state dict.
        num_gradients: Gradients that integrated_gradients and smoothgrad average.
        noise_level: Noise of smoothgrad as a share of each image's range of values.
        side_fraction: Sides of center_box as a share of the picture's.
        crf: Whether the soft mask is refined by a dense CRF.
        mask_threshold: The stored mask is foreground from here on (after CRF, where there is one).
        image_size: Side that images are squashed to, in pixels.
        min_box_area: Boxes of at most this share of the picture are dropped.
        box_margin: Boxes are widened by this share of their side, on each side.
        group_size: Images whose embeddings are each other's negatives.
        seed: Decides the groups.
        execution: How it runs.
    """

    data: DataConfig
    localizer: Localizer = "contracam"
    checkpoint: CheckpointAddress | None = None
    num_iterations: Positive | None = None
    expansion: Literal[1, 2, 4] | None = None
    remove_negative_signals: bool | None = None
    temperature: Annotated[float, Field(gt=0)] | None = None
    mask_color: tuple[Byte, Byte, Byte] | None = None
    negatives: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    classifier: ClassifierAddress | None = None
    num_gradients: Positive | None = None
    noise_level: Annotated[float, Field(gt=0)] | None = None
    side_fraction: Annotated[float, Field(gt=0, le=1)] | None = None
    crf: bool = True
    mask_threshold: Fraction = 0.5
    image_size: Annotated[int, Field(ge=32)] = 224
    min_box_area: Fraction = MIN_BOX_AREA
    box_margin: Annotated[float, Field(ge=0)] = OBJECT_MARGIN
    group_size: Annotated[int, Field(ge=2)] = 64
    seed: Annotated[int, Field(ge=0)] = 0
    execution: LocalizeExecution = LocalizeExecution()

    @property
    def needs_negatives(self) -> bool:
        """Whether the localizer compares each image with others."""
        return "negatives" in localizer_fields(self.localizer)

    @model_validator(mode="before")
    @classmethod
    def _fill_defaults(cls, values: object) -> object:
        """Writes the localizer's defaults out, so that a stored recipe says them."""
        if not isinstance(values, dict):
            return values
        defaults = LOCALIZER_DEFAULTS.get(values.get("localizer", "contracam"), {})
        return filled(values, defaults)

    @model_validator(mode="after")
    def _fields_apply(self) -> Self:
        """Refuses settings that would be ignored, and asks for those that have no default."""
        fields = localizer_fields(self.localizer)
        for name in sorted(set().union(*map(localizer_fields, LOCALIZER_DEFAULTS)) - fields):
            if getattr(self, name) is not None:
                raise ValueError(f"{name} has no meaning for the localizer {self.localizer}; leave it out")
        for name in _NEEDED_FIELDS[self.localizer]:
            if getattr(self, name) is None:
                raise ValueError(f"{name} is missing: the localizer {self.localizer} needs it")
        if self.execution.record_iterations and self.localizer != "contracam":
            raise ValueError(f"record_iterations has no meaning for the localizer {self.localizer}; leave it out")
        return self


LOCALIZE_SETTINGS: dict[str, dict[str, Any]] = {
    # Paper, common set-up: boxes for object crop of multi-object images …
    "crop": {"num_iterations": 10, "expansion": 2, "crf": True, "mask_threshold": 0.5},
    # … and soft masks for background mixup of single-object images.
    "mixup": {"num_iterations": 1, "expansion": 1, "crf": False, "mask_threshold": 0.2},
    # For the small network of the demo, trained on views of 96 pixels. Crops show it objects larger than whole pictures
    # of that size do (Touvron et al. 2019); a third larger is where it finds them best. At τ = 1 all negatives weigh
    # nearly the same and hide what the ReLU on α is for; below 0.4 masks lose more than the ablation shows.
    "scenes": {
        "num_iterations": 2,
        "expansion": 2,
        "temperature": 0.4,
        "image_size": 128,
        "crf": True,
        "mask_threshold": 0.5,
    },
}
"""Named settings of `objectaware localize --setting`."""


def localize_setting(setting: str, localizer: str) -> dict[str, Any]:
    """A named setting's fields, less those that mean nothing to a localizer."""
    foreign = set().union(*map(localizer_fields, LOCALIZER_DEFAULTS)) - localizer_fields(localizer)
    return {name: value for name, value in LOCALIZE_SETTINGS[setting].items() if name not in foreign}
