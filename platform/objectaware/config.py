"""Configuration of the stages: validated once, at the edge; the parts take plain arguments.

A model's fields are its recipe, what decides the result; `execution` holds what only decides how fast and where.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

if TYPE_CHECKING:
    from objectaware.data.crops import CroppedObjects
    from objectaware.data.folder import ImageFolder


def _absolute(address: str) -> str:
    """Ray starts workers in folders of their own, where a relative path would name another place."""
    return address if "://" in address else str(Path(address).expanduser().absolute())


Address = Annotated[str, AfterValidator(_absolute)]
"""Path or URI; a path is relative to the folder that the command was started in, and made absolute at once."""
Fraction = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[int, Field(ge=1)]
Backbone = Literal["resnet18", "resnet50", "resnet10_narrow"]
Localizer = Literal["contracam", "classifier_cam", "integrated_gradients", "smoothgrad", "center_box", "full_image"]
Byte = Annotated[int, Field(ge=0, le=255)]
Layout = Literal["folder", "class-folders", "backgrounds-challenge", "coco", "coco-crop"]


class Model(BaseModel):
    """Base of all configuration: immutable, unknown fields refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class DataConfig(Model):
    """A set of images on disk.

    Attributes:
        root: The folder.
        layout: How images lie in it: `folder` any photos at any depth, `class-folders` one folder a class,
            `backgrounds-challenge` and `coco` as published, `coco-crop` the objects cut out of a COCO folder.
        variant: Variant of the Backgrounds Challenge.
        split: `train` or `val`, for the published layouts.
    """

    root: Address
    layout: Layout = "folder"
    variant: str | None = None
    split: Literal["train", "val"] | None = None

    @model_validator(mode="after")
    def _fits_layout(self) -> Self:
        published = self.layout in ("backgrounds-challenge", "coco", "coco-crop")
        if published and self.split is None:
            raise ValueError(f"split is missing: the layout {self.layout} has train and val")
        if not published and self.split is not None:
            raise ValueError(f"split = {self.split} has no meaning for the layout {self.layout}; leave it out")
        if self.variant is not None and self.layout != "backgrounds-challenge":
            raise ValueError(f"variant = {self.variant} has no meaning for the layout {self.layout}; leave it out")
        return self

    def open(self) -> ImageFolder | CroppedObjects:
        """Opens the images.

        Raises:
            InputError: Something is missing or malformed.
        """
        from objectaware.data.catalog import open_images  # here, or every --help would wait for it

        return open_images(self.root, self.layout, variant=self.variant, split=self.split)


class PretrainExecution(Model):
    """How pretraining runs.

    Attributes:
        num_workers: Processes that train together.
        use_gpu: One GPU a worker.
        num_loader_threads: Threads a worker that decode and crop.
        num_compute_threads: Threads a worker that compute on a CPU; 0 leaves it to PyTorch.
        cache_mib: Decoded images kept in memory up to this size, a worker.
        checkpoint_interval: Epochs between checkpoints.
        evaluation_interval: Epochs between k-NN evaluations, where labels exist.
        precision: `auto` times both and keeps the faster.
    """

    num_workers: Positive = 1
    use_gpu: bool = False
    num_loader_threads: Positive = 2
    num_compute_threads: Annotated[int, Field(ge=0)] = 0
    cache_mib: Annotated[int, Field(ge=0)] = 1024
    checkpoint_interval: Positive = 1
    evaluation_interval: Positive = 5
    precision: Literal["auto", "fp32", "bf16"] = "auto"


