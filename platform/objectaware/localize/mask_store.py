"""The mask store: what localization found, an image a row, in Parquet shards written whole or not at all."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import cv2
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pycocotools.mask as rle
from numpy.typing import NDArray

from objectaware.data.storage import Storage
from objectaware.errors import InputError

mask_fields_schema = pa.schema(
    [
        pa.field("image_id", pa.string(), nullable=False),
        pa.field("width", pa.int32(), nullable=False),
        pa.field("height", pa.int32(), nullable=False),
        pa.field("cam", pa.binary()),
        pa.field("refined", pa.binary()),
        pa.field("mask", pa.binary()),
        pa.field("boxes", pa.list_(pa.list_(pa.float32(), 4)), nullable=False),
        pa.field("status", pa.string(), nullable=False),
        pa.field("error", pa.string(), nullable=False),
    ]
)

ITERATIONS_NAME = "iterations.npz"
"""File of a mask store with the CAM of each iteration of a few images: `image_ids` (m,), `cams` (T, m, S, S) uint8."""

_SHARD_NAME = re.compile(r"shard-(\d{6,})\.parquet")


def _no_boxes() -> NDArray[np.float32]:
    return np.zeros((0, 4), dtype=np.float32)


@dataclass(frozen=True, eq=False)
class MaskRow:
    """What was found in one image.

    Attributes:
        image_id: Path relative to the data set, forward slashes.
        width: Of the image in pixels; 0 if it could not be read.
        height: Of the image in pixels; 0 if it could not be read.
        cam: Soft mask float32 in [0, 1] at network size; stored in 8 bits.
        refined: The same after the CRF; None where there was none.
        mask: Boolean (height, width), after the CRF.
        boxes: (n, 4) float32, x0 y0 x1 y1 relative to the image.
        status: "failed" for an image that could not be read, or that has no negatives where the localizer needs some.
        error: Why it failed, else empty.
    """

    image_id: str
    width: int
    height: int
    cam: NDArray[np.float32] | None = None
    refined: NDArray[np.float32] | None = None
    mask: NDArray[np.bool_] | None = None
    boxes: NDArray[np.float32] = field(default_factory=_no_boxes)
    status: Literal["ok", "failed"] = "ok"
    error: str = ""

    @property
    def is_readable(self) -> bool:
        """Whether the image could be read, localized or not."""
        return self.height > 0


def encode_soft_mask(mask: NDArray[np.float32]) -> bytes:
    """A soft mask (H, W) in [0, 1] as an 8-bit grey PNG.

    The rounding is at most 1/510, so that what is 0.5 or more stays so and what is less stays less. Below 1/255 it
    is down, to 0: what the official component filter takes for foreground is what is not 0 here.
    """
    grey = np.where(mask < 1 / 255, 0, np.rint(mask * 255))
    _, png = cv2.imencode(".png", grey.astype(np.uint8))
    return png.tobytes()


def decode_soft_mask(content: bytes) -> NDArray[np.float32]:
    """The soft mask (H, W), float32 in [0, 1], that `encode_soft_mask` stored."""
    return decode_soft_mask_bytes(content).astype(np.float32) / np.float32(255)


def decode_soft_mask_bytes(content: bytes) -> NDArray[np.uint8]:
    """The soft mask (H, W), uint8 from 0 to 255, that `encode_soft_mask` stored."""
    return np.asarray(cv2.imdecode(np.frombuffer(content, dtype=np.uint8), cv2.IMREAD_GRAYSCALE), dtype=np.uint8)


def encode_mask(mask: NDArray[np.bool_]) -> bytes:
    """The counts of COCO's compressed run-length encoding of a boolean mask (H, W)."""
    counts: bytes = rle.encode(np.asfortranarray(mask, dtype=np.uint8))["counts"]
    return counts


def decode_mask(counts: bytes, height: int, width: int) -> NDArray[np.bool_]:
    """The boolean mask (height, width) that `encode_mask` stored."""
    return np.ascontiguousarray(rle.decode({"size": [height, width], "counts": counts}), dtype=np.bool_)


def shard_name(group: int) -> str:
    """Name the shard of a group of images."""
    return f"shard-{group:06d}.parquet"


