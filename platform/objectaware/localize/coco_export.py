"""What localization found, as COCO annotation JSON."""

from __future__ import annotations

import itertools
import json
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from objectaware.data.masks import pixel_region
from objectaware.localize.mask_store import MaskRow, encode_mask

OBJECT_CATEGORY = 1
"""Number of the one category, `object`, in annotations and results."""

_CATEGORY = {"id": OBJECT_CATEGORY, "name": "object", "supercategory": "object"}


def coco_json(rows: Iterable[MaskRow]) -> Iterator[bytes]:
    """Writes a COCO data set of the one category `object`, an annotation a box; memory holds one row at a time.

    Args:
        rows: Rows of a mask store.

    Yields:
        Pieces of one JSON object with `categories`, `annotations` and `images` as in COCO's instances files.
        Images are numbered from 1 in the order of the rows. An annotation's segmentation is what the mask has
        inside its box, as compressed RLE. Images that failed are listed without annotations.
    """
    numbers = itertools.count(1)
    # The images wait in a file: JSON takes one list after the other, and the rows come once.
    with tempfile.TemporaryFile() as images:
        yield b'{"categories": ' + _json([_CATEGORY]) + b', "annotations": ['
        for image, row in enumerate(rows, start=1):
            entry = {"id": image, "file_name": row.image_id, "width": row.width, "height": row.height}
            images.write((b", " if image > 1 else b"") + _json(entry))
            for box in row.boxes:
                if row.mask is not None:
                    number = next(numbers)
                    yield (b", " if number > 1 else b"") + _json(_annotation(number, image, box, row.mask))
        yield b'], "images": ['
        images.seek(0)
        yield from iter(lambda: images.read(2**16), b"")
        yield b"]}"


def _json(value: object) -> bytes:
    return json.dumps(value).encode()


def _annotation(number: int, image: int, box: NDArray[np.float32], mask: NDArray[np.bool_]) -> Mapping[str, Any]:
    height, width = mask.shape
    inside = np.zeros_like(mask)
    top, left, num_rows, num_columns = pixel_region(box, height, width)
    rows, columns = slice(top, top + num_rows), slice(left, left + num_columns)
    inside[rows, columns] = mask[rows, columns]
    return {
        "id": number,
        "image_id": image,
        "category_id": OBJECT_CATEGORY,
        "bbox": pixel_box(box, height, width),
        "area": int(inside.sum()),
        "iscrowd": 0,
        "segmentation": segmentation(inside),
    }


def pixel_box(box: NDArray[np.float32], height: int, width: int) -> list[float]:
    """A relative box x0 y0 x1 y1 as COCO has it: left, top, width and height in pixels."""
    x0, y0, x1, y1 = (float(value) * size for value, size in zip(box, (width, height) * 2, strict=True))
    return [x0, y0, x1 - x0, y1 - y0]


def segmentation(mask: NDArray[np.bool_]) -> dict[str, Any]:
    """A mask (H, W) as COCO's compressed RLE, as JSON holds it."""
    return {"size": list(mask.shape), "counts": encode_mask(mask).decode("ascii")}
