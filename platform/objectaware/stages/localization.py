"""Stage `localization`: how well masks find the objects, compared with trivial baselines."""

from __future__ import annotations

import io
import json
import logging
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

import cv2
import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator

from objectaware.config import DataConfig, Model
from objectaware.data.coco_json import union_mask
from objectaware.data.dataset import Dataset, OpenedImages, layout_named, layouts
from objectaware.data.folder import ImageFolder
from objectaware.data.images import UnreadableImage, none_readable, resize_image
from objectaware.data.masks import MIN_BOX_AREA
from objectaware.data.storage import Storage
from objectaware.data.truth import GroundTruth, turned_by_size
from objectaware.distributed.task import run_tasks
from objectaware.errors import InputError
from objectaware.evaluate.coverage import UNREADABLE, Coverage
from objectaware.evaluate.mask_scores import (
    MEASURES,
    OBJECT_SIZES,
    MaskScores,
    best_center_box,
    box_count_histogram,
    crf_gains,
)
from objectaware.localize.baselines import center_map, contrast_map, refined_baseline
from objectaware.localize.center_box import center_box
from objectaware.localize.mask_store import MaskRow, read_rows
from objectaware.localize.objects import extract_boxes, keep_large_components
from objectaware.methods.checkpoint import STATE_NAME
from objectaware.model import MasksAddress, Side
from objectaware.report.figures import box_histogram
from objectaware.stages.identity import masks_hash
from objectaware.stages.registry import stage
from objectaware.stages.runner import Computation, Context, StageRun

_NUM_MEASURED_AT_ONCE = 2  # each is a process with PyTorch, and a table may have a dozen rows
BEST_CENTER_BOX = "best center box (oracle)"
CENTER_MAP = "center map"
CONTRAST_MAP = "contrast map"
FULL_IMAGE = "full image"
WITH_CRF = " + CRF"
"""End of the name of a baseline's row after the CRF."""