class PretrainConfig(Model):
    """Pretraining of one network.

    Attributes:
        data: Images to train on; labels, where the layout has them, are used to watch k-NN accuracy only.
        method: `moco` or `byol`.
        backbone: Network.
        policy: What is done to the positives.
        masks: Mask store that the policy takes its masks or boxes from.
        mask_field: Which of the store's masks background mixup weighs with: `cam` the soft one, `mask` the one
            after CRF.
        mix_probability: p_mix of background mixup; by default the paper's (0.4 for moco, 0.3 for byol).
        background_threshold: Soft masks are foreground from here on when a background is cut out.
        image_size: Side of the views in pixels.
        min_crop_scale: Smallest share of the image that a crop covers.
        color_jitter: Strength of the changes of brightness, contrast, saturation and hue.
        grayscale_probability: Share of views made gray.
        num_epochs: Epochs.
        batch_size: Images a step, over all workers.
        base_learning_rate: Learning rate at a batch of 256, scaled linearly.
        final_learning_rate: Where the cosine ends.
        sgd_momentum: Momentum of SGD.
        weight_decay: Weight decay of SGD.
        queue_size: Negatives in MoCo's queue.
        momentum: m of the moving average; by default 0.999 for moco and 0.996 for byol.
        temperature: τ of moco.
        seed: Decides weights, order and augmentations.
        execution: How it runs.
    """

    data: DataConfig
    method: Literal["moco", "byol"] = "moco"
    backbone: Backbone = "resnet18"
    policy: Literal["none", "object_crop", "background_mixup"] = "none"
    masks: Address | None = None
    mask_field: Literal["cam", "mask"] | None = None
    mix_probability: Fraction | None = None
    background_threshold: Fraction | None = None
    image_size: Annotated[int, Field(ge=32)] = 224
    min_crop_scale: Annotated[float, Field(gt=0, le=1)] = 0.08
    color_jitter: tuple[Fraction, Fraction, Fraction, Annotated[float, Field(ge=0, le=0.5)]] = (
        0.4,
        0.4,
        0.4,
        0.1,
    )
    grayscale_probability: Fraction = 0.2
    num_epochs: Positive = 800
    batch_size: Annotated[int, Field(ge=2)] = 256
    base_learning_rate: Annotated[float, Field(gt=0)] = 0.03
    final_learning_rate: Annotated[float, Field(ge=0)] = 0.001
    sgd_momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    weight_decay: Annotated[float, Field(ge=0)] = 1e-4
    queue_size: Positive | None = None
    momentum: Fraction | None = None
    temperature: Annotated[float, Field(gt=0)] | None = None
    seed: Annotated[int, Field(ge=0)] = 0
    execution: PretrainExecution = PretrainExecution()

    @model_validator(mode="before")
    @classmethod
    def _fill_defaults(cls, values: object) -> object:
        """Writes the defaults that depend on method and policy out, so that a stored recipe says them."""
        if not isinstance(values, dict):
            return values
        filled = dict(values)
        method = filled.get("method", "moco")
        defaults: dict[str, object] = {"momentum": 0.999 if method == "moco" else 0.996}
        if method == "moco":
            defaults |= {"queue_size": 65536, "temperature": 0.2}
        if filled.get("policy") == "background_mixup":
            defaults |= {
                "mask_field": "cam",
                "mix_probability": 0.4 if method == "moco" else 0.3,
                "background_threshold": 0.2,
            }
        for name, value in defaults.items():
            if filled.get(name) is None:
                filled[name] = value
        return filled

    @model_validator(mode="after")
    def _fields_apply(self) -> Self:
        """Refuses settings that would be ignored."""
        if self.method != "moco":
            for name in ("queue_size", "temperature"):
                if getattr(self, name) is not None:
                    raise ValueError(f"{name} has no meaning for the method {self.method}; leave it out")
        if self.policy != "background_mixup":
            for name in ("mask_field", "mix_probability", "background_threshold"):
                if getattr(self, name) is not None:
                    raise ValueError(f"{name} has no meaning for the policy {self.policy}; leave it out")
        if self.policy == "none" and self.masks is not None:
            raise ValueError("masks has no meaning for the policy none; leave it out or choose a policy")
        if self.policy != "none" and self.masks is None:
            raise ValueError(f"masks is missing: the policy {self.policy} takes them from a mask store")
        if self.batch_size % self.execution.num_workers:
            raise ValueError(
                f"batch_size = {self.batch_size} is not a multiple of execution.num_workers = "
                f"{self.execution.num_workers}"
            )
        return self


