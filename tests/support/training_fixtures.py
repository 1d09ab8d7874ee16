"""A small data set in memory, and a trainer on it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import torch

from objectaware.augment.color import ColorDistribution
from objectaware.config import PretrainConfig, ViewConfig
from objectaware.data.dataset import TrainingImages
from objectaware.data.images import Images
from objectaware.methods.byol import BYOL
from objectaware.methods.method import Method
from objectaware.methods.moco import MoCo
from objectaware.methods.simsiam import SimSiam
from objectaware.methods.supervised import Supervised
from objectaware.training.inputs import TrainingInputs, epoch_batches
from objectaware.training.optimizers.sgd import SGDConfig
from objectaware.training.policies.background_mixup import OfficialBackground
from objectaware.training.policies.base import PlainViews, Policy
from objectaware.training.policies.cutmix import CutMix
from objectaware.training.policies.mixup import Mixup
from objectaware.training.pretraining import Trainer
from objectaware.training.session import Session
from objectaware.training.views import ViewLoader


class Pictures:
    """Random pictures of different sizes."""

    def __init__(self, number: int) -> None:
        generator = np.random.default_rng(0)
        sizes = generator.integers(40, 80, (number, 2))
        self._pictures = [generator.integers(0, 256, (*size, 3), dtype=np.uint8) for size in sizes]

    def __len__(self) -> int:
        return len(self._pictures)

    def read(self, index: int) -> np.ndarray:
        return self._pictures[index]


NUM_CLASSES = 3


def make_method(name: str) -> Method:
    torch.manual_seed(0)
    if name == "supervised":
        return Supervised("resnet10_narrow", num_classes=NUM_CLASSES)
    if name == "byol":
        return BYOL("resnet10_narrow", hidden_size=64)
    if name == "simsiam":
        return SimSiam("resnet10_narrow", projection_size=32, bottleneck_size=8)
    if name == "shuffled":
        return MoCo("resnet10_narrow", queue_size=48, num_batch_norm_splits=4, momentum_schedule="cosine")
    return MoCo("resnet10_narrow", queue_size=48)


def make_policy(name: str, num_pictures: int = 32) -> Policy:
    """A policy by name; the masks of `official_background` are boxes, anywhere and of any size."""
    if name == "official_background":
        masks = [np.zeros((20, 20), dtype=np.uint8) for _ in range(num_pictures)]
        for mask, corners in zip(masks, np.random.default_rng(1).integers(0, 20, (num_pictures, 2, 2)), strict=True):
            (top, left), (bottom, right) = np.sort(corners, axis=0)
            mask[top : bottom + 1, left : right + 1] = 200
        return OfficialBackground(masks.__getitem__, probability=0.7, threshold=0.2, hard=False)
    return {"none": PlainViews, "mixup": Mixup, "cutmix": CutMix}[name]()


def make_trainer(
    method: Method,
    session: Session,
    *,
    policy: str = "none",
    num_epochs: int = 2,
    num_pictures: int = 32,
    images: Images | None = None,
    batch_size: int = 8,
    size: int = 32,
    optimization: dict[str, Any] | None = None,
    views: Sequence[ViewConfig] | None = None,
    batches: Callable[[int], np.ndarray] | None = None,
    checkpoint_interval: int = 1,
    checkpoint_interval_steps: int | None = None,
    checkpoint_minutes: float | None = 10,
    keep_every: int = 100,
) -> Trainer:
    pictures = images or Pictures(num_pictures)
    loader = ViewLoader(
        pictures,
        make_policy(policy, num_pictures),
        views=[ViewConfig(size, 0.2)] * 2 if views is None else views,
        colors=ColorDistribution(),
        seed=0,
        num_threads=1,
        is_unreadable=getattr(pictures, "is_unreadable", lambda index: False),
    )
    settings = {"batch_size": batch_size, "optimizer": SGDConfig, "learning_rate": 0.05, **(optimization or {})}
    rate = settings.pop("learning_rate") * 256 / settings["batch_size"]
    fitted = settings.pop("optimizer")(base_learning_rate=rate, final_learning_rate=0.001, weight_decay=1e-4)
    intervals = {
        "checkpoint_interval": checkpoint_interval,
        "checkpoint_interval_steps": checkpoint_interval_steps,
        "checkpoint_minutes": checkpoint_minutes,
        "keep_every": keep_every,
    }
    learnt = {"method": "supervised" if isinstance(method, Supervised) else "moco", "backbone": method.backbone.name}
    fields = {"data": {"root": "pictures", "layout": "class-folders"}, **learnt, "optimizer": fitted, **settings}
    config = PretrainConfig.model_validate({**fields, "num_epochs": num_epochs, "execution": intervals})
    inputs = TrainingInputs(
        cast(TrainingImages, pictures),
        labels=np.arange(num_pictures) % NUM_CLASSES,
        num_classes=NUM_CLASSES,
        batches=batches or (lambda epoch: epoch_batches(len(pictures), config.batch_size, seed=0, epoch=epoch)),
        watched=np.empty(0, dtype=np.int64),
        notice="",
    )
    return Trainer(config, session, inputs, method, loader)


def training_state(trainer: Trainer) -> dict[str, torch.Tensor]:
    """All that decides how training goes on: weights, averages, queue with pointer, statistics, momenta."""
    momenta = trainer.optimizer.state_dict()["state"]
    buffers = {f"momentum {key}": value["momentum_buffer"].clone() for key, value in momenta.items()}
    weights = {name: value.clone() for name, value in trainer.method.state_dict().items()}
    return {**weights, **buffers, **trainer.policy.state()}
