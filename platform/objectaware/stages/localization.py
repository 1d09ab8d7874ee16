"""Stage `localization`: how well masks find the objects, compared with trivial baselines."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, Field

from objectaware.config import DataConfig, Model
from objectaware.data.dataset import Dataset
from objectaware.data.folder import ImageFolder
from objectaware.data.layouts import OpenedImages, layout_named, layouts
from objectaware.data.storage import Storage
from objectaware.data.truth import GroundTruth, turned_by_size
from objectaware.distributed.task import run_tasks
from objectaware.errors import InputError
from objectaware.evaluate.coverage import UNREADABLE, Coverage
from objectaware.evaluate.mask_scores import MEASURES, MaskScores, best_center_box, box_count_histogram, center_map
from objectaware.evaluate.predictions import (
    Prediction,
    coco_predictions,
    folder_predictions,
    store_predictions,
)
from objectaware.localize.center_box import center_box
from objectaware.localize.mask_store import read_rows
from objectaware.model import MasksAddress
from objectaware.report.figures import box_histogram
from objectaware.stages.identity import masks_hash
from objectaware.stages.registry import stage
from objectaware.stages.runner import Computation, Context, StageRun

_NUM_MEASURED_AT_ONCE = 2  # each is a process with PyTorch, and a table may have a dozen rows
BEST_CENTER_BOX = "best center box (oracle)"
CENTER_MAP = "center map"
FULL_IMAGE = "full image"


def _has_objects(data: DataConfig) -> DataConfig:
    if not layout_named(data.layout).masks:
        known = ", ".join(layout.name for layout in layouts() if layout.masks)
        raise ValueError(f"the layout {data.layout} has neither true masks nor true boxes; those that have: {known}")
    return data


MeasurableData = Annotated[DataConfig, AfterValidator(_has_objects)]
"""Images of a layout that comes with true masks or boxes."""


class LocalizationConfig(Model):
    """Scoring of masks against true masks and boxes.

    Attributes:
        data: Images with true masks or boxes; docs/data.md lists the layouts that have them. With boxes alone, only
            MaxBoxAccV2 and CorLoc are measured.
        masks: Masks of these images, by name of the row in the table: a mask store, a folder of PNG or NPY files
            named like the images, or a COCO result file (`.json`).
        image_size: Side in pixels that pictures are squashed to for all measures. The paper's is 224.
    """

    data: MeasurableData
    masks: dict[str, MasksAddress]
    image_size: Annotated[int, Field(ge=32)] = 224


@stage("localization", version=4)
def localization(context: Context, config: LocalizationConfig) -> Computation[LocalizationConfig]:
    """Score masks against true masks and boxes, with the trivial baselines beside them.

    Returns:
        Value `scores`: the measures by row (`objectaware.evaluate.mask_scores.MEASURES` describes them). A mask store
        with CRF gives `<name>` and, for the soft masks before the CRF, `<name> soft`; other masks give `<name>`. Unless
        some masks have that name, `full image` is among the rows. There is always a centred baseline: the best centred
        box, an oracle, or `center map` if there are only boxes or some pixels are ignored. A measure that the truth
        does not allow is absent: mIoU and PxAP without masks, MaxBoxAccV2 and CorLoc without boxes.
        Value `boxes_per_image`: by name, and for `truth`, the number of images with each number of boxes.
        Value `coverage`: which images each name's measures of pixels and of boxes cover and which are left out; see
        `objectaware.evaluate.coverage.Coverage`.
    """
    data = Dataset(config.data)
    inputs = {"data": data.content_hash(context.mode.verify), "truth": data.truth().content_hash(context.mode.verify)}
    for name, masks in config.masks.items():
        inputs[f"masks {name}"] = masks_hash(masks)

    def compute(run: StageRun, config: LocalizationConfig) -> Mapping[str, Any]:
        *measured, truth = _measure_all(config)
        if truth["notice"]:
            run.progress.line(truth["notice"])
        scores = {**truth["scores"]}
        coverage = {**truth["coverage"]}
        histograms = {"truth": truth["boxes_per_image"]}
        for name, values in zip(config.masks, measured, strict=True):
            scores |= values["scores"]
            coverage |= values["coverage"]
            histograms[name] = values["boxes_per_image"]
            picture = box_histogram(Counter(values["boxes_per_image"]), Counter(truth["boxes_per_image"]))
            run.tracker.log_png(f"boxes_per_image/{_key(name)}.png", picture)
        run.tracker.log_table("localization", [{"localizer": row, **cells} for row, cells in titled(scores).items()])
        for row, cells in scores.items():
            run.tracker.log_metrics({f"{measure}.{_key(row)}": value for measure, value in cells.items()})
        counts = {name: _histogram(numbers) for name, numbers in histograms.items()}
        return {"scores": scores, "boxes_per_image": counts, "coverage": coverage}

    return Computation(title="localization", inputs=inputs, compute=compute, tags={"dataset": config.data.root})


def _measure_all(config: LocalizationConfig) -> list[dict[str, Any]]:
    """Return the results of `measure_masks` for each of the masks, and last the result of `measure_truth`."""
    tasks = [*((config, name) for name in config.masks), (config, None)]
    return run_tasks(measure, tasks, at_once=_NUM_MEASURED_AT_ONCE)


def _key(row: str) -> str:
    """Return a row's name in a form that fits a path or a metric's name."""
    return re.sub(r"[^\w.-]+", "_", row)


def _histogram(counts: list[int]) -> dict[str, int]:
    return {str(count): number for count, number in box_count_histogram(counts).items()}


def titled(scores: Mapping[str, Mapping[str, float]]) -> dict[str, dict[str, float]]:
    """Return the scores of `localization` under their columns' titles, which mark oracles."""
    return {
        row: {title: cells[measure] for measure, title in MEASURES.items() if measure in cells}
        for row, cells in scores.items()
    }


