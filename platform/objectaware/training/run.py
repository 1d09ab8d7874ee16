"""One worker's pretraining from its configuration."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from objectaware.augment.color import ColorDistribution
from objectaware.augment.crop import least_short_side
from objectaware.config import PretrainConfig
from objectaware.data.cache import TrainingImages
from objectaware.data.shards import PackedImages
from objectaware.data.storage import Storage
from objectaware.errors import InputError
from objectaware.evaluate.features import compute_features
from objectaware.evaluate.knn import knn_accuracy
from objectaware.localize.mask_table import MaskTable
from objectaware.methods.byol import BYOL
from objectaware.methods.checkpoint import CONFIG_NAME
from objectaware.methods.moco import MoCo
from objectaware.training.loop import Optimization, Trainer
from objectaware.training.policies import BackgroundMixup, ObjectCrop, PlainViews, Policy
from objectaware.training.precision import choose_precision
from objectaware.training.schedule import scaled_learning_rate, windowed_batches
from objectaware.training.session import Session
from objectaware.training.views import ViewLoader

_NUM_KNN_IMAGES = 2000


def run_pretraining(config: PretrainConfig, session: Session, *, cache_folder: Path) -> None:
    """Pretrains as one of the session's workers.

    Args:
        config: What to train.
        session: This worker's place among the others.
        cache_folder: Local folder that the workers of a node share, for the mask store's copy.

    Raises:
        InputError: The images or the masks do not fit the configuration.
        TrainingDivergedError: The loss is not a number any more.
        StoppedError: A worker was told to end; where training stood is saved.
    """
    images = config.data.open()
    if len(images) < config.batch_size:
        raise InputError("batch_size", config.batch_size, f"is more than the {len(images)} images", "Lower it.")
    batches: Callable[[int], NDArray[np.int64]] | None = None
    watched = np.random.default_rng(config.seed).permutation(len(images))[:_NUM_KNN_IMAGES]
    if isinstance(images, PackedImages):
        require_detail(config, images.short_side)
        batches = _packed_batches(config, images.shard_sizes)
        # They lie in random order; any others would have all shards read.
        watched = np.arange(min(len(images), _NUM_KNN_IMAGES))
    kept = TrainingImages(images, max_bytes=config.execution.cache_mib * 2**20)
    # Weights and the queue's first negatives come from the seed; nothing after that draws from this generator.
    torch.manual_seed(config.seed)
    method = build_method(config)
    precision = resolve_precision(config, method.backbone, session)
    loader = ViewLoader(
        kept,
        build_policy(config, kept, cache_folder),
        size=config.image_size,
        min_crop_scale=config.min_crop_scale,
        colors=_colors(config),
        seed=config.seed,
        num_threads=config.execution.num_loader_threads,
    )
    labels = images.labels
    trainer = Trainer(
        method,
        loader,
        len(kept),
        _optimization(config),
        session,
        config={**config.model_dump(mode="json"), "precision": precision},
        precision=precision,
        checkpoint_interval=config.execution.checkpoint_interval,
        batches=batches,
        checkpoint_interval_steps=config.execution.checkpoint_interval_steps,
        evaluate=None if labels is None else _KnnWatch(kept, labels, config.image_size, watched),
        evaluation_interval=config.execution.evaluation_interval,
        num_unreadable=lambda: len(kept.unreadable),
    )
    trainer.run()


def _packed_batches(config: PretrainConfig, shard_sizes: NDArray[np.int64]) -> Callable[[int], NDArray[np.int64]]:
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
    if config.policy == "object_crop":
        raise InputError("policy", config.policy, f"crops objects out of images shrunk to {short_side} pixels", remedy)
    least = least_short_side(config.image_size, min_scale=config.min_crop_scale)
    if short_side < least:
        problem = (
            f"is a pack shrunk to a short side of {short_side} pixels, less than {least} = image_size "
            f"{config.image_size} / sqrt(min_crop_scale {config.min_crop_scale:g} · 3/4)"
        )
        raise InputError("data.root", config.data.root, problem, remedy)


def build_method(config: PretrainConfig) -> MoCo | BYOL:
    """Builds the untrained method that a configuration names."""
    assert config.momentum is not None
    if config.method == "byol":
        return BYOL(config.backbone, momentum=config.momentum)
    assert config.queue_size is not None
    assert config.temperature is not None
    return MoCo(
        config.backbone,
        queue_size=config.queue_size,
        momentum=config.momentum,
        temperature=config.temperature,
    )


def build_policy(config: PretrainConfig, images: TrainingImages, cache_folder: Path) -> Policy:
    """Builds the policy that a configuration names, its masks read from a node-local copy of the mask store."""
    if config.policy == "none":
        return PlainViews()
    assert config.masks is not None
    table = MaskTable.open(Storage.from_uri(config.masks), cache_folder)
    if config.policy == "object_crop":
        return ObjectCrop(StoredBoxes(table, images.image_ids))
    assert config.mix_probability is not None
    assert config.background_threshold is not None
    masks = StoredMasks(table, images.image_ids, binary=config.mask_field == "mask")
    policy = BackgroundMixup(images, masks, probability=config.mix_probability, threshold=config.background_threshold)
    if not len(policy.donors):
        raise InputError(
            "masks", config.masks, "holds no background for any of the images", "Localize these images first."
        )
    return policy


class StoredMasks:
    """Masks of a data set's images out of a mask table.

    Args:
        table: The masks.
        image_ids: The data set's images, in order.
        binary: The binary masks instead of the soft ones.
    """

    def __init__(self, table: MaskTable, image_ids: list[str], *, binary: bool) -> None:
        self._table = table
        self._image_ids = image_ids
        self._binary = binary

    def __len__(self) -> int:
        return len(self._image_ids)

    def __getitem__(self, index: int) -> NDArray[np.uint8] | None:
        """Mask in 8 bits, (h, w), or None where localization failed."""
        if not self._binary:
            return self._table.cam(self._image_ids[index])
        mask = self._table.mask(self._image_ids[index])
        return None if mask is None else mask.astype(np.uint8) * np.uint8(255)


class StoredBoxes:
    """Boxes of a data set's images out of a mask table, empty where localization failed."""

    def __init__(self, table: MaskTable, image_ids: list[str]) -> None:
        self._table = table
        self._image_ids = image_ids

    def __getitem__(self, index: int) -> NDArray[np.float32]:
        """Relative boxes, (n, 4)."""
        boxes = self._table.boxes(self._image_ids[index])
        return np.zeros((0, 4), dtype=np.float32) if boxes is None else boxes


