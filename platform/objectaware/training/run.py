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
from objectaware.config import DataConfig, PretrainConfig
from objectaware.data.cache import TrainingImages
from objectaware.data.shards import PackedImages
from objectaware.data.storage import Storage
from objectaware.errors import InputError
from objectaware.evaluate.features import compute_features
from objectaware.evaluate.knn import knn_accuracy
from objectaware.methods.byol import BYOL
from objectaware.methods.checkpoint import CONFIG_NAME
from objectaware.methods.method import Method
from objectaware.methods.moco import MoCo
from objectaware.methods.supervised import Supervised
from objectaware.training.compilation import compile_networks
from objectaware.training.kept import KeptCheckpoints
from objectaware.training.loop import Trainer
from objectaware.training.optimization import Optimization
from objectaware.training.packed import packed_batches, require_detail
from objectaware.training.policies import build_policy
from objectaware.training.precision import choose_precision
from objectaware.training.schedule import scaled_learning_rate
from objectaware.training.session import Session
from objectaware.training.views import ViewLoader

_NUM_KNN_IMAGES = 2000


def run_pretraining(config: PretrainConfig, session: Session, *, cache_folder: Path, kept_folder: Storage) -> None:
    """Pretrains as one of the session's workers.

    Args:
        config: What to train.
        session: This worker's place among the others.
        cache_folder: Local folder that the workers of a node share, for the mask store's copy.
        kept_folder: Where the checkpoints go that are kept for ever.

    Raises:
        InputError: The images, their labels or the masks do not fit the configuration.
        TrainingDivergedError: The loss is not a number any more.
        TrainingCollapsedError: All images have the same embedding.
        StoppedError: A worker was told to end; where training stood is saved.
    """
    images = config.data.open()
    labels = images.labels
    if config.method == "supervised" and labels is None:
        raise _unlabelled(config.data)
    if len(images) < config.batch_size:
        raise InputError("batch_size", config.batch_size, f"is more than the {len(images)} images", "Lower it.")
    batches: Callable[[int], NDArray[np.int64]] | None = None
    watched = np.random.default_rng(config.seed).permutation(len(images))[:_NUM_KNN_IMAGES]
    if isinstance(images, PackedImages):
        require_detail(config, images.short_side)
        batches = packed_batches(config, images.shard_sizes)
        # They lie in random order; any others would have all shards read.
        watched = np.arange(min(len(images), _NUM_KNN_IMAGES))
    kept = TrainingImages(images, max_bytes=config.execution.cache_mib * 2**20)
    # Weights and the queue's first negatives come from the seed; nothing after that draws from this generator.
    torch.manual_seed(config.seed)
    method = build_method(config, num_classes=len(images.class_names))
    precision = resolve_precision(config, method.backbone, session)
    if config.execution.compile:
        compile_networks(method)
    loader = ViewLoader(
        kept,
        build_policy(config, kept, cache_folder),
        size=config.image_size,
        min_crop_scale=config.min_crop_scale,
        colors=_colors(config),
        seed=config.seed,
        num_threads=config.execution.num_loader_threads,
    )
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
        labels=labels if config.method == "supervised" else None,
        kept=KeptCheckpoints(kept_folder, config.execution.keep_every),
    )
    trainer.run()


def _unlabelled(data: DataConfig) -> InputError:
    problem = f"has no labels in {data.root}, and the method supervised learns from labels"
    return InputError("data.layout", data.layout, problem, "Give images in a folder a class (layout class-folders).")


def build_method(config: PretrainConfig, *, num_classes: int) -> Method:
    """Builds the untrained method that a configuration names; `num_classes` are the data set's."""
    if config.method == "supervised":
        return Supervised(config.backbone, num_classes=num_classes)
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
        num_batch_norm_splits=config.num_batch_norm_splits or 1,
        num_batch_candidates=config.batch_size if config.policy in ("mixup", "cutmix") else 1,
    )


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
        optimizer=config.optimizer,
        learning_rate_schedule=config.learning_rate_schedule,
        num_warmup_epochs=config.num_warmup_epochs,
        momentum_schedule=config.momentum_schedule,
        num_accumulation_steps=config.num_accumulation_steps,
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