_logger = logging.getLogger(__name__)


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
        image_size: Side in pixels that pictures are squashed to for all measures, and for the CRF of baselines. The
            paper's is 224.
        picture_baselines: Whether to score baselines that look at the pictures, too: the contrast map, and each
            baseline after the CRF that masks go through in localization. By default where there are true masks and
            pictures that can be read.
    """

    data: MeasurableData
    masks: dict[str, MasksAddress]
    image_size: Side = 224
    picture_baselines: bool | None = None


@stage("localization", version=6)
def localization(context: Context, config: LocalizationConfig) -> Computation[LocalizationConfig]:
    """Score masks against true masks and boxes, with the trivial baselines beside them.

    Returns:
        Value `scores`: the measures by row (`objectaware.evaluate.mask_scores.MEASURES` describes them). A mask store
        with CRF gives `<name>` and, for the soft masks before the CRF, `<name> soft`; other masks give `<name>`. Unless
        some masks have that name, `full image` and `center map` are among the rows. So is the best centred box, an
        oracle, unless there are only boxes or some pixels are ignored. With `picture_baselines` there is the contrast
        map, and each baseline has a row `<baseline> + CRF`; all of them leave out images that cannot be read. A measure
        that the truth does not allow is absent: mIoU and PxAP without masks, MaxBoxAccV2 and CorLoc without boxes.
        Value `scores_by_size`: the same by size of the true object (`OBJECT_SIZES`), for sizes that some image has.
        Value `boxes_per_image`: by name, and for `truth`, the number of images with each number of boxes.
        Value `coverage`: which images each name's measures of pixels and of boxes cover and which are left out; see
        `objectaware.evaluate.coverage.Coverage`.
    """
    data = Dataset.of(config.data)
    truths = data.truth()
    inputs = {"data": data.content_hash(context.mode.verify), "truth": truths.content_hash(context.mode.verify)}
    for name, masks in config.masks.items():
        inputs[f"masks {name}"] = masks_hash(masks)

    networks = {name: found for name, masks in config.masks.items() if (found := _network_of(masks)) is not None}

    def compute(run: StageRun, config: LocalizationConfig) -> Mapping[str, Any]:
        names = baseline_names(truths, looks_at_pictures(config, truths))
        tasks: list[tuple[object, ...]] = [(measure_masks, config, name) for name in config.masks]
        tasks += [*((measure_baseline, config, name) for name in names), (measure_truth, config)]
        *scored, truth = run_tasks(measure, tasks, at_once=_NUM_MEASURED_AT_ONCE)
        measured, baselines = scored[: len(config.masks)], scored[len(config.masks) :]
        if truth["notice"]:
            run.progress.line(truth["notice"])
        found = {"truth": truth, **dict(zip(config.masks, measured, strict=True))}
        # Not of `found`, in which masks that are named `truth` stand in its place.
        scored = [*baselines, *measured]
        scores = {row: cells for values in scored for row, cells in values["scores"].items()}
        by_size = {
            size: {row: cells for values in scored for row, cells in values["by_size"][size].items()}
            for size in OBJECT_SIZES
        }
        coverage = {name: one for values in scored for name, one in values["coverage"].items()}
        histograms = {name: box_count_histogram(values["boxes_per_image"]) for name, values in found.items()}
        for name, values in zip(config.masks, measured, strict=True):
            picture = box_histogram(Counter(values["boxes_per_image"]), Counter(truth["boxes_per_image"]))
            run.tracker.log_png(f"boxes_per_image/{_key(name)}.png", picture)
        run.tracker.log_table("localization", table_rows(scores))
        run.tracker.log_table("localization by size", table_rows_by_size(by_size))
        for row, cells in scores.items():
            metrics = {f"{measure}.{_key(row)}": value for measure, value in cells.items()}
            run.tracker.log_metrics(metrics, model=networks.get(row.removesuffix(" soft")))
        counts = {name: {str(count): number for count, number in one.items()} for name, one in histograms.items()}
        present = {size: rows for size, rows in by_size.items() if rows}
        return {"scores": scores, "scores_by_size": present, "boxes_per_image": counts, "coverage": coverage}

    return Computation(
        title="localization",
        inputs=inputs,
        compute=compute,
        tags={"dataset": config.data.root},
        networks=list(dict.fromkeys(networks.values())),
    )


def _network_of(masks: str) -> str | None:
    """Return the address of the trained checkpoint that found the masks of a store.

    None if it is gone, unknown, or cannot be looked at: nothing but the link to it in MLflow depends on it.
    """
    storage = Storage.from_uri(masks)
    if not storage.exists("store.json"):
        return None
    config = storage.read_json("store.json").get("config", {})
    checkpoint = None if config.get("untrained") else config.get("checkpoint")
    try:
        return checkpoint if checkpoint is not None and Storage.from_uri(checkpoint).exists(STATE_NAME) else None
    except (OSError, InputError) as error:
        _logger.info("the masks in %s are not linked to their network (%s)", masks, error)
        return None


def _key(row: str) -> str:
    """Return a row's name in a form that fits a path or a metric's name."""
    return re.sub(r"[^\w.-]+", "_", row)


def titled(scores: Mapping[str, Mapping[str, float]]) -> dict[str, dict[str, float]]:
    """Return the scores of `localization` under their columns' titles, which mark oracles."""
    return {
        row: {title: cells[measure] for measure, title in MEASURES.items() if measure in cells}
        for row, cells in scores.items()
    }


def table_rows(scores: Mapping[str, Mapping[str, float]]) -> list[dict[str, Any]]:
    """Return the scores of `localization` as the rows of a table."""
    return [{"localizer": row, **cells} for row, cells in titled(scores).items()]


def table_rows_by_size(by_size: Mapping[str, Mapping[str, Mapping[str, float]]]) -> list[dict[str, Any]]:
    """Return the scores by size of `localization` as the rows of a table."""
    return [{"objects": size_title(size), **row} for size, scores in by_size.items() for row in table_rows(scores)]


