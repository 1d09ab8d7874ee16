"""Turn COCO segmentations into masks, guarding pycocotools against malformed ones.

pycocotools trusts its input: a run-length code of the wrong length gives memory that was never written, and a
polygon with a point at 1e300 takes all memory of the machine (both seen with 2.0.11).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pycocotools import mask as coco_mask

Segmentation = list[list[float]] | dict[str, Any]


def union_mask(segmentations: Iterable[Segmentation], height: int, width: int) -> NDArray[np.bool_]:
    """Draw segmentations over each other.

    Args:
        segmentations: For each instance its polygons (x, y, x, y, … in pixels), or a run-length code
            (`size` = [height, width], `counts` as a list or in COCO's compressed text).
        height: Of the picture, in pixels.
        width: Of the picture, in pixels.

    Returns:
        Shape (height, width), true where any segmentation is. A polygon of fewer than three points encloses
        nothing.

    Raises:
        ValueError: A segmentation is malformed.
    """
    codes: list[object] = []
    for segmentation in segmentations:
        if isinstance(segmentation, list):
            polygons = [_check_polygon(polygon, height, width) for polygon in segmentation]
            # pycocotools would take four numbers for a box.
            polygons = [polygon for polygon in polygons if len(polygon) >= 6]
            codes += coco_mask.frPyObjects(polygons, height, width) if polygons else []
        else:
            counts = _check_run_lengths(segmentation, height, width)
            codes.append(coco_mask.frPyObjects({"size": [height, width], "counts": counts}, height, width))
    if not codes:
        return np.zeros((height, width), dtype=np.bool_)
    return coco_mask.decode(coco_mask.merge(codes)).astype(np.bool_)


def _check_polygon(polygon: list[float], height: int, width: int) -> list[float]:
    points = np.asarray(polygon, dtype=np.float64)
    if points.ndim != 1 or len(points) % 2:
        raise ValueError("a polygon is not a list of x, y pairs")
    size = (width, height)
    inside = (points.reshape(-1, 2) >= np.negative(size)) & (points.reshape(-1, 2) <= np.multiply(size, 2))
    if not inside.all():  # NaN is not inside either
        raise ValueError("a polygon has points further outside than the picture is large")
    return points.tolist()


def _check_run_lengths(code: Mapping[str, Any], height: int, width: int) -> list[int]:
    if list(code["size"]) != [height, width]:
        raise ValueError(f"a run-length code is for size {code['size']} in a picture of [{height}, {width}]")
    counts = code["counts"]
    if isinstance(counts, str):
        counts = _decompress(counts)
    if not all(isinstance(count, int) and count >= 0 for count in counts) or sum(counts) != height * width:
        raise ValueError("a run-length code does not fill its picture")
    return list(counts)


def _decompress(text: str) -> list[int]:
    """Decode COCO's compressed counts (rleFrString of pycocotools' maskApi.c).

    Numbers are written in groups of 5 bits, lowest first, as characters from '0' on; bit 6 says that more
    follow, bit 5 of the last group is the sign. From the fourth number on, the difference to the number two
    places before is written.
    """
    counts: list[int] = []
    value = shift = 0
    for character in text:
        group = ord(character) - ord("0")
        if not 0 <= group < 64:
            raise ValueError(f"a run-length code holds the character {character!r}")
        value |= (group & 31) << shift
        shift += 5
        if group & 32:
            continue
        if group & 16:
            value -= 1 << shift
        counts.append(value + (counts[-2] if len(counts) > 2 else 0))
        value = shift = 0
    if shift:
        raise ValueError("a run-length code ends within a number")
    return counts
