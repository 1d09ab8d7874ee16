"""COCO's average precision of detections, by pycocotools."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

Kind = Literal["box", "mask"]
Scores = Mapping[Kind, tuple[dict[str, float], dict[str, float]]]
"""Results of `average_precision` by kind."""

_TYPES: Mapping[Kind, str] = {"box": "bbox", "mask": "segm"}
_STATISTICS = ("ap", "ap50", "ap75", "ap_small", "ap_medium", "ap_large")


def category_numbers(annotations: Path) -> dict[str, int]:
    """Return COCO's numbers of the categories of an annotation file, by name, in ascending order of number."""
    categories = _read_truth(annotations).dataset["categories"]
    return {one["name"]: one["id"] for one in sorted(categories, key=lambda one: int(one["id"]))}


def average_precision(
    results: Sequence[Mapping[str, Any]],
    annotations: Path,
    image_numbers: Sequence[int],
    kind: Kind,
    *,
    known: Sequence[str] | None = None,
) -> tuple[dict[str, float], dict[str, float]]:
    """Score detections as COCO's server does, at most 100 per image.

    Args:
        results: COCO's result records of these images; with `segmentation` for the kind `mask`.
        annotations: COCO annotation file.
        image_numbers: COCO's numbers of the images to score.
        kind: Whether boxes or masks have to overlap with the truth.
        known: Names of the categories that the detector knows; the others do not count. By default all do.

    Returns:
        `ap` (mean over IoU 0.50 to 0.95), `ap50`, `ap75`, and `ap_small`, `ap_medium`, `ap_large` by the object's
        area (below 32², below 96², and above), in per cent; those without any object are missing. Second, the AP of
        each category that has objects, by name.
    """
    truth = _read_truth(annotations)
    with redirect_stdout(io.StringIO()):  # pycocotools prints its progress
        evaluation = COCOeval(truth, _loaded(truth, results, kind), _TYPES[kind])
        evaluation.params.imgIds = sorted(image_numbers)
        if known is not None:
            categories = truth.dataset["categories"]
            evaluation.params.catIds = sorted(one["id"] for one in categories if one["name"] in set(known))
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    statistics = dict(zip(_STATISTICS, evaluation.stats, strict=False))
    names = {category["id"]: category["name"] for category in truth.loadCats(truth.getCatIds())}
    # (IoU, recall, category, area, most detections): all areas, 100 detections.
    precision = evaluation.eval["precision"][:, :, :, 0, -1]
    by_category = {
        names[number]: 100 * float(np.mean(values))
        for place, number in enumerate(evaluation.params.catIds)
        if (values := precision[:, :, place])[values > -1].size
    }
    return {name: 100 * float(value) for name, value in statistics.items() if value > -1}, by_category


def _read_truth(annotations: Path) -> COCO:
    """Read an annotation file, and add the fields that pycocotools needs and that a file may lack."""
    truth = COCO()
    truth.dataset = json.loads(annotations.read_bytes())
    # pycocotools treats an object with the number 0 as not found.
    for number, annotation in enumerate(truth.dataset["annotations"], start=1):
        annotation |= {"id": number, "iscrowd": int(annotation.get("iscrowd", 0))}
    with redirect_stdout(io.StringIO()):
        truth.createIndex()
    return truth


def _loaded(truth: COCO, results: Sequence[Mapping[str, Any]], kind: Kind) -> COCO:
    """Convert the results for pycocotools, whose `loadRes` refuses an empty list."""
    if results:
        # With a box, the area that makes a mask small or large would be the box's (detectron2, coco_evaluation.py).
        unused = ("bbox",) if kind == "mask" else ("segmentation",)
        return truth.loadRes([{key: one[key] for key in one if key not in unused} for one in results])
    empty = COCO()
    empty.dataset = {"images": truth.dataset["images"], "categories": truth.dataset["categories"], "annotations": []}
    empty.createIndex()
    return empty