def resolve_precision(config: PretrainConfig, backbone: nn.Module, session: Session) -> str:
    """The precision to train in: as configured, as the run began, or the faster one of a trial by rank 0."""
    if config.execution.precision != "auto":
        return config.execution.precision
    restored = session.restored()
    if restored is not None:
        # A run goes on as it began, also where a second trial would turn out the other way.
        return str(json.loads((restored / CONFIG_NAME).read_text())["precision"])
    chosen = choose_precision(
        backbone,
        session.device,
        batch_size=config.batch_size // session.world_size,
        image_size=config.image_size,
    )
    return session.agree(chosen)


def _colors(config: PretrainConfig) -> ColorDistribution:
    brightness, contrast, saturation, hue = config.color_jitter
    return ColorDistribution(
        brightness=brightness,
        contrast=contrast,
        saturation=saturation,
        hue=hue,
        grayscale_probability=config.grayscale_probability,
    )


def _optimization(config: PretrainConfig) -> Optimization:
    return Optimization(
        num_epochs=config.num_epochs,
        batch_size=config.batch_size,
        learning_rate=scaled_learning_rate(config.base_learning_rate, config.batch_size),
        final_learning_rate=config.final_learning_rate,
        momentum=config.sgd_momentum,
        weight_decay=config.weight_decay,
        seed=config.seed,
    )


class _KnnWatch:
    """k-NN accuracy of the online backbone within the training images: a tenth of them classified by the rest."""

    def __init__(self, images: TrainingImages, labels: NDArray[np.int64], size: int, chosen: NDArray[np.int64]) -> None:
        self._images = images
        self._size = size
        self._chosen = chosen
        self._labels = torch.from_numpy(labels[chosen])

    def __call__(self, backbone: nn.Module) -> Mapping[str, float]:
        device = next(backbone.parameters()).device
        features: Tensor = compute_features(
            backbone, self._images, self._chosen.tolist(), size=self._size, center_crop=False, device=device
        ).values
        num_queries = max(len(features) // 10, 1)
        accuracy = knn_accuracy(
            features[num_queries:],
            self._labels[num_queries:],
            features[:num_queries],
            self._labels[:num_queries],
        )
        return {"knn_accuracy": accuracy}
