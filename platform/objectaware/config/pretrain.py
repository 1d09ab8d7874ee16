"""Configuration of pretraining."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from objectaware.config.base import Address, DataConfig, Fraction, Model, Positive

Backbone = Literal["resnet18", "resnet50", "resnet10_narrow"]


class PretrainExecution(Model):
    """How pretraining runs.

    Attributes:
        num_workers: Processes that train together.
        min_workers: Train with fewer workers, down to so many, where the cluster has no room for all, and with more
            when it has again; the batch of all workers and the learning rate stay. None always waits for all.
        use_gpu: One GPU a worker.
        num_loader_threads: Threads a worker that decode and crop.
        num_compute_threads: Threads a worker that compute on a CPU; 0 leaves it to PyTorch.
        cache_mib: Decoded images kept in memory up to this size, a worker.
        checkpoint_interval: Epochs between checkpoints.
        checkpoint_interval_steps: Steps between further checkpoints inside an epoch; none by default.
        evaluation_interval: Epochs between k-NN evaluations, where labels exist.
        precision: `auto` times both and keeps the faster.
    """

    num_workers: Positive = 1
    min_workers: Positive | None = None
    use_gpu: bool = False
    num_loader_threads: Positive = 2
    num_compute_threads: Annotated[int, Field(ge=0)] = 0
    cache_mib: Annotated[int, Field(ge=0)] = 1024
    checkpoint_interval: Positive = 1
    checkpoint_interval_steps: Positive | None = None
    evaluation_interval: Positive = 5
    precision: Literal["auto", "fp32", "bf16"] = "auto"

    @model_validator(mode="after")
    def _fewer_than_all(self) -> Self:
        if self.min_workers is not None and self.min_workers >= self.num_workers:
            raise ValueError(
                f"min_workers = {self.min_workers} is not less than num_workers = {self.num_workers}; leave it out"
            )
        return self

    def worker_counts(self) -> range:
        """Every number of workers that may train."""
        return range(self.min_workers or self.num_workers, self.num_workers + 1)


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
        for count in self.execution.worker_counts():
            if self.batch_size % count:
                raise ValueError(
                    f"batch_size = {self.batch_size} is not a multiple of {count} workers "
                    f"(execution.num_workers = {self.execution.num_workers}, execution.min_workers = "
                    f"{self.execution.min_workers}): {self.batch_size} = {self.batch_size // count} · {count} + "
                    f"{self.batch_size % count}"
                )
        return self
