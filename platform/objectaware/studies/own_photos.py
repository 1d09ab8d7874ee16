"""Study `own photos`: pretrain on a folder of photos, and find their objects, on a laptop.

The settings are those of the study on photographs (`jobs/recipes/tiny_imagenet`), for views of 96 pixels. The folder's
size decides the batch, the queue and the number of epochs.
"""

from __future__ import annotations

import math
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from objectaware.config import DataConfig, LocalizeConfig, PretrainConfig
from objectaware.config.variants import default_names
from objectaware.data.dataset import Dataset, OpenedImages
from objectaware.data.images import UnreadableImage, none_readable, resize_image
from objectaware.data.storage import Storage
from objectaware.errors import InputError
from objectaware.planning.measure import MeasureConfig, measure_rates
from objectaware.planning.model import (
    Machine,
    Rates,
    StageName,
    StageTime,
    format_hours,
    localize_work,
    num_cores,
    pretrain_work,
    read_rates,
    soft_mask_work,
    write_rates,
)
from objectaware.recipes import SHIPPED_RECIPES, merged, read_recipe
from objectaware.report.tables import report_of
from objectaware.stages.runner import Context
from objectaware.studies.engine import Results, Step, open_study, run

_RECIPES = SHIPPED_RECIPES / "tiny_imagenet"
_VIEW_SIZE = 96
_LOCALIZATION_SIZE = 2 * _VIEW_SIZE
_BATCH_SIZE = 64
_MEASURED_BATCH_SIZE = 16
"""Images per measured step. Measuring with the training's own number would take longer than the estimate is worth."""
_NUM_QUEUED_BATCHES = 32
_NUM_SAMPLES = 240_000
"""Photos times epochs. The first trial on 10,000 photos had 24 epochs."""
_NUM_EPOCHS = (24, 200)
"""Fewest and most epochs without the user's own number."""
_MIN_PHOTOS = 4
_NUM_READ = 16
"""Photos whose reading is timed."""
_FEW_PHOTOS = 500
_START_SECONDS: dict[StageName, float] = {"pretrain": 12.0, "localize": 8.0, "linear": 8.0}
"""Seconds in which Ray starts and ends the processes of a stage. Measuring them would take a minute or more."""


def open_photos(root: str) -> OpenedImages:
    """Open a folder of photos.

    Raises:
        InputError: There are too few to compare with each other.
    """
    images = Dataset.of(DataConfig(root=root)).images
    if len(images) < _MIN_PHOTOS:
        problem = f"holds {len(images)} photos, too few to compare with each other"
        raise InputError("photos", root, problem, f"Give at least {_MIN_PHOTOS}, and better some thousands.")
    return images


