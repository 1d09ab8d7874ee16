"""The evaluations' work, as functions that run anywhere on the cluster."""

from __future__ import annotations

from typing import Any

import torch

from objectaware.config import DataConfig, LinearConfig, LocalizationConfig
from objectaware.data.catalog import TrueMasks
from objectaware.data.storage import Storage
from objectaware.errors import InputError
from objectaware.evaluate.features import compute_features
from objectaware.evaluate.linear import accuracy, linear_evaluation
from objectaware.evaluate.store_scores import score_store, score_trivial
from objectaware.localize.mask_store import read_rows
from objectaware.methods.backbones import channels_last
from objectaware.methods.checkpoint import load_encoder, local_checkpoint


def measure_linear(config: LinearConfig) -> dict[str, Any]:
    """Fits and measures the linear classifier; see `run_linear` for the values."""
    with local_checkpoint(config.checkpoint) as folder:
        backbone = load_encoder(folder).backbone
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    backbone = channels_last(backbone, device)
    features, labels, unreadable = _labelled_features(config, config.train, backbone, device)
    result = linear_evaluation(
        features,
        labels,
        holdout_fraction=config.holdout_fraction,
        seed=config.seed,
        num_values=config.num_penalties,
    )
    accuracies: dict[str, float] = {}
    for name, data in config.tests.items():
        test_features, test_labels, missing = _labelled_features(config, data, backbone, device)
        accuracies[name] = accuracy(result.model, test_features, test_labels)
        unreadable += missing
    return {
        "accuracies": accuracies,
        "penalty": float(result.penalty),
        "holdout_accuracy": float(result.holdout_accuracies.max()),
        "unreadable": unreadable,
    }


def _labelled_features(
    config: LinearConfig, data: DataConfig, backbone: torch.nn.Module, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor, int]:
    """Features (N, C) and labels (N,) of the images that can be read, and the number of those that cannot."""
    images = data.open()
    if images.labels is None:
        raise InputError(
            "layout", data.layout, "has no labels", "Use class-folders, backgrounds-challenge or coco-crop."
        )
    features = compute_features(
        backbone,
        images,
        range(len(images)),
        size=config.image_size,
        center_crop=config.center_crop,
        device=device,
    )
    labels = torch.from_numpy(images.labels)[features.indices]
    return features.values, labels, len(features.unreadable)


def measure_localization(config: LocalizationConfig) -> dict[str, float]:
    """Scores the mask stores and the trivial baselines; see `run_localization` for the values."""
    data = config.data
    images = data.open()
    if data.split is None:
        raise InputError("layout", data.layout, "has no true masks", "Use backgrounds-challenge or coco.")
    truths = TrueMasks(data.root, data.layout, data.split, images.image_ids)
    place = {image_id: index for index, image_id in enumerate(images.image_ids)}
    scores: dict[str, float] = {}
    for name, masks in config.masks.items():
        values = score_store(read_rows(Storage.from_uri(masks)), truths, place)
        scores |= {name: values["mask"], f"{name} soft": values["soft"]}
    return scores | score_trivial(truths)
