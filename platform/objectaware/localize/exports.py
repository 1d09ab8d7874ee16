"""Export of a mask store to the formats of other tools, with one row in memory at a time."""

from __future__ import annotations

import itertools
import json
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from objectaware.data.images import UnreadableImage
from objectaware.data.masks import mask_png, pixel_region, resize_mask
from objectaware.data.sets.coco import CocoDataset
from objectaware.data.storage import Storage
from objectaware.errors import InputError
from objectaware.localize.mask_store import MaskRow, encode_mask, finished_shards, read_localized_ids, read_rows

OBJECT_CATEGORY = 1
"""Number of the only category, `object`, in annotations and results."""

_CATEGORY = {"id": OBJECT_CATEGORY, "name": "object", "supercategory": "object"}


def stored_rows(store: Storage) -> Iterator[MaskRow]:
    """Return the rows of a finished mask store.

    Raises:
        InputError: The folder holds no mask store, or localization has not finished it. The call raises the error, not
            the first row.
    """
    if not finished_shards(store):
        remedy = "Give a folder that `objectaware localize` wrote (it prints the address as `masks`)."
        raise InputError("store", store.uri, "holds no mask store", remedy)
    if not store.exists("store.json"):
        remedy = "Run the same `objectaware localize` again: it goes on from where it stopped."
        raise InputError("store", store.uri, "is a mask store that is not finished", remedy)
    return read_rows(store)


def annotated_rows(rows: Iterable[MaskRow], coco: CocoDataset, store: Storage) -> Iterator[MaskRow]:
    """Turn masks and boxes of upright pictures back into the pixel grid of an annotation file.

    Args:
        rows: Rows of a mask store.
        coco: The pictures that were localized, with the annotation file.
        store: The mask store, for the message.

    Yields:
        Each row at the height and width that the annotation file gives; failed rows unchanged.

    Raises:
        InputError: An image has no number or no size, or its picture, which says how it is turned, is gone.
    """
    place = {image_id: index for index, image_id in enumerate(coco.images.image_ids)}
    for row in rows:
        if row.mask is None:
            yield row
            continue
        index = _number(place, row.image_id)
        _require_picture(row, coco, index, store)
        turn = coco.turn(index)
        height, width = turn.shape
        back = turn.inverse
        yield replace(
            row,
            height=height,
            width=width,
            mask=resize_mask(back.pixels(row.mask), height, width),
            cam=None if row.cam is None else back.pixels(row.cam),
            boxes=back.boxes(row.boxes),
        )


def _require_picture(row: MaskRow, coco: CocoDataset, index: int, store: Storage) -> None:
    """Refuse a row whose picture cannot be read, or does not have the size of the picture that was localized."""
    try:
        height, width = coco.stored(index).upright_shape
        state = f"is {width} × {height} pixels"
    except UnreadableImage as error:
        height, width = 0, 0
        state = f"cannot be read ({error.reason})"
    if (height, width) != (row.height, row.width):
        problem = f"has a mask of {row.width} × {row.height} pixels of {row.image_id}, which now {state}"
        remedy = f"Put the pictures that were localized back into {coco.images.root}, or leave --numbers out."
        raise InputError("store", store.uri, problem, remedy)


def coco_json(rows: Iterable[MaskRow]) -> Iterator[bytes]:
    """Write a COCO data set with the only category `object` and one annotation per box, one row in memory at a time.

    Args:
        rows: Rows of a mask store.

    Yields:
        Pieces of one JSON object with `categories`, `annotations` and `images` as in COCO's instances files.
        Images are numbered from 1 in the order of the rows. An annotation's segmentation is the part of the mask
        inside its box, as compressed RLE. Failed images are listed without annotations.
    """
    numbers = itertools.count(1)
    # The images wait in a file, because JSON needs one list after the other and the rows can be read only once.
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
    """Convert a relative box x0 y0 x1 y1 to COCO's form: left, top, width and height in pixels."""
    x0, y0, x1, y1 = (float(value) * size for value, size in zip(box, (width, height) * 2, strict=True))
    return [x0, y0, x1 - x0, y1 - y0]


def segmentation(mask: NDArray[np.bool_]) -> dict[str, Any]:
    """Encode a mask (H, W) as COCO's compressed RLE, in the form for JSON."""
    return {"size": list(mask.shape), "counts": encode_mask(mask).decode("ascii")}


def official_box_lines(rows: Iterable[MaskRow], image_numbers: Mapping[str, int] | None = None) -> Iterator[bytes]:
    """Write boxes in the format of the official code's text file `data/boxes` (utils/box_utils.py, save_boxes).

    Each image has one line: its id, and for each box a space and `x0,y0,x1,y1`, relative with six decimals. As in the
    official code, the line of an image without boxes holds only its id. Failed images have no line, so that a reader
    can see that they are missing.

    Args:
        rows: Rows of a mask store.
        image_numbers: COCO's number of each image, to be its id; by default the id is the image's path, as in the
            official code for folders.

    Raises:
        InputError: An id contains white space, which is the format's separator, or an image has no number.
    """
    for row in rows:
        if row.status == "ok":
            image = row.image_id if image_numbers is None else str(_number(image_numbers, row.image_id))
            if image.split() != [image]:
                remedy = "Rename the file, or export as coco."
                raise InputError("image_id", ascii(image), "holds white space, which this format cannot hold", remedy)
            boxes = [",".join(f"{value:.6f}" for value in box) for box in row.boxes.tolist()]
            yield (" ".join([image, *boxes]) + "\n").encode()