class LocalizeExecution(Model):
    """How localization runs.

    Attributes:
        num_cam_actors: Processes that compute ContraCAM.
        num_crf_actors: Processes that run CRF and boxes.
        use_gpu: One GPU a ContraCAM process.
        num_compute_threads: Threads a ContraCAM process computes with on a CPU.
        record_iterations: Keep the CAM of each iteration of ContraCAM for a dozen images, and show them.
    """

    num_cam_actors: Positive = 1
    num_crf_actors: Positive = 2
    use_gpu: bool = False
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
    checkpoint: Address | None = None
    num_iterations: Positive | None = None
    expansion: Literal[1, 2, 4] | None = None
    remove_negative_signals: bool | None = None
    temperature: Annotated[float, Field(gt=0)] | None = None
    mask_color: tuple[Byte, Byte, Byte] | None = None
    negatives: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    classifier: Address | None = None
    num_gradients: Positive | None = None
    noise_level: Annotated[float, Field(gt=0)] | None = None
    side_fraction: Annotated[float, Field(gt=0, le=1)] | None = None
    crf: bool = True
    mask_threshold: Fraction = 0.5
    image_size: Annotated[int, Field(ge=32)] = 224
    min_box_area: Fraction = 0.01
    box_margin: Annotated[float, Field(ge=0)] = 0.2
    group_size: Annotated[int, Field(ge=2)] = 64
    seed: Annotated[int, Field(ge=0)] = 0
    execution: LocalizeExecution = LocalizeExecution()

    @model_validator(mode="before")
    @classmethod
    def _fill_defaults(cls, values: object) -> object:
        """Writes the localizer's defaults out, so that a stored recipe says them."""
        if not isinstance(values, dict):
            return values
        defaults = LOCALIZER_DEFAULTS.get(values.get("localizer", "contracam"), {})
        return {**values, **{name: value for name, value in defaults.items() if values.get(name) is None}}

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
    # For the small network of the demo, whose map at 96 pixels is 3 × 3 without expansion.
    "scenes": {"num_iterations": 2, "expansion": 2, "crf": True, "mask_threshold": 0.5},
}
"""Named settings of `objectaware localize --setting`."""


def localize_setting(setting: str, localizer: str) -> dict[str, Any]:
    """A named setting's fields, less those that mean nothing to a localizer."""
    foreign = set().union(*map(localizer_fields, LOCALIZER_DEFAULTS)) - localizer_fields(localizer)
    return {name: value for name, value in LOCALIZE_SETTINGS[setting].items() if name not in foreign}


class LinearConfig(Model):
    """Linear evaluation of a checkpoint.

    Attributes:
        checkpoint: Folder that pretraining wrote, or a file of another system's (docs/checkpoints.md).
        train: Labelled images that the classifier is fitted to.
        tests: Labelled images that it is measured on, by name.
        image_size: Side of the network's input in pixels.
        center_crop: The paper's protocol (short side 256 / 224 of the size, centre crop) or the squashed picture.
        holdout_fraction: Share of the training images that chooses the penalty.
        num_penalties: Values of the penalty between 1e-6 and 1e5.
        seed: Decides the hold-out.
    """

    checkpoint: Address
    train: DataConfig
    tests: dict[str, DataConfig]
    image_size: Annotated[int, Field(ge=32)] = 224
    center_crop: bool = True
    holdout_fraction: Annotated[float, Field(gt=0, lt=1)] = 0.2
    num_penalties: Positive = 45
    seed: Annotated[int, Field(ge=0)] = 0


class LocalizationConfig(Model):
    """Scoring of masks against true masks.

    Attributes:
        data: Images with true masks (`backgrounds-challenge` or `coco`).
        masks: Masks of these images, by name of the row in the table: a mask store, a folder of PNG or NPY files
            named as the images, or a COCO result file (`.json`).
        image_size: Side in pixels that pictures are squashed to for all measures; the paper's is 224.
    """

    data: DataConfig
    masks: dict[str, Address]
    image_size: Annotated[int, Field(ge=32)] = 224
