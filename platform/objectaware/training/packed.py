"""What training on a pack needs besides what training on a folder does."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from objectaware.augment.crop import least_short_side
from objectaware.config import PretrainConfig
from objectaware.errors import InputError
from objectaware.training.schedule import windowed_batches


def packed_batches(config: PretrainConfig, shard_sizes: NDArray[np.int64]) -> Callable[[int], NDArray[np.int64]]:
    """The plan of an epoch's batches, (steps, batch size), which mixes some shards at a time; by epoch."""
    window = config.data.shuffle_window
    assert window is not None
    return lambda epoch: windowed_batches(shard_sizes, window, config.batch_size, seed=config.seed, epoch=epoch)


def require_detail(config: PretrainConfig, short_side: int | None) -> None:
    """Refuses images that were shrunk below what the recipe's views show.

    Raises:
        InputError: They were.
    """
    if short_side is None:
        return
    remedy = "Pack them again without --short-side, or larger."
    if config.policy.needs_whole_pictures:
        problem = f"shows details of images that are shrunk to {short_side} pixels"
        raise InputError("policy", config.policy.name, problem, remedy)
    views = config.method.views(config)
    least, view = max((least_short_side(view.size, min_scale=view.min_crop_scale), view) for view in views)
    if short_side < least:
        problem = (
            f"is a pack shrunk to a short side of {short_side} pixels, less than {least} = image_size "
            f"{view.size} / sqrt(min_crop_scale {view.min_crop_scale:g} · 3/4)"
        )
        raise InputError("data.root", config.data.root, problem, remedy)
