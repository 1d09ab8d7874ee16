"""Pictures that tell where a view was cut, and a loader of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from objectaware.augment.color import ColorDistribution
from objectaware.config import ViewConfig
from objectaware.data.images import Images
from objectaware.training.policies.base import Policy
from objectaware.training.views import ViewLoader


class Gradients:
    """Pictures whose red is the column and green the row, so that a view tells where it was cut."""

    def __len__(self) -> int:
        return 24

    def read(self, index: int) -> np.ndarray:
        rows, columns = np.mgrid[0:100, 0:100]
        return np.stack([columns * 2, rows * 2, np.full_like(rows, index * 10)], axis=2).astype(np.uint8)


def make_loader(
    policy: Policy,
    seed: int = 0,
    num_threads: int = 2,
    images: Images | None = None,
    views: Sequence[ViewConfig] = (ViewConfig(32, 0.2),) * 2,
) -> ViewLoader:
    return ViewLoader(
        Gradients() if images is None else images,
        policy,
        views=views,
        colors=ColorDistribution(),
        seed=seed,
        num_threads=num_threads,
    )


def load_views(loader: ViewLoader, epoch: int, indices: list[int]) -> torch.Tensor:
    """Both views of some samples, (2, N, 3, 32, 32) uint8."""
    batch = next(loader.epoch(epoch, [np.array(indices)]))
    return torch.stack(batch.views)
