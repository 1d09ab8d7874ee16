"""What a pretraining reads: the images, the order of their samples, and the loader of their views."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from objectaware.augment.color import ColorDistribution
from objectaware.config import DataConfig, PretrainConfig
from objectaware.data.dataset import Dataset, TrainingImages
from objectaware.data.pack import PackedImages
from objectaware.errors import InputError
from objectaware.evaluate.coverage import require_two_classes
from objectaware.training.packed import packed_batches, require_detail
from objectaware.training.policies import Policy
from objectaware.training.schedule import epoch_batches
from objectaware.training.views import ViewLoader

_NUM_WATCHED = 2000


@dataclass(frozen=True)
class TrainingInputs:
    """The data set of a pretraining.

    Attributes:
        images: The images; the decoded ones are kept as far as `execution.cache_mib` goes.
        labels: Class index of each image, (N,), where the layout has labels.
        num_classes: Classes.
        batches: The plan of an epoch, by its number: sample indices, (steps, batch size of all workers).
        watched: Indices of the images that k-NN accuracy is measured on.
        notice: What the user should know of the images' folder, as a line; empty where there is nothing to say.
    """

    images: TrainingImages
    labels: NDArray[np.int64] | None
    num_classes: int
    batches: Callable[[int], NDArray[np.int64]]
    watched: NDArray[np.int64]
    notice: str


def open_inputs(config: PretrainConfig) -> TrainingInputs:
    """Opens what a configuration trains on.

    Raises:
        InputError: The images or their labels do not fit the configuration.
    """
    data = Dataset(config.data)
    images = data.images
    if config.method.needs_labels:
        if images.labels is None:
            raise _unlabelled(config.data, config.method.name)
        require_two_classes("data", [images.class_names[label] for label in np.unique(images.labels).tolist()])
    if len(images) < config.batch_size:
        raise InputError("batch_size", config.batch_size, f"is more than the {len(images)} images", "Lower it.")
    unreadable: Mapping[str, str] = {}
    if isinstance(images, PackedImages):
        unreadable = images.unreadable
        require_detail(config, images.short_side)
        batches = packed_batches(config, images.shard_sizes)
        # They lie in random order; any others would have all shards read.
        watched = np.arange(min(len(images), _NUM_WATCHED))
    else:
        batches = _folder_batches(config, len(images))
        watched = np.random.default_rng(config.seed).permutation(len(images))[:_NUM_WATCHED]
    kept = TrainingImages(images, max_bytes=config.execution.cache_mib * 2**20, unreadable=unreadable)
    return TrainingInputs(kept, images.labels, len(images.class_names), batches, watched, data.notice)


def _unlabelled(data: DataConfig, method: str) -> InputError:
    problem = f"has no labels in {data.root}, and the method {method} learns from labels"
    return InputError("data.layout", data.layout, problem, "Give images in a folder a class (layout class-folders).")


def _folder_batches(config: PretrainConfig, num_images: int) -> Callable[[int], NDArray[np.int64]]:
    return lambda epoch: epoch_batches(num_images, config.batch_size, seed=config.seed, epoch=epoch)


def build_loader(config: PretrainConfig, images: TrainingImages, cache_folder: Path) -> ViewLoader:
    """Builds what loads the views that a configuration asks for.

    Args:
        config: Names policy, views and threads.
        images: The images.
        cache_folder: Local folder that the processes of a node share, for the mask store's copy.

    Raises:
        InputError: The masks do not fit the images.
    """
    brightness, contrast, saturation, hue = config.color_jitter
    policy = config.policy.build(data=config.data, images=images, method=config.method, cache_folder=cache_folder)
    assert isinstance(policy, Policy)
    return ViewLoader(
        images,
        policy,
        size=config.image_size,
        min_crop_scale=config.min_crop_scale,
        colors=ColorDistribution(
            brightness=brightness,
            contrast=contrast,
            saturation=saturation,
            hue=hue,
            grayscale_probability=config.grayscale_probability,
        ),
        seed=config.seed,
        num_threads=config.execution.num_loader_threads,
        is_unreadable=images.is_unreadable,
    )