def size_title(size: str) -> str:
    """Return the words for one of `OBJECT_SIZES`, with its bounds."""
    above, up_to = (f"{100 * bound:g}" for bound in OBJECT_SIZES[size])
    return f"{size} objects ({above}–{up_to}% of the picture)"


def measure(score: Callable[..., dict[str, Any]], *args: object) -> dict[str, Any]:
    """Run one of the functions below as a task."""
    return score(*args)


def measure_masks(config: LocalizationConfig, name: str) -> dict[str, Any]:
    """Score one system's masks.

    Args:
        config: Masks to score, and the truth.
        name: Name of the masks in `config.masks`.

    Returns:
        `scores` and `by_size` as of `_results`, in the row `name` and, if a CRF refined the masks, in the row
        `name soft` for the masks before it; `boxes_per_image`: the number of boxes of each image;
        `coverage`: the images that the measures of pixels (`<name>: masks`) and of boxes (`<name>: boxes`) cover.

    Raises:
        InputError: The masks are not of these images, or none of the images could be read.
    """
    data = Dataset.of(config.data)
    images, image_ids, truths = data.images, data.image_ids, data.truth()
    place = {image_id: index for index, image_id in enumerate(image_ids)}
    scores: dict[str, MaskScores] = {}
    counts: list[int] = []
    num_found, num_boxed, num_unreadable = 0, 0, 0
    for prediction in _predictions(config.masks[name], image_ids, truths):
        index = place.pop(prediction.image_id, None)
        if index is None:
            remedy = "Give masks of the images that are measured."
            raise InputError("masks", prediction.image_id, "is not an image of the data set, or comes twice", remedy)
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
        problem = f"has no mask of any of the {len(image_ids)} images"
        raise InputError("masks", config.masks[name], problem, "Check that the images can be read.")
    coverage = {f"{name}: {kind}": one.values() for kind, one in _coverage(truths, num_boxed, num_unreadable).items()}
    results = _results(scores, {name: f"{name} soft"})
    return {**results, "boxes_per_image": counts, "coverage": coverage}


def _results(scores: Mapping[str, MaskScores], before_crf: Mapping[str, str]) -> dict[str, Any]:
    """Return the finite measures of some rows.

    Args:
        scores: The rows' scores.
        before_crf: By name of a row with CRF, the row of the same masks before it. Rows that are absent are ignored.

    Returns:
        `scores`: measures by row; `by_size`: measures by size of the true object and row. Rows with CRF have what it
        adds, too.
    """
    by_size: dict[str, dict[str, dict[str, float]]] = {size: {} for size in OBJECT_SIZES}
    for row, score in scores.items():
        for size, values in score.result_by_size().items():
            by_size[size][row] = _finite(values)
    everything = {row: _finite(score.result()) for row, score in scores.items()}
    for rows in (everything, *by_size.values()):
        for refined, soft in before_crf.items():
            if refined in rows and soft in rows:
                rows[refined] |= crf_gains(rows[refined], rows[soft])
    return {"scores": everything, "by_size": by_size}


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
    """Describe the truth.

    Returns:
        `boxes_per_image`: the number of true boxes of each image. `notice`: a remark on the truth that the user should
        see.
    """
    truths = Dataset.of(config.data).truth()
    counts = [len(truths.boxes(index)) for index in range(len(truths))]
    return {"boxes_per_image": counts, "notice": truths.notice}


def looks_at_pictures(config: LocalizationConfig, truths: GroundTruth) -> bool:
    """Return whether baselines that look at the pictures are scored."""
    return truths.has_masks if config.picture_baselines is None else config.picture_baselines


def baseline_names(truths: GroundTruth, looks: bool) -> list[str]:
    """Return the names of the baselines that the truth allows, with or without one that looks at the pictures."""
    has_best_box = truths.has_masks and not truths.has_ignored
    allowed = {BEST_CENTER_BOX: has_best_box, CENTER_MAP: True, CONTRAST_MAP: looks, FULL_IMAGE: True}
    return [name for name, is_allowed in allowed.items() if is_allowed]


