"""Configuration of fine-tuning a detector on COCO and of scoring detectors."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from objectaware.config.base import Precision, TrainingExecution
from objectaware.data.dataset import DataConfig
from objectaware.data.layouts import layout_named, layouts
from objectaware.model import CheckpointAddress, Minutes, Model, Positive

Side = Annotated[int, Field(ge=32)]
Count = Annotated[int, Field(ge=0)]
_OF_TEST = ("published", "test", "test_short_side", "max_side", "num_test_proposals", "execution")


class DetectionExecution(TrainingExecution):
    """Settings of how fine-tuning and scoring run.

    Attributes:
        num_workers: Processes that train together; the batch is split evenly among them. The same number of tasks
            scores.
        use_gpu: Whether each worker has one GPU; by default if the Ray cluster in use has GPUs.
        num_loader_threads: Threads per worker that decode images and draw masks.
        num_compute_threads: Threads per worker that compute on a CPU; 0 leaves the number to PyTorch.
        checkpoint_interval: Iterations between checkpoints, rounded up to whole log intervals.
        no_progress_minutes: A worker that makes no step for this time ends, and training starts again from the newest
            checkpoint. The fourth failure without a new checkpoint between them ends the run.
    """

    num_workers: Positive = 1
    use_gpu: bool | None = None
    num_loader_threads: Positive = 2
    num_compute_threads: Count = 0
    checkpoint_interval: Positive = 5000
    no_progress_minutes: Minutes = 60

    def worker_counts(self) -> range:
        """Return every number of workers with which the training may run."""
        return range(self.num_workers, self.num_workers + 1)


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
    def _one_network(self) -> Self:
        if (self.checkpoint is None) == (self.published is None):
            raise ValueError("give either a checkpoint to fine-tune or a published network to score")
        if self.published is None and self.data is None:
            raise ValueError("data is missing: the images to train on")
        return self

    @model_validator(mode="after")
    def _fields_apply(self) -> Self:
        """Refuse training settings if nothing is trained."""
        if self.published is None:
            return self
        for name, field in type(self).model_fields.items():
            if name not in _OF_TEST and getattr(self, name) != field.default:
                raise ValueError(f"{name} has no meaning for a published network, which is not trained; leave it out")
        return self

    @model_validator(mode="after")
    def _coco(self) -> Self:
        for name, data in (("data", self.data), ("test", self.test)):
            if data is not None and not layout_named(data.layout).has_instances:
                known = " or ".join(layout.name for layout in layouts() if layout.has_instances)
                raise ValueError(f"{name}.layout = {data.layout} has no boxes of objects; use the layout {known}")
        return self

    @model_validator(mode="after")
    def _whole_shares(self) -> Self:
        workers = self.execution.num_workers
        if self.published is None and self.batch_size % workers:
            raise ValueError(f"batch_size = {self.batch_size} is not a multiple of execution.num_workers = {workers}")
        return self
