"""Packing a data set into shards (`data.shards` says how a pack looks)."""

from __future__ import annotations

import io
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from PIL import Image

from objectaware.data.folder import ImageFolder
from objectaware.data.images import UnreadableImage, decode_image, none_readable
from objectaware.data.manifest import Manifest
from objectaware.data.masks import mask_png, resize_mask
from objectaware.data.shards import (
    FORMAT,
    INDEX_NAME,
    INDEX_SCHEMA,
    PACK_NAME,
    ROWS_PER_GROUP,
    SHARD_SCHEMA,
    shard_name,
    unreadable_images,
)
from objectaware.data.storage import Storage, is_temporary
from objectaware.errors import InputError, system_reason

_BEGUN_NAME = "pack-begun.json"
_JPEG_QUALITY = 95


class Truth(Protocol):
    """True masks and boxes of a data set, by index."""

    def __getitem__(self, index: int) -> NDArray[np.bool_]: ...

    def boxes(self, index: int) -> NDArray[np.float64]:
        """Relative boxes (n, 4)."""
        ...


@dataclass(frozen=True)
class PackSummary:
    """A finished pack.

    Attributes:
        num_images: Rows, those that cannot be read included.
        unreadable: Images that give no picture, with the reasons; training counts them as it does in a folder.
        num_shards: Shards.
    """

    num_images: int
    unreadable: dict[str, str]
    num_shards: int


def pack_images(
    images: ImageFolder,
    out: Storage,
    *,
    source: dict[str, object],
    truth: Truth | None = None,
    truth_hash: str | None = None,
    short_side: int | None = None,
    shard_bytes: int = 128 * 2**20,
    num_threads: int = 4,
    on_shard: Callable[[int, int], None] = lambda done, total: None,
) -> PackSummary:
    """Packs images, or goes on with a pack that was begun with the same settings.

    A shard is written whole or not at all, and one that is there is not written again.

    Args:
        images: The data set.
        out: Folder of the pack.
        source: Where the images come from, for `pack.json`.
        truth: True masks and boxes, where the data set has them; masks are brought to the packed image's size.
        truth_hash: Hash of the files that they come from, which tells packs of other masks apart.
        short_side: Images with a larger short side are shrunk to it, antialiased, and encoded as JPEG of quality
            95 without chroma subsampling; the bytes of all others are copied. None copies all.
        shard_bytes: Size of a shard, by that of its images' files.
        num_threads: Threads that read and encode.
        on_shard: Called after each shard with the number of shards that are there and that there will be.

    Raises:
        InputError: The folder holds a pack of other images or settings, or anything else; or no image can be read.
    """
    manifest = Manifest.of(images)
    settings = {
        "format": FORMAT,
        "source": source,
        "manifest": manifest.content_hash(),
        "short_side": short_side,
        "shard_bytes": shard_bytes,
        "class_names": list(images.class_names),
        "has_labels": images.labels is not None,
        "has_masks": truth is not None,
    }
    if truth_hash is not None:
        settings["truth"] = truth_hash
    _begin(out, settings)
    plan = plan_shards(manifest.sizes, shard_bytes)
    there = set(out.list_names("shard-"))
    row = _RowMaker(images, truth, short_side)
    with ThreadPoolExecutor(num_threads, thread_name_prefix="pack") as pool:
        for number, indices in enumerate(plan):
            if shard_name(number) not in there:
                rows = list(pool.map(row, indices.tolist()))
                out.write_bytes(shard_name(number), _parquet(pa.Table.from_pylist(rows, SHARD_SCHEMA)))
            on_shard(number + 1, len(plan))
    return _finish(out, settings, plan)