def measure_baseline(config: LocalizationConfig, name: str) -> dict[str, Any]:
    """Score a baseline, which needs no masks, before and after the CRF that masks go through in localization.

    Args:
        config: The truth, and whether to look at the pictures.
        name: One of `baseline_names`.

    Returns:
        `scores` and `by_size` as of `_results`, in the row `name` and, if the pictures are looked at, in the row
        `name + CRF`. `coverage`: the images that the measures of pixels (`baselines: masks`) and of boxes
        (`baselines: boxes`) cover.

    Raises:
        InputError: The configuration says to look at the pictures, and none can be read.
    """
    data = Dataset.of(config.data)
    truths, size = data.truth(), config.image_size
    looks, fixed = looks_at_pictures(config, truths), _fixed_map(name, truths, size)
    scores: dict[str, MaskScores] = {}
    unreadable: list[tuple[str, str]] = []
    num_boxed = 0
    for index in range(len(truths)) if looks or fixed is not None else ():
        image = None
        if looks:
            try:
                image = resize_image(data.images.read(index), (size, size))
            except UnreadableImage as error:
                unreadable.append((data.image_ids[index], error.reason))
                continue
        soft = contrast_map(image) if fixed is None and image is not None else fixed
        truth = _truth_of(truths, index)
        num_boxed += len(truth[1]) > 0
        scores.setdefault(name, MaskScores(size)).add(soft, *truth)
        if image is not None and soft is not None:
            scores.setdefault(f"{name}{WITH_CRF}", MaskScores(size)).add(refined_baseline(image, soft), *truth)
    if unreadable and not scores:
        if config.picture_baselines:
            raise none_readable(len(truths), unreadable)
        return measure_baseline(config.model_copy(update={"picture_baselines": False}), name)
    coverage = {
        f"baselines: {kind}": one.values() for kind, one in _coverage(truths, num_boxed, len(unreadable)).items()
    }
    return {**_results(scores, {f"{name}{WITH_CRF}": name}), "coverage": coverage if scores else {}}


def _fixed_map(name: str, truths: GroundTruth, size: int) -> NDArray[np.float32] | None:
    """Return the map (size, size) of a baseline that is the same for all pictures; None for the others."""
    if name == BEST_CENTER_BOX:
        side_fraction, _ = best_center_box(truths[index] for index in range(len(truths)))
        return center_box(size, size, side_fraction).astype(np.float32)
    if name == FULL_IMAGE:
        return np.ones((size, size), dtype=np.float32)
    return center_map(size) if name == CENTER_MAP else None


def _predictions(address: str, image_ids: list[str], truths: GroundTruth) -> Iterator[Prediction]:
    """Open the masks at an address: a mask store, a COCO result file, or a folder of files."""
    storage = Storage.from_uri(address)
    if address.endswith(".json"):
        folder, name = storage.split()
        coco = truths.coco
        numbers = {} if coco is None else {n: (image_ids[i], *coco.size(i)) for i, n in enumerate(coco.numbers)}
        return coco_predictions(address, folder.read_bytes(name), image_ids, numbers)
    if storage.exists("store.json"):
        return store_predictions(read_rows(storage), crf=bool(storage.read_json("store.json")["config"]["crf"]))
    return folder_predictions(storage, image_ids)


_RESULT_REMEDY = "Give a COCO result file: a list of image_id, segmentation and score."


