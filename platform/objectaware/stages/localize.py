"""Stage `localize`: where the objects are."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from typing import Any

from objectaware.config import LocalizeConfig
from objectaware.data.catalog import open_images
from objectaware.data.crops import CroppedObjects
from objectaware.data.folder import ImageFolder
from objectaware.data.manifest import Manifest
from objectaware.data.storage import Storage
from objectaware.distributed.localize import localize
from objectaware.errors import InputError
from objectaware.evaluate.localization import box_count_histogram
from objectaware.localize.coco_export import coco_dataset
from objectaware.localize.mask_store import MaskRow, read_rows
from objectaware.stages.identity import checkpoint_hash, data_hash
from objectaware.stages.progress import format_seconds
from objectaware.stages.runner import Context, StageResult, StageRun, run_stage
from objectaware.tracking.panels import box_histogram, localization_panel

_NUM_PANEL_IMAGES = 12


def run_localize(
    context: Context, config: LocalizeConfig, *, title: str | None = None, out: Storage | None = None
) -> StageResult:
    """Localizes, or reuses the finished localization of the same identity.

    Args:
        context: What the command's stages share.
        config: What to localize, with which checkpoint and how.
        title: What it is called in progress and MLflow.
        out: Folder of the mask store; by default one in the storage.

    Returns:
        Values `masks` (address of the mask store), `annotations` (address of the COCO JSON), `num_images`,
        `num_ok`, `num_failed`, `failures` (the first hundred, with reasons) and `boxes_per_image`.
    """
    inputs = {
        "data": data_hash(config.data, verify=context.verify),
        "checkpoint": checkpoint_hash(config.checkpoint),
    }

    def compute(run: StageRun) -> Mapping[str, Any]:
        return _localize(run, config, inputs)

    data = config.data
    tags = {"dataset": data.root, "localizer": "contracam"}
    name = title or f"localize {data.root}"
    return run_stage(context, "localize", name, config, inputs, compute, tags=tags, out=out)


def _localize(run: StageRun, config: LocalizeConfig, inputs: Mapping[str, str]) -> Mapping[str, Any]:
    data = config.data
    images = open_images(data.root, data.layout, variant=data.variant, split=data.split)
    if isinstance(images, CroppedObjects):
        raise InputError("layout", data.layout, "holds cut-out objects", "Localize the whole pictures: layout coco.")
    summary = localize(
        config, manifest=Manifest.of(images), store=run.folder, on_record=lambda record: _show(run, record)
    )
    run.folder.write_json(
        "store.json",
        {"identity": run.identity, "config": config.model_dump(mode="json"), "inputs": dict(inputs)},
    )
    run.folder.write_bytes("annotations.json", json.dumps(coco_dataset(read_rows(run.folder))).encode())
    counts = box_count_histogram(len(row.boxes) for row in read_rows(run.folder) if row.status == "ok")
    _record_pictures(run, images, counts)
    run.tracker.log_metrics({"images_ok": summary.num_ok, "images_failed": summary.num_failed})
    run.tracker.set_tags({"mask_store": run.folder.uri})
    return {
        "masks": run.folder.uri,
        "annotations": f"{run.folder.uri}/annotations.json",
        "num_images": summary.num_images,
        "num_ok": summary.num_ok,
        "num_failed": summary.num_failed,
        "failures": [list(failure) for failure in summary.failures],
        "boxes_per_image": {str(count): number for count, number in counts.items()},
    }


def _show(run: StageRun, record: Mapping[str, Any]) -> None:
    done, total, rate = int(record["done"]), int(record["total"]), float(record["images_per_second"])
    left = format_seconds((total - done) / rate) if rate else "?"
    run.progress.update(f"{done}/{total} images · {rate:.0f} images/s · {left} left")


def _record_pictures(run: StageRun, images: ImageFolder, counts: Mapping[int, int]) -> None:
    """Logs a panel of images that lie evenly in the store, and the histogram of boxes an image."""
    total = sum(1 for row in read_rows(run.folder) if row.status == "ok")
    step = max(total // _NUM_PANEL_IMAGES, 1)
    chosen = list(itertools.islice(_found(run.folder), 0, step * _NUM_PANEL_IMAGES, step))
    place = {image_id: index for index, image_id in enumerate(images.image_ids)}
    if chosen:
        panel = localization_panel(
            [images.read(place[row.image_id]) for row in chosen],
            [row.cam for row in chosen if row.cam is not None],
            [row.mask for row in chosen if row.mask is not None],
            [row.boxes for row in chosen],
            [row.image_id for row in chosen],
        )
        run.tracker.log_png("panel.png", panel)
    run.tracker.log_png(
        "boxes_per_image.png", box_histogram([n for n, number in counts.items() for _ in range(number)])
    )


def _found(store: Storage) -> itertools.chain[MaskRow]:
    return itertools.chain(row for row in read_rows(store) if row.cam is not None and row.mask is not None)
