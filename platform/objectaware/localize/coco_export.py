"""What localization found, as COCO annotation JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pycocotools.mask as rle
from numpy.typing import NDArray

from objectaware.data.boxes import pixel_region
from objectaware.localize.mask_store import MaskRow

_CATEGORY = {"id": 1, "name": "object", "supercategory": "object"}


def coco_dataset(rows: Iterable[MaskRow]) -> dict[str, Any]:
    """Makes a COCO data set of the one category `object`, an annotation a box.

    Args:
        rows: Rows of a mask store.

    Returns:
        `images`, `annotations` and `categories` as in COCO's instances files; images are numbered from 1 in the
        order of the rows. An annotation's segmentation is what the mask has inside its box, as compressed RLE.
        Images that failed are listed without annotations.
    """
    images: list[Mapping[str, Any]] = []
    annotations: list[Mapping[str, Any]] = []
    for number, row in enumerate(rows, start=1):
        images.append({"id": number, "file_name": row.image_id, "width": row.width, "height": row.height})
        for box in row.boxes:
            if row.mask is not None:
                annotations.append(_annotation(len(annotations) + 1, number, box, row.mask))
    return {"images": images, "annotations": annotations, "categories": [_CATEGORY]}


def _annotation(number: int, image: int, box: NDArray[np.float32], mask: NDArray[np.bool_]) -> Mapping[str, Any]:
    height, width = mask.shape
    x0, y0, x1, y1 = (float(value) * size for value, size in zip(box, (width, height) * 2, strict=True))
    inside = np.zeros_like(mask)
    top, left, num_rows, num_columns = pixel_region(box, height, width)
    rows, columns = slice(top, top + num_rows), slice(left, left + num_columns)
    inside[rows, columns] = mask[rows, columns]
    code = rle.encode(np.asfortranarray(inside.astype(np.uint8)))
    return {
        "id": number,
        "image_id": image,
        "category_id": _CATEGORY["id"],
        "bbox": [x0, y0, x1 - x0, y1 - y0],
        "area": int(inside.sum()),
        "iscrowd": 0,
        "segmentation": {"size": [height, width], "counts": code["counts"].decode("ascii")},
    }