@dataclass(frozen=True, eq=False)
class Prediction:
    """The mask that a system found in one image.

    Attributes:
        image_id: Path relative to the data set.
        soft: Soft mask (h, w) in [0, 1] of any size; None if there is none.
        unrefined: The soft mask before the CRF; None if there is none.
        num_boxes: Number of boxes, or instances, that the system found.
        pixels: Whether the soft mask is of the upright picture or in the pixels of the annotations; `unknown` if
            only its size can show it.
        is_readable: Whether the system could read the image. An unreadable image is not scored; an
            image in which the system found nothing is scored.
        is_refined: Whether the system runs a CRF, so that its masks before it are scored, too.
    """

    image_id: str
    soft: NDArray[np.float32] | None
    unrefined: NDArray[np.float32] | None
    num_boxes: int
    pixels: Literal["upright", "annotated", "unknown"] = "unknown"
    is_readable: bool = True
    is_refined: bool = False


def store_predictions(rows: Iterable[MaskRow], *, crf: bool) -> Iterator[Prediction]:
    """Make the predictions of a mask store.

    Args:
        rows: Its rows.
        crf: Whether its configuration says that it ran a CRF.

    Raises:
        InputError: It ran a CRF and did not keep the refined soft masks, as in stores of earlier versions.
    """
    for row in rows:
        if crf and row.cam is not None and row.refined is None:
            problem = "comes from a mask store without the soft masks after the CRF"
            raise InputError("masks", row.image_id, problem, "Run the localization again.")
        soft, unrefined = (row.refined, row.cam) if crf else (row.cam, None)
        num_boxes, is_readable = len(row.boxes), row.is_readable
        yield Prediction(row.image_id, soft, unrefined, num_boxes, "upright", is_readable, is_refined=crf)


def folder_predictions(folder: Storage, image_ids: Iterable[str]) -> Iterator[Prediction]:
    """Read masks from a folder: for the image `a/b.jpg` the file `a/b.npy`, `a/b.png`, `a/b.jpg.npy` or `a/b.jpg.png`.

    Args:
        folder: Where they lie. An NPY file holds (h, w), boolean or a score in [0, 1]; a PNG is grey of 8 or 16
            bits, black for 0 and white for 1, or holds 0 and 1 alone. Any size will do.
        image_ids: The images whose masks are wanted.

    Yields:
        One prediction per image; one without a file has no soft mask.

    Raises:
        InputError: No image has a file, or a file does not hold such a mask.
    """
    files = {name for name, _, _ in folder.list_files()}
    num_found, first = 0, ""
    for image_id in image_ids:
        first = first or image_id
        stem = str(PurePosixPath(image_id).with_suffix(""))
        names = [f"{base}{suffix}" for base in (stem, image_id) for suffix in (".npy", ".png")]
        name = next((name for name in names if name in files), None)
        if name is None:
            yield Prediction(image_id, None, None, 0)
            continue
        num_found += 1
        soft = _decode(name, folder.read_bytes(name))
        regions = keep_large_components(soft > 0.5, min_area=MIN_BOX_AREA)
        yield Prediction(image_id, soft, None, len(extract_boxes(regions, min_area=MIN_BOX_AREA)))
    if not num_found:
        expected = PurePosixPath(first).with_suffix("")
        problem = f"holds no mask store and no mask of an image, such as {expected}.png or {expected}.npy"
        raise InputError("masks", folder.uri, problem, "Name each file as its image.")


def _decode(name: str, content: bytes) -> NDArray[np.float32]:
    if name.endswith(".npy"):
        try:
            mask = np.load(io.BytesIO(content), allow_pickle=False)
        except (ValueError, EOFError) as error:
            raise InputError("masks", name, f"is not an NPY file ({error})", "Write it with numpy.save.") from error
        soft = mask.astype(np.float32)
        is_scaled = mask.dtype == np.bool_ or np.issubdtype(mask.dtype, np.floating) or not np.any(mask > 1)
        if not is_scaled or mask.ndim != 2 or not (soft.min() >= 0 and soft.max() <= 1):
            problem = f"holds {mask.dtype} {mask.shape}, not (h, w) in [0, 1]"
            raise InputError("masks", name, problem, "Store booleans or scores from 0 to 1.")
        return soft
    grey = cv2.imdecode(np.frombuffer(content, dtype=np.uint8), cv2.IMREAD_UNCHANGED)
    if grey is None or grey.ndim != 2:
        problem = "is not a picture" if grey is None else "is not grey"
        raise InputError("masks", name, problem, "Write a grey PNG, black for the background and white for objects.")
    white = 1 if grey.max() <= 1 else 255 if grey.dtype == np.uint8 else 65535
    return (grey / np.float32(white)).astype(np.float32)