def measure(config: LocalizationConfig, name: str | None) -> dict[str, Any]:
    """Run `measure_masks`, or `measure_truth` if `name` is None, as a task."""
    return measure_truth(config) if name is None else measure_masks(config, name)


def measure_masks(config: LocalizationConfig, name: str) -> dict[str, Any]:
    """Score one system's masks.

    Args:
        config: Masks to score, and the truth.
        name: Name of the masks in `config.masks`.

    Returns:
        `scores`: the measures of `MaskScores` that the truth allows, in the row `name` and, if a CRF refined the masks,
        in the row `name soft` for the masks before it; `boxes_per_image`: the number of boxes of each image;
        `coverage`: the images that the measures of pixels (`<name>: masks`) and of boxes (`<name>: boxes`) cover.

    Raises:
        InputError: The masks are not of these images, or none of the images could be read.
    """
    data = Dataset(config.data)
    images, image_ids, truths = data.images, data.image_ids, data.truth()
    place = {image_id: index for index, image_id in enumerate(image_ids)}
    scores: dict[str, MaskScores] = {}
    counts: list[int] = []
    num_found, num_boxed, num_unreadable = 0, 0, 0
    for prediction in _predictions(config.masks[name], image_ids, truths):
        index = place.pop(prediction.image_id, None)
        if index is None:
            remedy = "Give masks of the images that are measured."
            raise InputError("masks", prediction.image_id, "is no image of the data set, or comes twice", remedy)
        counts.append(prediction.num_boxes)
        if not prediction.is_readable:
            num_unreadable += 1
            continue
        truth = _truth_of(truths, index)
        num_boxed += len(truth[1]) > 0
        soft = _upright(prediction, images, truths, index)
        num_found += soft is not None
        scores.setdefault(name, MaskScores(config.image_size)).add(soft, *truth)
        if prediction.is_refined:
            scores.setdefault(f"{name} soft", MaskScores(config.image_size)).add(prediction.unrefined, *truth)
    if place:
        problem = f"lacks {len(place)} of the {len(image_ids)} images, such as {next(iter(place))}"
        raise InputError("masks", config.masks[name], problem, "Localize the images that are measured.")
    if not num_found:
        problem = f"holds a mask of none of the {len(image_ids)} images"
        raise InputError("masks", config.masks[name], problem, "Check that the images can be read.")
    values = {row: _finite(score.result()) for row, score in scores.items()}
    coverage = {f"{name}: {kind}": one.values() for kind, one in _coverage(truths, num_boxed, num_unreadable).items()}
    return {"scores": values, "boxes_per_image": counts, "coverage": coverage}


