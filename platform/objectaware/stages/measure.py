"""The evaluations' work, as functions that run anywhere on the cluster."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

from objectaware.config import DataConfig, LinearConfig, LocalizationConfig
from objectaware.data.catalog import TrueMasks
from objectaware.data.storage import Storage
from objectaware.errors import InputError
from objectaware.evaluate.features import compute_features
from objectaware.evaluate.linear import accuracy, classwise_accuracy, linear_evaluation
from objectaware.evaluate.localization import best_center_box
from objectaware.evaluate.mask_scores import MaskScores
from objectaware.evaluate.predictions import (
    Prediction,
    coco_predictions,
    folder_predictions,
    store_predictions,
)
from objectaware.localize.mask_store import read_rows
from objectaware.methods.backbones import channels_last
from objectaware.methods.checkpoint import load_encoder, local_checkpoint
from objectaware.methods.classifier import Classifier, classifier_file

BEST_CENTER_BOX = "best center box (oracle)"
FULL_IMAGE = "full image"


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
        class_accuracies[name] = _finite(dict(zip(known_names, by_class, strict=True)))
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


def measure_masks(config: LocalizationConfig, name: str) -> dict[str, Any]:
    """Scores one system's masks.

    Args:
        config: What to score, against which truth.
        name: Of the masks in `config.masks`.

    Returns:
        `scores`: the measures of `MaskScores` by row, `name` and, where a CRF refined the masks, `name soft` for
        those before it; `boxes_per_image`: the number of boxes of each image.
    """
    truths, image_ids = _truths(config)
    place = {image_id: index for index, image_id in enumerate(image_ids)}
    scores: dict[str, MaskScores] = {}
    counts: list[int] = []
    for prediction in _predictions(config.masks[name], image_ids, truths):
        index = place.pop(prediction.image_id, None)
        if index is None:
            remedy = "Give masks of the images that are measured."
            raise InputError("masks", prediction.image_id, "is no image of the data set, or comes twice", remedy)
        truth, boxes = truths[index], truths.boxes(index)
        scores.setdefault(name, MaskScores(config.image_size)).add(prediction.soft, truth, boxes)
        if prediction.unrefined is not None:
            row = scores.setdefault(f"{name} soft", MaskScores(config.image_size))
            row.add(prediction.unrefined, truth, boxes)
        counts.append(prediction.num_boxes)
    if place:
        problem = f"lacks {len(place)} of the {len(image_ids)} images, such as {next(iter(place))}"
        raise InputError("masks", config.masks[name], problem, "Localize the images that are measured.")
    values = {row: _finite(score.result()) for row, score in scores.items()}
    return {"scores": values, "boxes_per_image": counts}


def _finite(measures: Mapping[str, float]) -> dict[str, float]:
    """Without those that the data set does not allow: MaxBoxAcc where no object has a box, a class without images."""
    return {measure: value for measure, value in measures.items() if math.isfinite(value)}


def measure_truth(config: LocalizationConfig) -> dict[str, Any]:
    """The baselines that need no masks.

    Returns:
        `scores`: mIoU of the whole picture and of the centred box whose size fits this very set best, an oracle;
        `boxes_per_image`: the number of true boxes of each image.
    """
    truths, _ = _truths(config)
    full = [float(truths[index].mean()) if truths[index].any() else 0.0 for index in range(len(truths))]
    _, center = best_center_box(truths[index] for index in range(len(truths)))
    return {
        "scores": {BEST_CENTER_BOX: {"miou": center}, FULL_IMAGE: {"miou": float(np.mean(full))}},
        "boxes_per_image": [len(truths.boxes(index)) for index in range(len(truths))],
    }


def _truths(config: LocalizationConfig) -> tuple[TrueMasks, list[str]]:
    data = config.data
    images = data.open()
    if data.split is None:
        raise InputError("layout", data.layout, "has no true masks", "Use backgrounds-challenge or coco.")
    return TrueMasks(data.root, data.layout, data.split, images.image_ids), images.image_ids


def _predictions(address: str, image_ids: list[str], truths: TrueMasks) -> Iterator[Prediction]:
    """Opens masks by what lies at their address: a mask store, a COCO result file, or a folder of files."""
    storage = Storage.from_uri(address)
    if address.endswith(".json"):
        folder, name = storage.split()
        numbers: dict[int, tuple[str, int, int]] = {}
        if truths.coco is not None:
            coco = truths.coco
            numbers = {number: (image_ids[i], *coco.size(i)) for i, number in enumerate(coco.numbers)}
        return coco_predictions(address, folder.read_bytes(name), image_ids, numbers)
    if storage.exists("store.json"):
        return store_predictions(read_rows(storage), crf=bool(storage.read_json("store.json")["config"]["crf"]))
    return folder_predictions(storage, image_ids)
