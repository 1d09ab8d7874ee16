"""Configuration of pretraining."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from objectaware.config.backbones import BackboneName
from objectaware.config.base import Precision, TrainingExecution
from objectaware.config.method import MethodConfig
from objectaware.config.optimizer import OptimizerConfig
from objectaware.config.policy import PolicyConfig
from objectaware.config.variants import WithOptions
from objectaware.data.dataset import DataConfig
from objectaware.model import Fraction, Minutes, Positive, filled


class PretrainExecution(TrainingExecution):
    """Settings of how pretraining runs.

    Attributes:
        num_workers: Processes that train together.
        min_workers: Smallest number of workers. If the cluster has no room for all workers, training runs with fewer,
            and with more again when there is room; the batch of all workers and the learning rate stay the same. None
            always waits for all workers.
        use_gpu: Whether each worker has one GPU; by default if the Ray cluster in use has GPUs.
        num_loader_threads: Threads of each worker or decoder that decode and crop.
        decode_on: With `workers`, each worker decodes its own images. With `cluster`, further processes on any free
            CPUs of the cluster decode images and send the views to the workers. The results are the same.
        num_decoders: Number of such processes per worker, with `num_loader_threads` CPUs each; by default 1 with
            `cluster`.
        num_compute_threads: Threads per worker that compute on a CPU; 0 leaves the number to PyTorch.
        cache_mib: Memory in MiB for decoded images, of each worker or decoder.
        checkpoint_interval: Epochs between checkpoints.
        checkpoint_interval_steps: Steps between further checkpoints inside an epoch; none by default.
        keep_every: n: the checkpoint of every n-th epoch is kept permanently, in the folder `kept` of the training's
            folder. Of the other checkpoints the newest two are kept.
        no_progress_minutes: A worker that makes no step for this time ends, and training starts again from the newest
            checkpoint. The fourth failure without a new checkpoint between them ends the run.
        evaluation_interval: Epochs between k-NN evaluations, if the data set has labels.
    """

    moved: ClassVar[tuple[str, ...]] = ("precision", "compile")

    num_workers: Positive = 1
    min_workers: Positive | None = None
    use_gpu: bool | None = None
    num_loader_threads: Positive = 2
    decode_on: Literal["workers", "cluster"] = "workers"
    num_decoders: Positive | None = None
    num_compute_threads: Annotated[int, Field(ge=0)] = 0
    cache_mib: Annotated[int, Field(ge=0)] = 1024
    checkpoint_interval: Positive = 1
    checkpoint_interval_steps: Positive | None = None
    keep_every: Positive = 100
    no_progress_minutes: Minutes = 60
    evaluation_interval: Positive = 5

    @model_validator(mode="before")
    @classmethod
    def _fill_decoders(cls, values: object) -> object:
        """Fill in the default that depends on another field."""
        if isinstance(values, dict) and values.get("decode_on") == "cluster":
            return filled(values, {"num_decoders": 1})
        return values

    @model_validator(mode="after")
    def _decoders_are_used(self) -> Self:
        if self.num_decoders is not None and self.decode_on == "workers":
            raise ValueError(f"num_decoders = {self.num_decoders} has no meaning for decode_on = workers; leave it out")
        return self

    @model_validator(mode="after")
    def _fewer_than_all(self) -> Self:
        if self.min_workers is not None and self.min_workers >= self.num_workers:
            raise ValueError(
                f"min_workers = {self.min_workers} is not less than num_workers = {self.num_workers}; leave it out"
            )
        return self

    def worker_counts(self) -> range:
        """Return every number of workers with which the training may run."""
        return range(self.min_workers or self.num_workers, self.num_workers + 1)

    def named(self, num_workers: int) -> str:
        """Name a number of workers and the field from which it follows, for messages."""
        if num_workers == self.num_workers:
            return f"execution.num_workers = {num_workers}"
        # In an elastic group, the user did not write this number.
        return f"{num_workers} workers (execution.min_workers = {self.min_workers})"


class PretrainConfig(WithOptions):
    """Pretraining of one network.

    Attributes:
        data: Images to train on. Labels, if the layout has them, serve only to monitor k-NN accuracy, unless the
            method learns from them.
        method: Method that is trained. A name alone stands for the method with its defaults.
        backbone: Network: `resnet18`, `resnet50`, `resnet10_narrow`, or any network of timm as `timm/NAME`.
        policy: Change of the positives (docs/policies.md).
        image_size: Side of the views in pixels.
        min_crop_scale: Smallest fraction of the image that a crop covers.
        color_jitter: Strength of the changes of brightness, contrast, saturation and hue.
        grayscale_probability: Fraction of the views that are made gray.
        num_epochs: Number of epochs.
        batch_size: Images per update of the weights, over all workers.
        num_accumulation_steps: Number of parts of a batch that go through the network one after another. It changes
            results: batch norm then sees one part at a time, and a queue takes its keys part by part. Weights and
            target network move once per batch.
        optimizer: Optimizer of the weights, with its learning rates. A name alone stands for the optimizer with its
            defaults.
        learning_rate_schedule: `cosine_epoch` changes the rate once per epoch (the paper's code), `cosine_step` at
            every step.
        num_warmup_epochs: Epochs in which the learning rate rises linearly, step by step, before the cosine.
        precision: `bf16` computes the networks in bfloat16, and losses and weights in 32 bits. A processor that only
            emulates bfloat16 is refused.
        compile: Whether torch.compile compiles the networks. This takes minutes at the start and changes rounding.
        seed: Seed of weights, order and augmentations.
        execution: Settings of how it runs.
    """

    data: DataConfig
    method: MethodConfig = MethodConfig.default_field()
    backbone: BackboneName = "resnet18"
    policy: PolicyConfig = PolicyConfig.default_field()
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
    num_accumulation_steps: Positive = 1
    optimizer: OptimizerConfig = OptimizerConfig.default_field()
    learning_rate_schedule: Literal["cosine_epoch", "cosine_step"] = "cosine_epoch"
    num_warmup_epochs: Annotated[int, Field(ge=0)] = 0
    precision: Precision = "fp32"
    compile: bool = False
    seed: Annotated[int, Field(ge=0)] = 0
    execution: PretrainExecution = PretrainExecution()

    @field_validator("policy")
    @classmethod
    def _complete_policy(cls, policy: PolicyConfig, info: ValidationInfo) -> PolicyConfig:
        """Fill in the policy's defaults that depend on the method."""
        method = info.data.get("method")  # missing if it was refused
        return policy if method is None else policy.completed(method)

    @model_validator(mode="after")
    def _fields_apply(self) -> Self:
        """Refuse fields that would be ignored, or that do not fit together."""
        for problem in (
            self._warm_up_problem(),
            self._batch_problem(),
            self.method.problem(self),
            self.policy.problem(self),
        ):
            if problem is not None:
                raise ValueError(problem)
        return self

    def _warm_up_problem(self) -> str | None:
        if self.num_warmup_epochs >= self.num_epochs:
            return f"num_warmup_epochs = {self.num_warmup_epochs} leaves nothing of num_epochs = {self.num_epochs}"
        return None

    def _batch_problem(self) -> str | None:
        """Return the problem with dividing a batch among any possible number of workers, or None."""
        passes = self.num_accumulation_steps
        for workers in self.execution.worker_counts():
            if self.batch_size % (workers * passes):
                each = f" × num_accumulation_steps = {passes}" if passes > 1 else ""
                share, rest = divmod(self.batch_size, workers * passes)
                sum_ = f"{self.batch_size} = {share} · {workers * passes} + {rest}"
                named = f"{self.execution.named(workers)}{each}"
                return f"batch_size = {self.batch_size} is not a multiple of {named}: {sum_}"
        if self.batch_size // passes < 2:
            return f"batch_size = {self.batch_size} in {passes} parts leaves nothing for batch norm to average"
        return None
