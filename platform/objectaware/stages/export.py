"""Export of localized objects in the formats of other tools."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from objectaware.config import DataConfig
from objectaware.data.coco_json import parse_instances
from objectaware.data.folder import ImageFolder
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
    store: str,
    out: str,
    *,
    file_format: Literal["coco", "coco-results", "official"],
    numbers: Path | None = None,
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
    if file_format == "coco":
        if numbers is not None:
            problem = "has no meaning for the format coco, which numbers the images itself"
            raise InputError("numbers", numbers, problem, "Leave it out.")
        return _export(store, out, lambda rows, _: coco_json(rows), None)
    if file_format == "coco-results":
        return _export(store, out, box_results, numbers, in_pixels=True)
    return _export(store, out, official_box_lines, numbers)


def export_masks(
    store: str,
    out: str,
    *,
    file_format: Literal["png", "coco-results"],
    numbers: Path | None = None,
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


def _export(store: str, out: str, writer: _Writer, numbers: Path | None, *, in_pixels: bool = False) -> ExportSummary:
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
    folder, name = Storage.from_uri(out).split()
    if numbers is None:
        folder.write_pieces(name, writer(rows, None))
        return summary
    instances = parse_instances(numbers)
    if in_pixels:
        instances.check("shape")
        rows = annotated_rows(rows, coco_of(instances, _pictures(storage)), storage)
    folder.write_pieces(name, writer(rows, instances.number_of_name))
    return summary


def _pictures(store: Storage) -> Path:
    """Return the folder of the pictures that were localized."""
    images = DataConfig.model_validate(store.read_json("store.json")["config"]["data"]).open()
    assert isinstance(images, ImageFolder), "nothing else is localized"
    return images.root


def _counted(rows: Iterable[MaskRow], summary: ExportSummary) -> Iterator[MaskRow]:
    for row in rows:
        summary.num_images += 1
        summary.num_failed += row.status == "failed"
        yield row
