"""Stage `localize`: find the objects in images."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import numpy as np

from objectaware.config import LocalizeConfig, Localizer
from objectaware.data.dataset import Dataset
from objectaware.data.folder import ImageFolder
from objectaware.distributed.localize import localize as localize_images
from objectaware.distributed.localize import localize_needs
from objectaware.distributed.localize_steps import negative_indices
from objectaware.errors import InputError
from objectaware.evaluate.mask_scores import box_count_histogram
from objectaware.localize.exports import coco_json
from objectaware.localize.localizer import expand_resolution
from objectaware.localize.mask_store import ITERATIONS_NAME, read_rows
from objectaware.methods.checkpoint import load_encoder, local_checkpoint
from objectaware.report.figures import box_histogram, iteration_panel
from objectaware.report.gallery import Look, Truth
from objectaware.stages.identity import checkpoint_hash, classifier_hash
from objectaware.stages.progress import format_seconds
from objectaware.stages.registry import stage
from objectaware.stages.runner import Computation, Context, StageRun

_GALLERY = "gallery.html"


@stage(
    "localize",
    version=4,
    command="localize",
    outcome="masks",
    outputs=("shard-*.parquet", "store.json", "annotations.json", _GALLERY, ITERATIONS_NAME),
    measures=False,
    needs=lambda config: localize_needs(config.execution),
)
def localize(context: Context, config: LocalizeConfig) -> Computation[LocalizeConfig]:
    """Find the objects in images and write a mask store.

    Returns:
        Values `masks` (address of the mask store), `annotations` (address of the COCO JSON), `gallery` (address of
        the HTML page, which is also in MLflow), `num_images`, `num_ok`, `num_failed`, `failures` (the first hundred,
        with reasons), `notices` (how another system's checkpoint was read) and `boxes_per_image`.
    """
    data = Dataset.of(config.data)
    inputs = {"data": data.content_hash(context.mode.verify)}
    if config.checkpoint is not None:
        inputs["checkpoint"] = checkpoint_hash(config.checkpoint)
    if config.localizer.needs_classifier:
        inputs["classifier"] = classifier_hash(config.localizer.model_dump()["classifier"])
    if config.execution.record_iterations:
        # Masks that were computed without recording the iterations cannot show them.
        inputs["iterations"] = "recorded"

    return Computation(
        title=f"localize {config.data.root}",
        inputs=inputs,
        compute=lambda run, config: _localize(run, config, inputs, data),
        tags={"dataset": config.data.root, "localizer": config.localizer.name},
        check=lambda config: check_localize(config, data),
        least_needs=lambda config: localize_needs(config.execution, least=True),
        networks=[] if config.checkpoint is None or config.untrained else [config.checkpoint],
    )


def check_localize(config: LocalizeConfig, data: Dataset) -> None:
    """Open the images and the network.

    Args:
        config: Configuration of the localization.
        data: Its data set.

    Raises:
        InputError: An input is missing or malformed, or does not fit.
    """
    _localizable(config, data)
    negative_indices(data.manifest, config.localizer.only_negatives or ())
    if config.checkpoint is not None:
        with local_checkpoint(config.checkpoint) as local:
            backbone = load_encoder(local).backbone
        backbone.check_size(config.image_size, config.image_size)
        expand_resolution(backbone, getattr(config.localizer, "expansion", 1))


def _localizable(config: LocalizeConfig, data: Dataset) -> ImageFolder:
    """Return the images, or refuse other layouts and a single image without others to compare it with."""
    images = data.images
    if not isinstance(images, ImageFolder):
        remedy = "Localize the folder that was cut out or packed; masks go by the names of its images."
        raise InputError("layout", config.data.layout, "is not a folder of whole pictures", remedy)
    if len(images) == 1 and config.localizer.needs_negatives:
        name = config.localizer.name
        problem = f"holds one image, and {name} finds what sets an image apart from others, its negatives"
        others = ", ".join(name for name, one in Localizer.variants().items() if not one.needs_negatives)
        remedy = f"Add images of other objects; or take a localizer that needs none ({others})."
        raise InputError("images", config.data.root, problem, remedy)
    return images


def _localize(run: StageRun, config: LocalizeConfig, inputs: Mapping[str, str], data: Dataset) -> Mapping[str, Any]:
    images = _localizable(config, data)
    notices: list[str] = []  # of how the checkpoint was read
    if config.checkpoint is not None:
        with local_checkpoint(config.checkpoint) as local:
            notices = list(load_encoder(local).notices)
    truth, truth_notice = truth_of(data)
    for notice in filter(None, [images.notice, truth_notice, *notices]):
        run.progress.line(f"  {notice}")
    look = Look(images, truth)
    summary = localize_images(
        config, manifest=data.manifest, store=run.folder, on_record=lambda record: _show(run, record)
    )
    store = {"identity": run.identity, "config": config.model_dump(mode="json"), "inputs": dict(inputs)}
    run.folder.write_json("store.json", store)
    # Read the store only once, for the annotations and for the look.
    run.folder.write_pieces("annotations.json", coco_json(look.watch(read_rows(run.folder))))
    gallery = look.gallery(config.data.root)
    run.folder.write_bytes(_GALLERY, gallery.encode())
    run.tracker.log_text(_GALLERY, gallery)
    run.tracker.log_png("boxes_per_image.png", box_histogram(look.box_counts))
    panel = look.panel()
    if panel is not None:
        run.tracker.log_png("panel.png", panel)
    if config.execution.record_iterations:
        _record_iterations(run, images)
    seconds = summary.waiting_seconds + summary.working_seconds
    if seconds:
        run.tracker.log_metrics({"data_wait_share": summary.waiting_seconds / seconds})
    run.tracker.log_metrics({"images_ok": summary.num_ok, "images_failed": summary.num_failed})
    run.tracker.set_tags({"mask_store": run.folder.uri})
    histogram = box_count_histogram(look.box_counts.elements())
    return {
        "masks": run.folder.uri,
        "annotations": f"{run.folder.uri}/annotations.json",
        "gallery": f"{run.folder.uri}/{_GALLERY}",
        "num_images": summary.num_images,
        "num_ok": summary.num_ok,
        "num_failed": summary.num_failed,
        "failures": [list(failure) for failure in summary.failures],
        "notices": notices,
        "boxes_per_image": {str(count): number for count, number in histogram.items()},
    }


def _show(run: StageRun, record: Mapping[str, Any]) -> None:
    if record["kind"] == "waiting":
        run.progress.line(record["text"])
        return
    done, total, rate = int(record["done"]), int(record["total"]), float(record["images_per_second"])
    left = format_seconds((total - done) / rate) if rate else "?"
    run.progress.update(f"{done}/{total} images · {rate:.0f} images/s · {left} left")


def _record_iterations(run: StageRun, images: ImageFolder) -> None:
    """Log a panel of the CAM of each iteration, for the images that have them."""
    if not run.folder.exists(ITERATIONS_NAME):
        run.progress.line("the CAM of each iteration is missing: the masks were begun without; --fresh computes it")
        return
    with np.load(io.BytesIO(run.folder.read_bytes(ITERATIONS_NAME))) as kept:
        image_ids, cams = kept["image_ids"].tolist(), kept["cams"]
    place = {image_id: index for index, image_id in enumerate(images.image_ids)}
    photos = [images.read(place[image_id]) for image_id in image_ids]
    run.tracker.log_png("iterations.png", iteration_panel(photos, cams, image_ids))


def truth_of(data: Dataset) -> tuple[Truth | None, str]:
    """Return the true masks of a data set by image id, or None if it has none, and a notice.

    See `Dataset.find_truth`.
    """
    masks, notice = data.find_truth(needs_boxes=False)
    if masks is None or not masks.has_masks:
        return None, notice
    place = {image_id: index for index, image_id in enumerate(data.image_ids)}
    return lambda image_id: (masks[place[image_id]], masks.ignored(place[image_id])), notice
