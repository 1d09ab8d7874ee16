"""Soft masks to be scored: from a mask store, or from any other system's files."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any, Literal

import cv2
import numpy as np
from numpy.typing import NDArray

from objectaware.data.coco_json import union_mask
from objectaware.data.masks import MIN_BOX_AREA
from objectaware.data.storage import Storage
from objectaware.errors import InputError
from objectaware.localize.mask_store import MaskRow
from objectaware.localize.objects import extract_boxes, keep_large_components

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
            problem = "is of a mask store without the soft masks after CRF"
            raise InputError("masks", row.image_id, problem, "Run the localization again.")
        soft, unrefined = (row.refined, row.cam) if crf else (row.cam, None)
        yield Prediction(
            row.image_id, soft, unrefined, len(row.boxes), "upright", is_readable=row.is_readable, is_refined=crf
        )


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
    num_found = 0
    first = ""
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