def write_shard(storage: Storage, group: int, rows: Iterable[MaskRow]) -> None:
    """Write the rows of one group of images as a shard; one of that group that exists is replaced.

    Args:
        storage: Folder of the mask store.
        group: Number of the group in the data set's manifest, from 0.
        rows: One for each image of the group.

    Raises:
        InputError: A row's mask is not as large as its image.
    """
    table = pa.Table.from_pylist([_to_record(row) for row in rows], schema=mask_fields_schema)
    sink = pa.BufferOutputStream()
    # PNG and run lengths are compressed already. Checksums tell a damaged shard from a good one.
    # Statistics would repeat whole pictures as minimum and maximum of their column.
    pq.write_table(
        table,
        sink,
        compression="none",
        use_dictionary=False,
        write_statistics=["image_id"],
        write_page_checksum=True,
    )
    storage.write_bytes(shard_name(group), sink.getvalue().to_pybytes())


def finished_shards(storage: Storage) -> set[int]:
    """Numbers of the groups whose shard is there, hence complete."""
    matches = (_SHARD_NAME.fullmatch(name) for name in storage.list_names("shard-"))
    return {int(match.group(1)) for match in matches if match}


def delete_shards(storage: Storage) -> None:
    """Delete all shards of a folder."""
    for group in finished_shards(storage):
        storage.delete(shard_name(group))


def read_shard(storage: Storage, group: int) -> pa.Table:
    """One shard as it is stored, with the columns of `mask_fields_schema`.

    Raises:
        FileNotFoundError: There is no shard of that group.
        InputError: The shard is damaged or of another format.
    """
    name = shard_name(group)
    remedy = "Delete the file and run the localization again; it computes what is missing."
    content = pa.BufferReader(storage.read_bytes(name))
    try:
        table = pq.read_table(content, page_checksum_verification=True)
    except (OSError, pa.ArrowException) as error:
        raise InputError("shard", f"{storage.uri}/{name}", f"cannot be read ({error})", remedy) from error
    if "refined" not in table.column_names and "cam" in table.column_names:  # written before there was one
        place = mask_fields_schema.get_field_index("refined")
        table = table.add_column(place, mask_fields_schema.field(place), pa.nulls(len(table), pa.binary()))
    if not table.schema.equals(mask_fields_schema):
        raise InputError("shard", f"{storage.uri}/{name}", "has other columns than a mask store", remedy)
    return table


def read_rows(storage: Storage) -> Iterator[MaskRow]:
    """All rows of a mask store in the order of its groups; memory holds one shard at a time.

    Raises:
        InputError: A shard is damaged or of another format.
    """
    for group in sorted(finished_shards(storage)):
        for record in read_shard(storage, group).to_pylist():
            yield _to_row(record)


def read_localized_ids(storage: Storage) -> Iterator[str]:
    """Ids of the images that a mask store has a mask of, in the order of `read_rows`; raises as it does.

    Only the columns of ids and statuses are fetched, which are a small part of a shard.
    """
    for group in sorted(finished_shards(storage)):
        try:
            with storage.open_file(shard_name(group)) as stream:
                shard = pq.read_table(stream, columns=["image_id", "status"], page_checksum_verification=True)
        except (OSError, pa.ArrowException):
            shard = read_shard(storage, group)  # says what is wrong with it, and what to do
        for image_id, status in zip(shard["image_id"].to_pylist(), shard["status"].to_pylist(), strict=True):
            if status == "ok":
                yield image_id


def _to_record(row: MaskRow) -> dict[str, Any]:
    if row.mask is not None and row.mask.shape != (row.height, row.width):
        problem = f"the mask of {row.image_id} must be as large as the image, {(row.height, row.width)}"
        raise InputError("mask", row.mask.shape, problem, "Resize it.")
    return {
        "image_id": row.image_id,
        "width": row.width,
        "height": row.height,
        "cam": None if row.cam is None else encode_soft_mask(row.cam),
        "refined": None if row.refined is None else encode_soft_mask(row.refined),
        "mask": None if row.mask is None else encode_mask(row.mask),
        "boxes": row.boxes.tolist(),
        "status": row.status,
        "error": row.error,
    }


def _to_row(record: dict[str, Any]) -> MaskRow:
    cam, refined, mask = record["cam"], record["refined"], record["mask"]
    height, width = record["height"], record["width"]
    return MaskRow(
        image_id=record["image_id"],
        width=width,
        height=height,
        cam=None if cam is None else decode_soft_mask(cam),
        refined=None if refined is None else decode_soft_mask(refined),
        mask=None if mask is None else decode_mask(mask, height, width),
        boxes=np.array(record["boxes"], dtype=np.float32).reshape(-1, 4),
        status=record["status"],
        error=record["error"],
    )
