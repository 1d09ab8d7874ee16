"""Linear evaluation's work, as a function that runs anywhere on the cluster."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from objectaware.config import DataConfig, LinearConfig
from objectaware.errors import InputError
from objectaware.evaluate.features import compute_features
from objectaware.evaluate.linear import accuracy, classwise_accuracy, linear_evaluation
from objectaware.methods.backbones import channels_last
from objectaware.methods.checkpoint import load_encoder, local_checkpoint
from objectaware.methods.classifier import Classifier, classifier_file


def measure_linear(config: LinearConfig) -> dict[str, Any]:
    """Fits and measures the linear classifier; see `run_linear` for the values, and `classifier` for its file."""
    with local_checkpoint(config.checkpoint) as folder:
        backbone = load_encoder(folder).backbone
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    backbone = channels_last(backbone, device)
    features, labels, class_names, unreadable = _labelled_features(config, config.train, backbone, device)
    # A small data set lacks some classes of a large one's list; the classifier knows those that it was shown.
    known = torch.from_numpy(np.unique(labels.numpy()))
    result = linear_evaluation(
        features,
        _among(known, labels),
        holdout_fraction=config.holdout_fraction,
        holdout_size=config.holdout_size,
        refit=config.refit,
        seed=config.seed,
        num_values=config.num_penalties,
    )
    known_names = [class_names[label] for label in known.tolist()]
    accuracies: dict[str, float] = {}
    class_accuracies: dict[str, dict[str, float]] = {}
    num_unknown: dict[str, int] = {}
    for name, data in config.tests.items():
        test_features, test_labels, _, missing = _labelled_features(config, data, backbone, device)
        places = _among(known, test_labels)
        accuracies[name] = accuracy(result.model, test_features, places)
        by_class = classwise_accuracy(result.model, test_features, places).tolist()
        class_accuracies[name] = {
            label: value for label, value in zip(known_names, by_class, strict=True) if math.isfinite(value)
        }
        num_unknown[name] = int((places == len(known)).sum())
        unreadable += missing
    return {
        "accuracies": accuracies,
        "class_accuracies": class_accuracies,
        "penalty": float(result.penalty),
        "holdout_accuracy": float(result.holdout_accuracies.max()),
        "unreadable": unreadable,
        "num_unknown": num_unknown,
        "classifier": classifier_file(Classifier(result.model.weight.float(), result.model.bias.float())),
    }


def _among(known: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Places of labels in the sorted `known`; its length for one that is not there, which no prediction meets."""
    places = torch.searchsorted(known, labels)
    is_known = known[places.clamp_max(len(known) - 1)] == labels
    return torch.where(is_known, places, len(known))


def _labelled_features(
    config: LinearConfig, data: DataConfig, backbone: torch.nn.Module, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor, tuple[str, ...], int]:
    """Features (N, C) and labels (N,) of the readable images, the labels' names, and how many cannot be read."""
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
    return features.values, labels, images.class_names, len(features.unreadable)