def plan_shards(sizes: tuple[int, ...], shard_bytes: int) -> list[NDArray[np.int64]]:
    """Cuts a random order of the images, always the same, into shards of about the same size.

    Args:
        sizes: Bytes of each image's file.
        shard_bytes: Bytes of a shard.

    Returns:
        Image indices of each shard.
    """
    order = np.random.Generator(np.random.PCG64(0)).permutation(len(sizes)).astype(np.int64)
    ends = np.cumsum(np.maximum(np.array(sizes, dtype=np.int64)[order], 1))
    return np.split(order, np.flatnonzero(np.diff((ends - 1) // shard_bytes)) + 1)


def _begin(out: Storage, settings: dict[str, Any]) -> None:
    """Refuse a folder in which another pack was begun, or that holds anything else."""
    if not out.exists(_BEGUN_NAME):
        if foreign := [name for name in out.list_entries() if not is_temporary(name)]:
            problem = f"holds files and no pack ({foreign[0]})"
            raise InputError("out", out.uri, problem, "Give a folder that does not exist yet, or is empty.")
        out.write_json(_BEGUN_NAME, settings)
        return
    begun = out.read_json(_BEGUN_NAME)
    differing = [name for name, value in settings.items() if begun.get(name) != value]
    if differing:
        problem = f"holds a pack of other images or settings (differing: {', '.join(differing)})"
        raise InputError("out", out.uri, problem, "Give another folder, or delete this one.")


def _finish(out: Storage, settings: dict[str, Any], plan: list[NDArray[np.int64]]) -> PackSummary:
    names = [shard_name(number) for number in range(len(plan))]
    parts, image_bytes = [], []
    for name in names:
        with out.open_file(name) as stream:
            file = pq.ParquetFile(stream)
            parts.append(file.read(columns=INDEX_SCHEMA.names))
            image_bytes.append(_image_bytes(file.metadata))
    index = pa.concat_tables(parts)
    out.write_bytes(INDEX_NAME, _parquet(index))
    unreadable = unreadable_images(index)
    if len(unreadable) == len(index):
        for name in (*names, INDEX_NAME, _BEGUN_NAME):
            out.delete(name)  # so that the same command reads the images again
        raise none_readable(len(index), unreadable.items())
    summary = {
        "num_images": len(index),
        "num_unreadable": len(unreadable),
        "shard_sizes": [len(part) for part in parts],
        "max_shard_bytes": max(image_bytes),
    }
    out.write_json(PACK_NAME, {**settings, **summary})
    return PackSummary(len(index), unreadable, len(plan))


def _image_bytes(footer: pq.FileMetaData) -> int:
    """What a shard's images take in memory."""
    column = SHARD_SCHEMA.names.index("image")
    # Boxes are a column of one leaf, so that leaves are numbered as columns are.
    groups = [footer.row_group(number).column(column) for number in range(footer.num_row_groups)]
    assert all(group.path_in_schema == "image" for group in groups)
    return sum(group.total_uncompressed_size for group in groups)


def _parquet(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    # Encoded images do not shrink any further, and nobody filters by their bytes. Checksums tell a damaged shard from a
    # good one: an image may still decode, to another picture.
    pq.write_table(
        table,
        sink,
        row_group_size=ROWS_PER_GROUP,
        compression="none",
        use_dictionary=False,
        write_statistics=False,
        write_page_checksum=True,
    )
    return bytes(sink.getvalue())


class _RowMaker:
    """Makes the row of an image."""

    def __init__(self, images: ImageFolder, truth: Truth | None, short_side: int | None) -> None:
        self._images = images
        self._truth = truth
        self._short_side = short_side

    def __call__(self, index: int) -> dict[str, object]:
        image_id, labels = self._images.image_ids[index], self._images.labels
        row: dict[str, object] = {"image_id": image_id, "label": None if labels is None else int(labels[index])}
        path = self._images.path(index)
        try:
            content = path.read_bytes()
        except (OSError, ValueError) as error:  # such as a link without its target: training will count it
            return {**row, "image": b"", "error": f"the file cannot be read: {system_reason(error)}"}
        try:
            content, height, width = shrink(content, self._short_side, name=str(path))
        except UnreadableImage as error:
            return {**row, "image": content, "error": error.reason}
        if self._truth is not None:
            mask = resize_mask(self._truth[index], height, width)
            row |= {"mask": mask_png(mask), "boxes": self._truth.boxes(index).tolist()}
        return {**row, "image": content, "height": height, "width": width}


def shrink(content: bytes, short_side: int | None, *, name: str = "an image") -> tuple[bytes, int, int]:
    """Shrink an encoded image whose short side is larger; others stay as they are, byte by byte.

    Args:
        content: The image's file.
        short_side: Short side in pixels; None leaves all images as they are.
        name: What errors call it.

    Returns:
        The file, height and width.

    Raises:
        UnreadableImage: It gives no picture.
    """
    pixels = decode_image(content, name=name)
    height, width = pixels.shape[:2]
    if short_side is None or min(height, width) <= short_side:
        return content, height, width
    scale = short_side / min(height, width)
    height, width = round(height * scale), round(width * scale)
    small = Image.fromarray(pixels).resize((width, height), Image.Resampling.BILINEAR)
    stream = io.BytesIO()
    small.save(stream, format="JPEG", quality=_JPEG_QUALITY, subsampling=0)
    return stream.getvalue(), height, width
