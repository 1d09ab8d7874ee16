"""A small data set in memory, and a trainer on it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from objectaware.augment.color import ColorDistribution
from objectaware.methods.byol import BYOL
from objectaware.methods.method import Method
from objectaware.methods.moco import MoCo
from objectaware.methods.supervised import Supervised
from objectaware.training.loop import Trainer
from objectaware.training.optimization import Optimization
from objectaware.training.policies import PlainViews
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
    return MoCo("resnet10_narrow", queue_size=48, num_batch_norm_splits=4 if name == "shuffled" else 1)


def make_trainer(
    method: Method,
    session: Session,
    *,
    num_epochs: int = 2,
    num_pictures: int = 32,
    batch_size: int = 8,
    optimization: dict[str, Any] | None = None,
    **options: Any,
) -> Trainer:
    pictures = Pictures(num_pictures)
    loader = ViewLoader(
        pictures,
        PlainViews(),
        size=32,
        min_crop_scale=0.2,
        colors=ColorDistribution(),
        seed=0,
        num_threads=1,
    )
    return Trainer(
        method,
        loader,
        len(pictures),
        replace(Optimization(num_epochs, batch_size, 0.05, 0.001, 0.9, 1e-4, 0), **(optimization or {})),
        session,
        config={"backbone": "resnet10_narrow"},
        precision="fp32",
        labels=np.arange(num_pictures) % NUM_CLASSES if isinstance(method, Supervised) else None,
        **{"checkpoint_interval": 1, **options},
    )
