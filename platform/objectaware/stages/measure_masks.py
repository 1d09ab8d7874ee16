"""Scoring masks, as functions that run anywhere on the cluster."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from objectaware.config import LocalizationConfig
from objectaware.data.storage import Storage
from objectaware.data.truth import GroundTruth
from objectaware.errors import InputError
from objectaware.evaluate.localization import best_center_box
from objectaware.evaluate.mask_scores import MaskScores
from objectaware.evaluate.predictions import (
    Prediction,
    coco_predictions,
    folder_predictions,
    store_predictions,
)
from objectaware.localize.mask_store import read_rows

BEST_CENTER_BOX = "best center box (oracle)"
FULL_IMAGE = "full image"


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
    """Without those that the data set does not allow: MaxBoxAcc where no object has a box."""
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


def _truths(config: LocalizationConfig) -> tuple[GroundTruth, list[str]]:
    data = config.data
    images = data.open()
    if data.split is None:
        raise InputError("layout", data.layout, "has no true masks", "Use backgrounds-challenge or coco.")
    return GroundTruth(data.root, data.layout, data.split, images.image_ids), images.image_ids


def _predictions(address: str, image_ids: list[str], truths: GroundTruth) -> Iterator[Prediction]:
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
