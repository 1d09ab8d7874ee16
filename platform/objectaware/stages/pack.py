"""Packing a data set. A pack is another form of an input, so packing is not a run."""

from __future__ import annotations

import hashlib
from itertools import islice
from typing import Any

from objectaware.augment.crop import least_short_side
from objectaware.config import DataConfig
from objectaware.data.dataset import Dataset
from objectaware.data.folder import ImageFolder
from objectaware.data.pack import pack_images
from objectaware.data.storage import Storage
from objectaware.data.truth import GroundTruth
from objectaware.errors import InputError
from objectaware.stages.progress import Progress

_MAX_LISTED = 100


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
        that cannot be read, with reasons; the pack's `index.parquet` has all).

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
    opened = Dataset(data)
    images = opened.images
    assert isinstance(images, ImageFolder)
    truth, truth_notice = opened.find_truth()
    if truth is not None and not truth.has_masks:
        truth = None  # a pack cannot hold boxes without masks
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
        truth_hash=None if truth is None else _truth_hash(opened, truth),
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


def _truth_hash(data: Dataset, truth: GroundTruth) -> str:
    """Hash all files that masks and boxes come from."""
    return hashlib.sha256((data.annotation_hash + truth.content_hash()).encode()).hexdigest()
