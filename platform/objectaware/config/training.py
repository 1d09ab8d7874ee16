"""Configurations of pretraining and of detection's fine-tuning."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from objectaware.config.variants import BackboneName, MethodConfig, OptimizerConfig, PolicyConfig, WithOptions
from objectaware.data.dataset import DataConfig, layout_named, layouts
from objectaware.model import CheckpointAddress, Count, Fraction, Minutes, Model, Positive, Side, StageExecution, filled

Precision = Literal["fp32", "bf16"]


class TrainingExecution(StageExecution):
    """Base of the settings of how a training runs. They change speed and place, but never a result.

    Attributes:
        moved: Fields that used to be here and are now fields of the recipe itself.
        num_workers: Processes that train together.
        use_gpu: Whether each worker has one GPU; by default if the Ray cluster in use has GPUs or can have some.
        num_loader_threads: Threads per worker that read and prepare images.
        num_compute_threads: Threads per worker that compute on a CPU; 0 leaves the number to PyTorch.
        checkpoint_minutes: Minutes after which a checkpoint is made inside an epoch if none was made meanwhile. It is
            uploaded while training continues. None makes none by time.
        no_progress_minutes: A worker that makes no step for this time ends, and training starts again from the newest
            checkpoint. Until its first step, a worker has two hours. The fourth failure without a new checkpoint
            between them ends the run.
    """

    moved: ClassVar[tuple[str, ...]] = ("precision",)

    num_workers: Positive = 1
    use_gpu: bool | None = None
    num_loader_threads: Positive = 2
    num_compute_threads: Count = 0
    checkpoint_minutes: Minutes | None = 10
    no_progress_minutes: Minutes = 10

    @model_validator(mode="before")
    @classmethod
    def _refuse_moved(cls, values: object) -> object:
        for name in cls.moved:
            if isinstance(values, dict) and name in values:
                raise ValueError(
                    f"execution.{name} changes the result and is named {name} now: write {name} beside execution, not "
                    f"in it (--{name} VALUE)"
                )
        return values

    def worker_counts(self) -> range:
        """Return every number of workers with which the training may run."""
        return range(self.num_workers, self.num_workers + 1)


class PretrainExecution(TrainingExecution):
    """Settings of how pretraining runs.

    Attributes:
        min_workers: Smallest number of workers. If the cluster has no room for all workers, training runs with fewer,
            and with more again when there is room; the batch of all workers and the learning rate stay the same. None
            always waits for all workers.
        num_loader_threads: Threads of each worker or decoder that decode and crop.
        decode_on: With `workers`, each worker decodes its own images. With `cluster`, further processes on any free
            CPUs of the cluster decode images and send the views to the workers. The results are the same.
        num_decoders: Number of such processes per worker, with `num_loader_threads` CPUs each; by default 1 with
            `cluster`.
        cache_mib: Memory in MiB for decoded images, of each worker or decoder.
        checkpoint_interval: Epochs between checkpoints.
        checkpoint_interval_steps: Steps between further checkpoints inside an epoch; none by default.
        keep_every: n: the checkpoint of every n-th epoch is kept permanently, in the folder `kept` of the training's
            folder. Of the other checkpoints the newest two are kept.
        evaluation_interval: Epochs between k-NN evaluations, if the data set has labels.
        record_every_steps: n: in MLflow, every n-th step has the metrics since the one before (`steps/…`).
    """

    moved: ClassVar[tuple[str, ...]] = ("precision", "compile")

    min_workers: Positive | None = None
    decode_on: Literal["workers", "cluster"] = "workers"
    num_decoders: Positive | None = None
    cache_mib: Count = 1024
    checkpoint_interval: Positive = 1
    checkpoint_interval_steps: Positive | None = None
    keep_every: Positive = 100
    evaluation_interval: Positive = 5
    record_every_steps: Positive = 100

    @model_validator(mode="before")
    @classmethod
    def _fill_decoders(cls, values: object) -> object:
        """Fill in the default that depends on another field."""
        if isinstance(values, dict) and values.get("decode_on") == "cluster":
            return filled(values, {"num_decoders": 1})
        return values

    @model_validator(mode="after")
    def _fields_apply(self) -> Self:
        if self.num_decoders is not None and self.decode_on == "workers":
            raise ValueError(f"num_decoders = {self.num_decoders} has no meaning for decode_on = workers; leave it out")
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
        blur_probability: Fraction of the views that are blurred, by up to 2 pixels, which is much in a small view.
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
    image_size: Side = 224
    min_crop_scale: Annotated[float, Field(gt=0, le=1)] = 0.08
    color_jitter: tuple[Fraction, Fraction, Fraction, Annotated[float, Field(ge=0, le=0.5)]] = (0.4, 0.4, 0.4, 0.1)
    grayscale_probability: Fraction = 0.2
    blur_probability: Fraction = 0.5
    num_epochs: Positive = 800
    batch_size: Annotated[int, Field(ge=2)] = 256
    num_accumulation_steps: Positive = 1
    optimizer: OptimizerConfig = OptimizerConfig.default_field()
    learning_rate_schedule: Literal["cosine_epoch", "cosine_step"] = "cosine_epoch"
    num_warmup_epochs: Count = 0
    precision: Precision = "fp32"
    compile: bool = False
    seed: Count = 0
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
        if self.num_warmup_epochs >= self.num_epochs:
            raise ValueError(
                f"num_warmup_epochs = {self.num_warmup_epochs} is not less than num_epochs = {self.num_epochs}"
            )
        for problem in (self._batch_problem(), self.method.problem(self), self.policy.problem(self)):
            if problem is not None:
                raise ValueError(problem)
        return self

    def _batch_problem(self) -> str | None:
        """Return the problem with dividing a batch among any possible number of workers, or None."""
        passes = self.num_accumulation_steps
        for workers in self.execution.worker_counts():
            share, rest = divmod(self.batch_size, workers * passes)
            if rest:
                named = self.execution.named(workers)
                if passes > 1:
                    named += f" × num_accumulation_steps = {passes}"
                sum_ = f"{self.batch_size} = {share} · {workers * passes} + {rest}"
                return f"batch_size = {self.batch_size} is not a multiple of {named}: {sum_}"
        if self.batch_size // passes < 2:
            return f"batch_size = {self.batch_size} in {passes} parts is one image per part, too few for batch norm"
        return None


_OF_TEST = ("published", "test", "test_short_side", "max_side", "num_test_proposals", "execution")


class DetectionExecution(TrainingExecution):
    """Settings of how fine-tuning and scoring run.

    Attributes:
        num_workers: Processes that train together; the batch is split evenly among them. The same number of tasks
            scores.
        num_loader_threads: Threads per worker that decode images and draw masks.
        checkpoint_interval: Iterations between checkpoints, rounded up to whole log intervals.
    """

    checkpoint_interval: Positive = 5000


class DetectionConfig(Model):
    """Fine-tuning and scoring of a Mask R-CNN (R50-C4 of the paper) on COCO, or only scoring of a published network.

    The defaults are MoCo's (facebookresearch/moco, detection/configs/coco_R_50_C4_2x_moco.yaml, on detectron2).

    Attributes:
        checkpoint: Backbone to fine-tune: a folder that pretraining wrote, or another system's file.
        published: Instead of `checkpoint`: state dict of torchvision's fasterrcnn_resnet50_fpn or
            maskrcnn_resnet50_fpn, which is scored without training.
        data: COCO images to train on; only with `checkpoint`.
        test: COCO images to score on.
        num_iterations: Number of updates of the weights.
        decay_iterations: Iterations at which the learning rate falls to a tenth.
        num_warmup_iterations: Iterations in which the learning rate rises linearly from a thousandth.
        learning_rate: Learning rate, not scaled with the batch.
        sgd_momentum: Momentum of the optimizer.
        weight_decay: Weight decay, not applied to batch norm.
        batch_size: Images per update, over all workers; the paper's code has 8 and the same learning rate.
        short_sides: Sizes in pixels for the short side of a training image; each image gets one at random.
        test_short_side: Size in pixels of the short side of a test image.
        max_side: Largest size in pixels of the long side of any image.
        num_regions: Regions per image from which the heads learn.
        num_train_proposals: Proposals per image from which these regions are drawn.
        num_test_proposals: Proposals per test image.
        num_precise_batches: Batches from which batch norm's statistics are computed again after the last iteration
            (detectron2's PreciseBN); 0 keeps the moving averages.
        precision: `bf16` fine-tunes with convolutions and linear layers in bfloat16, and boxes and losses in 32 bits;
            scoring is in 32 bits. A processor that only emulates bfloat16 is refused.
        log_interval: Iterations over which each point of the loss curve is averaged.
        seed: Seed of new weights, order, flips, sizes and the choice of regions.
        execution: Settings of how it runs.
    """

    checkpoint: CheckpointAddress | None = None
    published: CheckpointAddress | None = None
    data: DataConfig | None = None
    test: DataConfig
    num_iterations: Positive = 180_000
    decay_iterations: tuple[Positive, ...] = (120_000, 160_000)
    num_warmup_iterations: Count = 1000
    learning_rate: Annotated[float, Field(gt=0)] = 0.02
    sgd_momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    weight_decay: Annotated[float, Field(ge=0)] = 1e-4
    batch_size: Positive = 16
    short_sides: Annotated[tuple[Side, ...], Field(min_length=1)] = (640, 672, 704, 736, 768, 800)
    test_short_side: Side = 800
    max_side: Side = 1333
    num_regions: Positive = 512
    num_train_proposals: Positive = 2000
    num_test_proposals: Positive = 1000
    num_precise_batches: Count = 200
    precision: Precision = "fp32"
    log_interval: Positive = 100
    seed: Count = 0
    execution: DetectionExecution = DetectionExecution()

    @property
    def num_epochs(self) -> int:
        """Return the number of log intervals, which training reports to its session as epochs."""
        return -(-self.num_iterations // self.log_interval)

    @model_validator(mode="after")
    def _fields_apply(self) -> Self:
        """Require one network, refuse settings of a training if nothing is trained, and check the rest's values."""
        if (self.checkpoint is None) == (self.published is None):
            raise ValueError("give either a checkpoint to fine-tune or a published network to score")
        if self.published is None and self.data is None:
            raise ValueError("data is missing: the images to train on")
        for name, field in type(self).model_fields.items():
            if self.published is not None and name not in _OF_TEST and getattr(self, name) != field.default:
                raise ValueError(f"{name} has no meaning for a published network, which is not trained; leave it out")
        for name, data in (("data", self.data), ("test", self.test)):
            if data is not None and not layout_named(data.layout).has_instances:
                known = " or ".join(layout.name for layout in layouts() if layout.has_instances)
                raise ValueError(f"{name}.layout = {data.layout} has no boxes of objects; use the layout {known}")
        workers = self.execution.num_workers
        if self.published is None and self.batch_size % workers:
            raise ValueError(f"batch_size = {self.batch_size} is not a multiple of execution.num_workers = {workers}")
        return self
