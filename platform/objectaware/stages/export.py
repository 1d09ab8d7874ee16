"""Data and results in other forms: boxes and masks for other tools, and packed data sets. Neither is a run."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from objectaware.augment.crop import least_short_side
from objectaware.config import DataConfig
from objectaware.data.coco_json import parse_instances
from objectaware.data.dataset import Dataset
from objectaware.data.folder import ImageFolder
from objectaware.data.pack import pack_images
from objectaware.data.sets.coco import coco_of
from objectaware.data.storage import Storage
from objectaware.errors import InputError
from objectaware.localize.exports import (
    annotated_rows,
    box_results,
    coco_json,
    mask_results,
    official_box_lines,
    stored_rows,
    write_mask_pngs,
)
from objectaware.localize.mask_store import MaskRow
from objectaware.stages.progress import Progress

_MAX_LISTED = 100

_Writer = Callable[[Iterable[MaskRow], Mapping[str, int] | None], Iterator[bytes]]


@dataclass
class ExportSummary:
    """Counts of an export.

    Attributes:
        num_images: Number of images in the store.
        num_failed: Number of these whose localization failed.
    """

    num_images: int = 0
    num_failed: int = 0


def export_boxes(
    store: str, out: str, *, file_format: Literal["coco", "coco-results", "official"], numbers: Path | None = None
) -> ExportSummary:
    """Write the boxes of a mask store to a file. Memory holds one shard of the store at a time.

    Args:
        store: Folder of the mask store.
        out: The file, local or in an object store. An existing file is replaced once the new one is complete.
        file_format: `coco` annotations (see `coco_json`), `coco-results` (see `box_results`) or `official` (see
            `official_box_lines`).
        numbers: COCO annotation file whose image numbers are used. Results are then in its pixels.

    Raises:
        InputError: `store` is not a finished mask store, `numbers` does not fit, the format cannot hold a name, or the
            pictures, which say how they are turned, are gone.
    """
    if file_format == "coco" and numbers is not None:
        problem = "has no meaning for the format coco, which numbers the images itself"
        raise InputError("numbers", numbers, problem, "Leave it out.")
    writers: Mapping[str, _Writer] = {
        "coco": lambda rows, _: coco_json(rows),
        "coco-results": box_results,
        "official": official_box_lines,
    }
    return _export(store, out, writers[file_format], numbers, in_pixels=file_format == "coco-results")


def export_masks(
    store: str, out: str, *, file_format: Literal["png", "coco-results"], numbers: Path | None = None
) -> ExportSummary:
    """Write the masks of a mask store. Memory holds one shard of it at a time, and for PNG files also all names.

    Args:
        store: Folder of the mask store.
        out: Folder of the PNG files, or the result file.
        file_format: `png` (see `write_mask_pngs`) or `coco-results` (see `mask_results`).
        numbers: As for `export_boxes`.

    Raises:
        InputError: As for `export_boxes`; or two images differ only in their suffix; or a PNG file with different
            content exists.
    """
    if file_format == "coco-results":
        return _export(store, out, mask_results, numbers, in_pixels=True)
    if numbers is not None:
        raise InputError("numbers", numbers, "has no meaning for PNG files, which keep their names", "Leave it out.")
    summary = ExportSummary()
    storage = Storage.from_uri(store)
    write_mask_pngs(storage, Storage.from_uri(out), _counted(stored_rows(storage), summary))
    return summary


def _export(store: str, out: str, writer: _Writer, numbers: Path | None, *, in_pixels: bool) -> ExportSummary:
    """Write a store to a file.

    Args:
        store: Folder of the mask store.
        out: The file.
        writer: Makes the file's bytes from the rows and, if there is an annotation file, its image numbers.
        numbers: The annotation file.
        in_pixels: Whether the output is in pixels. If there is an annotation file, they are its pixels.
    """
    summary = ExportSummary()
    storage = Storage.from_uri(store)
    rows = _counted(stored_rows(storage), summary)
    instances = None if numbers is None else parse_instances(numbers)
    if instances is not None and in_pixels:
        instances.check("shape")
        images = DataConfig.model_validate(storage.read_json("store.json")["config"]["data"]).open()
        assert isinstance(images, ImageFolder), "nothing else is localized"
        rows = annotated_rows(rows, coco_of(instances, images.root), storage)
    folder, name = Storage.from_uri(out).split()
    folder.write_pieces(name, writer(rows, None if instances is None else instances.number_of_name))
    return summary


def _counted(rows: Iterable[MaskRow], summary: ExportSummary) -> Iterator[MaskRow]:
    for row in rows:
        summary.num_images += 1
        summary.num_failed += row.status == "failed"
        yield row


def run_pack(
    data: DataConfig,
    out: Storage,
    *,
    short_side: int | None,
    image_size: int,
    min_crop_scale: float,
    shard_bytes: int,
    num_threads: int,
) -> dict[str, Any]:
    """Pack a data set, with its labels, boxes and masks if it has them.

    Args:
        data: The images, in a folder of whole pictures.
        out: Folder of the pack.
        short_side: Short side in pixels to which larger images are shrunk.
        image_size: Side in pixels of the views that the pack is for.
        min_crop_scale: Smallest share of an image that a crop for these views covers.
        shard_bytes: Size of a shard in bytes.
        num_threads: Number of threads that read and encode.

    Returns:
        Values `pack` (address), `num_images`, `num_unreadable`, `num_shards` and `unreadable` (the first hundred
        unreadable images, with reasons; the pack's `index.parquet` has all).

    Raises:
        InputError: The images cannot be opened, the short side is too small for the views, or the folder holds
            another pack.
    """
    least = least_short_side(image_size, min_scale=min_crop_scale)
    if short_side is not None and short_side < least:
        problem = (
            f"is less than {least} = image_size {image_size} / sqrt(min_crop_scale {min_crop_scale:g} · 3/4), where "
            "the smallest random crops begin to lose detail"
        )
        raise InputError("short_side", short_side, problem, "Give more, or the recipe's own values of the two.")
    opened = Dataset.of(data)
    images = opened.images
    assert isinstance(images, ImageFolder)
    truth, truth_notice = opened.find_truth()
    if truth is not None and not truth.has_masks:
        truth = None  # a pack cannot hold boxes without masks
    truth_hash: str | None = None
    if truth is not None:  # of all files that masks and boxes come from
        truth_hash = hashlib.sha256((opened.annotation_hash + truth.content_hash()).encode()).hexdigest()
    progress = Progress()
    title = f"pack {data.root}"
    progress.start(title)
    for notice in filter(None, [images.notice, truth_notice]):
        progress.line(f"  {notice}")
    summary = pack_images(
        images,
        out,
        source=data.model_dump(mode="json", exclude_none=True),
        truth=truth,
        truth_hash=truth_hash,
        short_side=short_side,
        shard_bytes=shard_bytes,
        num_threads=num_threads,
        on_shard=lambda done, total: progress.update(f"shard {done}/{total}"),
    )
    progress.finish(title)
    return {
        "pack": out.uri,
        "num_images": summary.num_images,
        "num_unreadable": len(summary.unreadable),
        "num_shards": summary.num_shards,
        "unreadable": [list(pair) for pair in islice(sorted(summary.unreadable.items()), _MAX_LISTED)],
    }
