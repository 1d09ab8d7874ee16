"""A small data set in memory, and a trainer on it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from objectaware.augment.color import ColorDistribution
from objectaware.data.images import Images
from objectaware.methods.byol import BYOL
from objectaware.methods.moco import MoCo
from objectaware.training.loop import Optimization, Trainer
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


def make_method(name: str) -> nn.Module:
    torch.manual_seed(0)
    if name == "moco":
        return MoCo("resnet10_narrow", queue_size=48)
    return BYOL("resnet10_narrow", hidden_size=64)


def make_trainer(
    method: nn.Module,
    session: Session,
    *,
    num_epochs: int = 2,
    num_pictures: int = 32,
    checkpoint_interval_steps: int | None = None,
    images: Images | None = None,
    batches: Callable[[int], NDArray[np.int64]] | None = None,
) -> Trainer:
    pictures = images or Pictures(num_pictures)
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
        Optimization(num_epochs, 8, 0.05, 0.001, 0.9, 1e-4, 0),
        session,
        config={"backbone": "resnet10_narrow"},
        precision="fp32",
        checkpoint_interval=1,
        checkpoint_interval_steps=checkpoint_interval_steps,
        batches=batches,
    )


def training_state(trainer: Trainer) -> dict[str, torch.Tensor]:
    """All that decides how training goes on: weights, averages, queue with pointer, statistics, momenta."""
    momenta = trainer.optimizer.state_dict()["state"]
    buffers = {f"momentum {key}": value["momentum_buffer"].clone() for key, value in momenta.items()}
    return {**{name: value.clone() for name, value in trainer.method.state_dict().items()}, **buffers}