def coco_predictions(
    file: str, content: bytes, image_ids: Iterable[str], numbers: Mapping[int, tuple[str, int, int]]
) -> Iterator[Prediction]:
    """Read masks from a COCO result file: a list of instances with `image_id`, `segmentation` and perhaps `score`.

    Where instances overlap, the higher score counts. An instance without a score has 1. The mask at 0.5
    is thus the union of the instances with a score above 0.5.

    Args:
        file: Its name, for messages.
        content: JSON: the list, or a whole data set, whose `annotations` and own `images` are taken.
        image_ids: The images whose masks are wanted.
        numbers: COCO's numbers of the data set: id, height and width of each image; empty for other layouts,
            whose results name their images by `image_id` as text or come with their own `images`.

    Yields:
        One prediction per image; one without instances has an empty mask.

    Raises:
        InputError: The file is malformed, or names an image that the data set does not have.
    """
    results, own = _parse_results(file, content)
    sizes = {image_id: (height, width) for image_id, height, width in (own or numbers).values()}
    names = {number: image_id for number, (image_id, _, _) in (own or numbers).items()}
    wanted = list(image_ids)
    by_image: dict[str, list[dict[str, Any]]] = {image_id: [] for image_id in wanted}
    for index, result in enumerate(results):
        key = result.get("image_id")
        image_id = key if isinstance(key, str) else names.get(key) if isinstance(key, int) else None
        if image_id not in by_image:
            problem = f"result {index} is of image {key!r}, which the data set does not have"
            raise InputError("masks", file, problem, _RESULT_REMEDY)
        by_image[image_id].append(result)
    for image_id in wanted:
        prediction = _combined(file, image_id, by_image[image_id], sizes.get(image_id))
        yield replace(prediction, pixels="annotated") if numbers and not own else prediction


def _parse_results(file: str, content: bytes) -> tuple[list[dict[str, Any]], dict[int, tuple[str, int, int]]]:
    try:
        parsed = json.loads(content)
        own: dict[int, tuple[str, int, int]] = {}
        if isinstance(parsed, dict):
            own = {one["id"]: (one["file_name"], one["height"], one["width"]) for one in parsed["images"]}
            parsed = parsed["annotations"]
        if not isinstance(parsed, list) or not all(isinstance(one, dict) for one in parsed):
            raise TypeError("not a list of objects")
    except (ValueError, KeyError, TypeError) as error:
        raise InputError("masks", file, f"is not a COCO result file ({error})", _RESULT_REMEDY) from error
    return parsed, own


def _combined(file: str, image_id: str, results: list[dict[str, Any]], size: tuple[int, int] | None) -> Prediction:
    soft = np.zeros(size or (1, 1), dtype=np.float32)
    scores: list[float] = []
    for result in results:
        try:
            segmentation, score = result["segmentation"], float(result.get("score", 1.0))
            height, width = segmentation["size"] if size is None else size
            mask = union_mask([segmentation], height, width)
        except (KeyError, TypeError, ValueError) as error:
            problem = f"a result of {image_id} has no segmentation that can be drawn ({error})"
            raise InputError("masks", file, problem, _RESULT_REMEDY) from error
        if not 0 <= score <= 1:
            raise InputError("masks", file, f"a score of {image_id} is {score}, not in [0, 1]", _RESULT_REMEDY)
        size = (height, width)
        soft = np.maximum(soft if soft.shape == size else np.zeros(size, dtype=np.float32), mask * np.float32(score))
        scores.append(score)
    return Prediction(image_id, soft, None, sum(score > 0.5 for score in scores))