def box_results(rows: Iterable[MaskRow], image_numbers: Mapping[str, int] | None = None) -> Iterator[bytes]:
    """Write boxes as a COCO result file, which `pycocotools.coco.COCO.loadRes` reads.

    Args:
        rows: Rows of a mask store.
        image_numbers: COCO's number of each image; by default images are numbered from 1 in the order of the rows,
            as in `coco_json`.

    Yields:
        Pieces of a JSON list with one entry per box: `image_id`, `category_id` 1, `bbox` (x, y, width, height in
        pixels) and `score`, the mean of the CAM over the mask inside the box.

    Raises:
        InputError: An image has no number.
    """
    return _json_list(
        {
            **_place(row, index, image_numbers),
            "bbox": pixel_box(box, row.height, row.width),
            "score": _mean_cam(row, box),
        }
        for index, row in enumerate(rows, start=1)
        for box in row.boxes
    )


def mask_results(rows: Iterable[MaskRow], image_numbers: Mapping[str, int] | None = None) -> Iterator[bytes]:
    """Write masks as a COCO result file. Each image has one entry with its whole mask, so that nothing is lost.

    Args:
        rows: Rows of a mask store.
        image_numbers: As for `box_results`.

    Yields:
        Pieces of a JSON list with `image_id`, `category_id` 1, `segmentation` (compressed RLE) and `score`, the
        mean of the CAM over the mask. Failed images and images with an empty mask have no entry.

    Raises:
        InputError: An image has no number.
    """
    whole = np.array([0, 0, 1, 1], dtype=np.float32)
    return _json_list(
        {
            **_place(row, index, image_numbers),
            "segmentation": segmentation(row.mask),
            "score": _mean_cam(row, whole),
        }
        for index, row in enumerate(rows, start=1)
        if row.mask is not None and row.mask.any()
    )


def write_mask_pngs(store: Storage, folder: Storage, rows: Iterable[MaskRow]) -> int:
    """Write each mask as an 8-bit grey PNG, 0 or 255, of its image's size: `<path without suffix>.png`.

    The function checks all names before it writes anything. It keeps an existing file that already has the right
    content: an export that was stopped wrote that file.

    Args:
        store: The finished mask store.
        folder: Target folder. It may hold other files, but not under these names.
        rows: Rows of the store; failed rows are left out.

    Returns:
        Number of files that were written.

    Raises:
        InputError: Two images differ only in suffix, a name leads out of the folder, or a file with other content
            exists already.
    """
    names = _png_names(store, folder)
    there = {name for name, _, _ in folder.list_files()}.intersection(names.values())
    if there:
        for row in read_rows(store):
            if row.mask is not None and names[row.image_id] in there:
                _require_own(folder, names[row.image_id], row)
    num_files = 0
    for row in rows:
        if row.mask is not None and names[row.image_id] not in there:
            if not folder.create_exclusive(names[row.image_id], mask_png(row.mask)):
                _require_own(folder, names[row.image_id], row)
            num_files += 1
    return num_files


def _png_names(store: Storage, folder: Storage) -> dict[str, str]:
    """Return the file name of each image's mask, by the image's id."""
    names: dict[str, str] = {}
    image_of_name: dict[str, str] = {}
    for image_id in read_localized_ids(store):
        name = str(PurePosixPath(image_id).with_suffix(".png"))
        folder.local_path(name)  # refuses one that leads elsewhere
        other = image_of_name.setdefault(name, image_id)
        if other != image_id:
            remedy = "Rename one of the images and localize again, or export as coco-results."
            raise InputError("store", image_id, f"differs from {other} in suffix alone, and both give {name}", remedy)
        names[image_id] = name
    return names


def _require_own(folder: Storage, name: str, row: MaskRow) -> None:
    """Refuse an existing file, unless it already has the right content."""
    assert row.mask is not None, row.image_id
    if folder.read_bytes(name) != mask_png(row.mask):
        problem = f"exists already with another content, and is where the mask of {row.image_id} goes"
        raise InputError("out", f"{folder.uri}/{name}", problem, "Give a new folder.")


def _json(value: object) -> bytes:
    return json.dumps(value).encode()


def _json_list(entries: Iterable[Mapping[str, Any]]) -> Iterator[bytes]:
    yield b"["
    separator = b"\n"
    for entry in entries:
        yield separator + _json(entry)
        separator = b",\n"
    yield b"\n]\n"


def _place(row: MaskRow, index: int, image_numbers: Mapping[str, int] | None) -> dict[str, int]:
    number = index if image_numbers is None else _number(image_numbers, row.image_id)
    return {"image_id": number, "category_id": OBJECT_CATEGORY}


def _number(image_numbers: Mapping[str, int], image_id: str) -> int:
    try:
        return image_numbers[image_id]
    except KeyError:
        remedy = "Give the annotation file of the images that were localized."
        raise InputError("numbers", image_id, "is not among the images of the annotation file", remedy) from None


def _mean_cam(row: MaskRow, box: NDArray[np.float32]) -> float:
    """Return the mean of the soft mask over the binary mask inside a relative box; 0 if the binary mask is empty."""
    assert row.cam is not None, row.image_id
    assert row.mask is not None, row.image_id
    height, width = row.cam.shape
    mask = resize_mask(row.mask, height, width)
    top, left, num_rows, num_columns = pixel_region(box, height, width)
    region = slice(top, top + num_rows), slice(left, left + num_columns)
    values = row.cam[region][mask[region]]
    return float(values.mean()) if values.size else 0.0