def _coverage(truths: GroundTruth, num_boxed: int, num_unreadable: int = 0) -> dict[str, Coverage]:
    """Return the coverage of the measures of pixels and of boxes, as far as the truth allows them.

    Args:
        truths: Masks and boxes of all images.
        num_boxed: Number of readable images with a true box.
        num_unreadable: Number of images that could not be read.
    """
    num_readable = len(truths) - num_unreadable
    coverage: dict[str, Coverage] = {}
    if truths.has_masks:
        coverage["masks"] = Coverage(num_readable, left_out={UNREADABLE: num_unreadable})
    if num_boxed:
        left_out = {UNREADABLE: num_unreadable, "without a true box": num_readable - num_boxed}
        coverage["boxes"] = Coverage(num_boxed, left_out=left_out)
    return coverage


def _upright(
    prediction: Prediction, images: OpenedImages, truths: GroundTruth, index: int
) -> NDArray[np.float32] | None:
    """Return the soft mask, turned like its picture or, if it is in the annotations' pixels, like the annotations."""
    if prediction.soft is None or prediction.pixels == "upright":
        return prediction.soft
    if prediction.pixels == "annotated":
        assert truths.coco is not None
        return truths.coco.turn(index).pixels(prediction.soft)
    return turned_by_size(images.path(index), prediction.soft) if isinstance(images, ImageFolder) else prediction.soft


def _truth_of(
    truths: GroundTruth, index: int
) -> tuple[NDArray[np.bool_] | None, NDArray[np.float64], NDArray[np.bool_] | None]:
    """Return an image's truth as `MaskScores.add` takes it: mask, boxes, ignored pixels."""
    return (truths[index] if truths.has_masks else None), truths.boxes(index), truths.ignored(index)


def _finite(measures: Mapping[str, float]) -> dict[str, float]:
    """Drop measures that the data set does not allow: MaxBoxAcc if no object has a box, mIoU if there is no mask."""
    return {measure: value for measure, value in measures.items() if math.isfinite(value)}


def measure_truth(config: LocalizationConfig) -> dict[str, Any]:
    """Score the baselines that need no masks.

    Returns:
        `scores`: all measures that the truth allows of the whole picture and, if all pixels have a true class, of the
        centred box whose size fits this very set best, an oracle; otherwise MaxBoxAccV2 and PxAP of `center_map`.
        `boxes_per_image`: the number of true boxes of each image. `coverage`: the images that the baselines' measures
        of pixels (`baselines: masks`) and of boxes (`baselines: boxes`) cover. `notice`: a remark on the truth that the
        user should see.
    """
    truths = Dataset(config.data).truth()
    scores = _baselines(truths, config.image_size)
    counts = [len(truths.boxes(index)) for index in range(len(truths))]
    num_boxed = sum(number > 0 for number in counts)
    coverage = {f"baselines: {kind}": one.values() for kind, one in _coverage(truths, num_boxed).items()}
    return {"scores": scores, "boxes_per_image": counts, "coverage": coverage, "notice": truths.notice}


def _baselines(truths: GroundTruth, size: int) -> dict[str, dict[str, float]]:
    full = _measures_of(np.ones((size, size), dtype=np.bool_), truths, size)
    if truths.has_masks and not truths.has_ignored:
        side_fraction, _ = best_center_box(truths[index] for index in range(len(truths)))
        return {BEST_CENTER_BOX: _measures_of(center_box(size, size, side_fraction), truths, size), FULL_IMAGE: full}
    center = _measures_of(center_map(size), truths, size)
    # At the fixed thresholds of mIoU and CorLoc, the map would be a box of arbitrary size.
    ranked = {name: value for name, value in center.items() if name in ("max_box_acc_v2", "px_ap")}
    return {CENTER_MAP: ranked, FULL_IMAGE: full}


def _measures_of(mask: NDArray[np.float32] | NDArray[np.bool_], truths: GroundTruth, size: int) -> dict[str, float]:
    """Return the measures of one mask (size, size) for all images."""
    scores, soft = MaskScores(size), mask.astype(np.float32)
    for index in range(len(truths)):
        scores.add(soft, *_truth_of(truths, index))
    return _finite(scores.result())


def _predictions(address: str, image_ids: list[str], truths: GroundTruth) -> Iterator[Prediction]:
    """Open the masks at an address: a mask store, a COCO result file, or a folder of files."""
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
