"""The inputs of a pretraining: the images, the order of their samples, and the loader of their views."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from objectaware.augment.color import ColorDistribution
from objectaware.augment.crop import least_short_side
from objectaware.config import PolicyInputs, PretrainConfig
from objectaware.data.dataset import Dataset, TrainingImages
from objectaware.data.pack import PackedImages
from objectaware.errors import InputError
from objectaware.evaluate.coverage import require_two_classes
from objectaware.training.policies.base import Policy
from objectaware.training.views import ViewLoader


def epoch_batches(num_samples: int, batch_size: int, *, seed: int, epoch: int) -> NDArray[np.int64]:
    """Draw the order of an epoch's samples, cut into batches of all workers together.

    Args:
        num_samples: Size of the data set, at least `batch_size`.
        batch_size: Samples per step, over all workers.
        seed: Seed of the run.
        epoch: Epoch, from 0.

    Returns:
        Sample indices, shape (num_samples // batch_size, batch_size). The rest of the last batch is left out, as
        in MoCo's code: batch statistics of a handful of samples would disturb the network. Another epoch leaves
        out others.
    """
    return _cut(np.random.default_rng([seed, epoch]).permutation(num_samples), batch_size)


def windowed_batches(
    shard_sizes: NDArray[np.int64], window: int, batch_size: int, *, seed: int, epoch: int
) -> NDArray[np.int64]:
    """Draw the order of an epoch over shards, of which a few at a time fit into memory, cut into batches.

    The shards are permuted and taken `window` at a time; the rows of a window are permuted among themselves. Rows
    that meet in a batch thus come from one window or, where one ends, from two that follow each other.

    Args:
        shard_sizes: Samples of each shard, (number of shards,); indices run through the shards in order.
        window: Shards that are mixed; from the number of shards on, all orders are equally likely.
        batch_size: Samples per step, over all workers.
        seed: Seed of the run.
        epoch: Epoch, from 0.

    Returns:
        As `epoch_batches`.
    """
    generator = np.random.default_rng([seed, epoch])
    starts = np.cumsum(shard_sizes) - shard_sizes
    shards = generator.permutation(len(shard_sizes))
    windows = [shards[first : first + window] for first in range(0, len(shards), window)]
    rows = [
        generator.permutation(np.concatenate([starts[shard] + np.arange(shard_sizes[shard]) for shard in together]))
        for together in windows
    ]
    return _cut(np.concatenate(rows), batch_size)


def _cut(order: NDArray[np.int64], batch_size: int) -> NDArray[np.int64]:
    assert len(order) >= batch_size > 0, f"{len(order)} samples do not fill a batch of {batch_size}"
    num_batches = len(order) // batch_size
    return order[: num_batches * batch_size].reshape(num_batches, batch_size)


def worker_share(batches: NDArray[np.int64], rank: int, world_size: int) -> NDArray[np.int64]:
    """Return a worker's columns of the batches: (num_batches, B) to (num_batches, B / world size)."""
    assert batches.shape[1] % world_size == 0, "the batch size must be a multiple of the number of workers"
    return np.split(batches, world_size, axis=1)[rank]


def require_detail(config: PretrainConfig, short_side: int | None) -> None:
    """Refuse images that were shrunk to fewer pixels than the views need.

    Raises:
        InputError: The images are too small.
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


_NUM_WATCHED = 2000


@dataclass(frozen=True)
class TrainingInputs:
    """The data set of a pretraining.

    Attributes:
        images: The images; the decoded ones are kept as far as `execution.cache_mib` goes.
        labels: Class index of each image, (N,), where the layout has labels.
        num_classes: Classes.
        batches: Function from an epoch to its sample indices, (steps, batch size of all workers).
        watched: Indices of the images that k-NN accuracy is measured on; empty without labels.
        notice: A line about the images' folder that the user should read; empty if there is none.
    """

    images: TrainingImages
    labels: NDArray[np.int64] | None
    num_classes: int
    batches: Callable[[int], NDArray[np.int64]]
    watched: NDArray[np.int64]
    notice: str


def open_inputs(config: PretrainConfig, data: Dataset | None = None) -> TrainingInputs:
    """Open the images, labels and plan of batches of a configuration.

    Args:
        config: The configuration.
        data: Its data set, if it is open already.

    Raises:
        InputError: The images or their labels do not fit the configuration.
    """
    data = data or Dataset.of(config.data)
    images = data.images
    if config.method.needs_labels:
        if images.labels is None:
            problem = f"has no labels in {config.data.root}, and the method {config.method.name} learns from labels"
            remedy = "Give images in one folder per class (layout class-folders)."
            raise InputError("data.layout", config.data.layout, problem, remedy)
        require_two_classes("data", [images.class_names[label] for label in np.unique(images.labels).tolist()])
    if len(images) < config.batch_size:
        raise InputError("batch_size", config.batch_size, f"is more than the {len(images)} images", "Lower it.")
    unreadable: Mapping[str, str] = {}
    if isinstance(images, PackedImages):
        unreadable = images.unreadable
        require_detail(config, images.short_side)
        assert config.data.shuffle_window is not None
        order = partial(windowed_batches, images.shard_sizes, config.data.shuffle_window)
        # They lie in random order; any others would have all shards read.
        watched = np.arange(min(len(images), _NUM_WATCHED))
    else:
        order = partial(epoch_batches, len(images))
        watched = np.random.default_rng(config.seed).permutation(len(images))[:_NUM_WATCHED]
    kept = TrainingImages(images, max_bytes=config.execution.cache_mib * 2**20, unreadable=unreadable)

    def batches(epoch: int) -> NDArray[np.int64]:
        return order(config.batch_size, seed=config.seed, epoch=epoch)

    if images.labels is None:
        watched = watched[:0]
    return TrainingInputs(kept, images.labels, len(images.class_names), batches, watched, data.notice)


def build_loader(config: PretrainConfig, images: TrainingImages, cache_folder: Path) -> ViewLoader:
    """Build the loader of the views that a configuration asks for.

    Args:
        config: Names policy, views and threads.
        images: The images.
        cache_folder: Local folder that the processes of a node share, for the mask store's copy.

    Raises:
        InputError: The masks do not fit the images.
    """
    policy = config.policy.build(PolicyInputs(config.data, images, config.method, cache_folder))
    assert isinstance(policy, Policy)
    return ViewLoader(
        images,
        policy,
        views=config.method.views(config),
        colors=ColorDistribution(
            config.color_jitter,
            grayscale_probability=config.grayscale_probability,
            blur_probability=config.blur_probability,
        ),
        seed=config.seed,
        num_threads=config.execution.num_loader_threads,
        is_unreadable=images.is_unreadable,
    )