def own_photos_stages(
    root: str, num_photos: int, num_epochs: int | None, *, checkpoint: str, seed: int = 0
) -> tuple[PretrainConfig, LocalizeConfig]:
    """Return the configurations of the training and of the localization.

    Args:
        root: Folder of the photos.
        num_photos: Number of the photos. At most a quarter of them is in the queue at a time, or a photo would often be
            its own negative.
        num_epochs: Epochs of the training. By default as many as show 240,000 photos, between 24 and 200.
        checkpoint: Address of the trained network.
        seed: Seed of both.
    """
    batch_size = min(_BATCH_SIZE, num_photos)
    num_queued = min(_NUM_QUEUED_BATCHES, max(1, num_photos // (4 * batch_size)))
    fewest, most = _NUM_EPOCHS
    num_loader_threads = max(1, num_cores() // 2)
    num_compute_threads = max(1, num_cores() - num_loader_threads)
    own: dict[str, Any] = {
        "image_size": _VIEW_SIZE,
        "batch_size": batch_size,
        "method": {"queue_size": num_queued * batch_size},
        "num_epochs": num_epochs or min(most, max(fewest, _NUM_SAMPLES // num_photos)),
        "execution": {"num_loader_threads": num_loader_threads, "num_compute_threads": num_compute_threads},
    }
    shared = {"data": DataConfig(root=root), "seed": seed}
    options = default_names(PretrainConfig)
    training = merged(read_recipe(_RECIPES / "moco.yaml", options), own, options)
    localization = read_recipe(_RECIPES / "localize_crop.yaml", default_names(LocalizeConfig))
    network = {"checkpoint": checkpoint, "image_size": _LOCALIZATION_SIZE}
    return (
        PretrainConfig.model_validate({**training, **shared}),
        LocalizeConfig.model_validate({**localization, **shared, **network}),
    )


def machine_rates(storage: Storage, images: OpenedImages, training: PretrainConfig) -> Rates:
    """Return this machine's rates for both stages: measured in the first run, and read from the storage afterwards.

    Args:
        storage: Storage of the runs. Only a local one keeps the rates.
        images: The photos. Small copies of some of them are measured, so that neither large files nor broken ones
            matter.
        training: Configuration of the training.
    """
    device = "cuda" if torch.cuda.is_available() else "cpu"
    local = storage.local_path()
    known = None if local is None else local / f"rates-{device}-{num_cores()}-cores-{training.image_size}.json"
    if known is not None and known.is_file():
        return read_rates(known)
    fields = {"device": device, "backbones": (training.backbone,), "expansions": (2,)}
    sizes = {"image_size": training.image_size, "batch_size": _MEASURED_BATCH_SIZE}
    with tempfile.TemporaryDirectory(prefix="oa-rates-") as name:
        copies = Path(name, "copies")
        copies.mkdir()
        side = 2 * training.image_size
        for number, pixels in enumerate(_some(images)):
            Image.fromarray(resize_image(pixels, (side, side))).save(copies / f"{number}.jpg")
        config = MeasureConfig.model_validate({**fields, **sizes, "images": str(copies)})
        rates = measure_rates(config, Path(name, "rates"), _START_SECONDS)
    if known is not None:
        write_rates(known, rates)
    return rates


def with_decoding(rates: Rates, images: OpenedImages) -> Rates:
    """Return the rates with the time that reading takes for some of the given images."""
    begun = time.perf_counter()
    num_bytes = [pixels.nbytes for pixels in _some(images)]
    decoding = (time.perf_counter() - begun) / len(num_bytes)
    reading = max(rates.reading - rates.decoding, 0.0) + decoding
    picture_bytes = statistics.fmean(num_bytes)
    return rates.model_copy(update={"decoding": decoding, "reading": reading, "picture_bytes": picture_bytes})


def _some(images: OpenedImages) -> Iterator[NDArray[np.uint8]]:
    """Yield the pixels of some evenly spaced images.

    Raises:
        InputError: None of these can be read.
    """
    places = range(0, len(images), math.ceil(len(images) / _NUM_READ))
    unreadable: list[tuple[str, str]] = []
    for index in places:
        try:
            yield images.read(index)
        except UnreadableImage as error:  # the stages report every image that they cannot read
            unreadable.append((images.image_ids[index], error.reason))
    if len(unreadable) == len(places):
        raise none_readable(len(places), unreadable)


def expected_times(
    rates: Rates, num_photos: int, training: PretrainConfig, localization: LocalizeConfig
) -> tuple[StageTime, StageTime]:
    """Return how long the training and the localization take on the machine of the rates."""
    machine = Machine.of(rates)
    trained = pretrain_work(
        rates,
        backbone=training.backbone,
        method=training.method.name,
        num_images=num_photos,
        num_epochs=training.num_epochs,
        execution=training.execution,
    )
    # The rates are of pictures of the training's size. The work of a network and of the CRF grows with the pixels.
    growth = (localization.image_size / rates.image_size) ** 2
    larger = rates.model_copy(update={"crf": growth * rates.crf, "storing": growth * rates.storing})
    soft_mask = soft_mask_work(rates, backbone=training.backbone, cost=localization.localizer.cost).times(growth)
    found = localize_work(
        larger,
        num_images=num_photos,
        soft_mask=soft_mask,
        crf=localization.crf,
        group_size=localization.group_size,
    )
    return trained.on(machine), found.on(machine)


def expectation(num_photos: int, num_epochs: int, times: Sequence[StageTime]) -> list[str]:
    """Return the lines that say, before anything starts, how long it takes and what to expect of few photos."""
    training, localization = (format_hours(time.seconds) for time in times)
    epochs = "1 epoch" if num_epochs == 1 else f"{num_epochs} epochs"
    lines = [
        f"{num_photos:,} photos: about {training} for {epochs} of pretraining, then about {localization} to "
        "find the objects (--num_epochs N sets the epochs)"
    ]
    if num_photos < _FEW_PHOTOS:
        lines.append(
            f"Fewer than {_FEW_PHOTOS} photos are too few to learn objects from: expect masks of what stands out in a "
            "picture, little better than an untrained network's. More photos help more than more epochs."
        )
    return lines


def run_own_photos(context: Context, training: PretrainConfig, localization: LocalizeConfig) -> dict[str, Any]:
    """Pretrain on photos and localize them, under one parent run.

    Args:
        context: Context of the stages.
        training: Configuration of the training.
        localization: Configuration of the localization. The trained network takes the place of its checkpoint.

    Returns:
        `checkpoint`, and of the localization `masks`, `annotations`, `gallery`, `num_ok` and `num_failed`.
    """

    def find(results: Results) -> LocalizeConfig:
        return localization.model_copy(update={"checkpoint": str(results["pretrain"].values["checkpoint"])})

    root = training.data.root
    described = {
        "training": training.model_dump(mode="json"),
        "localization": localization.model_dump(mode="json"),
    }
    with open_study(context, "own photos", name=f"photos {root}", dataset=root, config=described) as (context, parent):
        steps = [Step("pretrain", "pretrain", training), Step("localize", "localize", find, ("pretrain",))]
        results = run(context, steps).results
        found = results["localize"].values
        counts = {"images": found["num_images"], "localized": found["num_ok"], "unreadable": found["num_failed"]}
        parent.log_report(report_of(f"Photos, {root}", {"localization": [counts]}))
    shown = {name: found[name] for name in ("masks", "annotations", "gallery", "num_ok", "num_failed")}
    return {"checkpoint": results["pretrain"].values["checkpoint"], **shown}
