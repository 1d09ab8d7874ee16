"""The mask store: the results of localization, one row per image, in Parquet shards that are written atomically."""

from __future__ import annotations

import bisect
import hashlib
import re
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
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
"""Name of a mask store's file with the CAM of each iteration for a few images: `image_ids` (m,), `cams` (T, m, S, S)
uint8."""

_SHARD_NAME = re.compile(r"shard-(\d{6,})\.parquet")


@dataclass(frozen=True, eq=False)
class MaskRow:
    """The result of localization for one image.

    Attributes:
        image_id: Path relative to the data set, with forward slashes.
        width: Width of the image in pixels; 0 if the image could not be read.
        height: Height of the image in pixels; 0 if the image could not be read.
        cam: Soft mask float32 in [0, 1] at network size; stored in 8 bits.
        refined: The same after the CRF; None without CRF.
        mask: Boolean (height, width), after the CRF.
        boxes: (n, 4) float32, x0 y0 x1 y1 relative to the image.
        status: "failed" for an image that could not be read, or that has no negatives although the localizer needs
            some.
        error: Reason of the failure; empty without failure.
    """

    image_id: str
    width: int
    height: int
    cam: NDArray[np.float32] | None = None
    refined: NDArray[np.float32] | None = None
    mask: NDArray[np.bool_] | None = None
    boxes: NDArray[np.float32] = field(default_factory=lambda: np.zeros((0, 4), dtype=np.float32))
    status: Literal["ok", "failed"] = "ok"
    error: str = ""

    @property
    def is_readable(self) -> bool:
        """Return whether the image could be read, localized or not."""
        return self.height > 0


def encode_soft_mask(mask: NDArray[np.float32]) -> bytes:
    """Encode a soft mask (H, W) in [0, 1] as an 8-bit grey PNG.

    Rounding changes a value by at most 1/510, so that values of 0.5 or more stay so, and smaller values stay smaller.
    Values below 1/255 become 0: the pixels that are not 0 here are those that the official component filter takes for
    foreground.
    """
    grey = np.where(mask < 1 / 255, 0, np.rint(mask * 255))
    _, png = cv2.imencode(".png", grey.astype(np.uint8))
    return png.tobytes()


def decode_soft_mask(content: bytes) -> NDArray[np.float32]:
    """Decode a soft mask (H, W) that `encode_soft_mask` stored, to float32 in [0, 1]."""
    return decode_soft_mask_bytes(content).astype(np.float32) / np.float32(255)


def decode_soft_mask_bytes(content: bytes) -> NDArray[np.uint8]:
    """Decode a soft mask (H, W) that `encode_soft_mask` stored, to uint8 from 0 to 255."""
    return np.asarray(cv2.imdecode(np.frombuffer(content, dtype=np.uint8), cv2.IMREAD_GRAYSCALE), dtype=np.uint8)


def encode_mask(mask: NDArray[np.bool_]) -> bytes:
    """Encode a boolean mask (H, W) as the counts of COCO's compressed run-length encoding."""
    return rle.encode(np.asfortranarray(mask, dtype=np.uint8))["counts"]


def decode_mask(counts: bytes, height: int, width: int) -> NDArray[np.bool_]:
    """Decode a boolean mask (height, width) that `encode_mask` stored."""
    return np.ascontiguousarray(rle.decode({"size": [height, width], "counts": counts}), dtype=np.bool_)


def shard_name(group: int) -> str:
    """Return the file name of the shard of a group of images."""
    return f"shard-{group:06d}.parquet"


def write_shard(storage: Storage, group: int, rows: Iterable[MaskRow]) -> None:
    """Write the rows of one group of images as a shard. An existing shard of the group is replaced.

    Args:
        storage: Folder of the mask store.
        group: Number of the group in the data set's manifest, from 0.
        rows: One row for each image of the group.

    Raises:
        InputError: A row's mask does not have its image's size.
    """
    table = pa.Table.from_pylist([_to_record(row) for row in rows], schema=mask_fields_schema)
    sink = pa.BufferOutputStream()
    # PNG and run lengths are compressed already. Checksums reveal a damaged shard.
    # Statistics would repeat whole pictures as minimum and maximum of their column.
    pq.write_table(
        table, sink, compression="none", use_dictionary=False, write_statistics=["image_id"], write_page_checksum=True
    )
    storage.write_bytes(shard_name(group), sink.getvalue().to_pybytes())


def finished_shards(storage: Storage) -> set[int]:
    """Return the numbers of the groups whose shard exists. A shard that exists is complete."""
    matches = (_SHARD_NAME.fullmatch(name) for name in storage.list_names("shard-"))
    return {int(match.group(1)) for match in matches if match}


def delete_shards(storage: Storage) -> None:
    """Delete all shards of a folder."""
    for group in finished_shards(storage):
        storage.delete(shard_name(group))


def read_shard(storage: Storage, group: int) -> pa.Table:
    """Read one shard as it is stored, with the columns of `mask_fields_schema`.

    Raises:
        FileNotFoundError: There is no shard of that group.
        InputError: The shard is damaged or has another format.
    """
    name = shard_name(group)
    remedy = "Delete the file and run the localization again; it computes what is missing."
    content = pa.BufferReader(storage.read_bytes(name))
    try:
        table = pq.read_table(content, page_checksum_verification=True)
    except (OSError, pa.ArrowException) as error:
        raise InputError("shard", f"{storage.uri}/{name}", f"cannot be read ({error})", remedy) from error
    if "refined" not in table.column_names and "cam" in table.column_names:  # an older version wrote it
        place = mask_fields_schema.get_field_index("refined")
        table = table.add_column(place, mask_fields_schema.field(place), pa.nulls(len(table), pa.binary()))
    if not table.schema.equals(mask_fields_schema):
        raise InputError("shard", f"{storage.uri}/{name}", "has other columns than a mask store", remedy)
    return table


def read_rows(storage: Storage) -> Iterator[MaskRow]:
    """Yield all rows of a mask store in the order of its groups. Memory holds one shard at a time.

    Raises:
        InputError: A shard is damaged or has another format.
    """
    for group in sorted(finished_shards(storage)):
        for record in read_shard(storage, group).to_pylist():
            yield _to_row(record)


def read_columns(storage: Storage, group: int, *columns: str) -> list[dict[str, Any]]:
    """Read some columns of one shard, and nothing else of it: one mapping per row. Errors are those of `read_shard`."""
    try:
        with storage.open_file(shard_name(group)) as stream:
            shard = pq.read_table(stream, columns=list(columns), page_checksum_verification=True)
    except (OSError, pa.ArrowException):
        shard = read_shard(storage, group)  # raises an error that names the problem and the remedy
    return shard.to_pylist()


def read_localized_ids(storage: Storage) -> Iterator[str]:
    """Yield the ids of the images for which a mask store has a mask. Order and errors are those of `read_rows`."""
    for group in sorted(finished_shards(storage)):
        for row in read_columns(storage, group, "image_id", "status"):
            if row["status"] == "ok":
                yield row["image_id"]


def _to_record(row: MaskRow) -> dict[str, Any]:
    if row.mask is not None and row.mask.shape != (row.height, row.width):
        problem = f"the mask of {row.image_id} must be as large as the image, {(row.height, row.width)}"
        raise InputError("mask", row.mask.shape, problem, "Resize it.")
    return {
        **vars(row),
        "cam": None if row.cam is None else encode_soft_mask(row.cam),
        "refined": None if row.refined is None else encode_soft_mask(row.refined),
        "mask": None if row.mask is None else encode_mask(row.mask),
        "boxes": row.boxes.tolist(),
    }


def _to_row(record: dict[str, Any]) -> MaskRow:
    cam, refined, mask = record["cam"], record["refined"], record["mask"]
    arrays = {
        "cam": None if cam is None else decode_soft_mask(cam),
        "refined": None if refined is None else decode_soft_mask(refined),
        "mask": None if mask is None else decode_mask(mask, record["height"], record["width"]),
        "boxes": np.array(record["boxes"], dtype=np.float32).reshape(-1, 4),
    }
    return MaskRow(**record | arrays)


_ORDER_SUFFIX = ".order.npy"
# Training uses the soft mask or the binary one. The soft mask after CRF would only take space.
_SCHEMA = pa.schema([field for field in mask_fields_schema if field.name != "refined"])


class MaskTable:
    """Masks by image id, memory-mapped: the processes of a node share the pages, and none holds the whole file.

    The look-ups return None for an image that the store lacks or whose row failed. Pickling carries only the path; a
    data loader's worker on the same node maps the file again.

    Example:
        >>> table = MaskTable.open(Storage.from_uri("runs/masks"), Path("cache"))  # doctest: +SKIP
        >>> table.boxes("dogs/0001.jpg")  # doctest: +SKIP
    """

    def __init__(self, path: Path) -> None:
        """Map a file that `open` wrote.

        Args:
            path: The Arrow file.
        """
        self._path = path
        self._table = pa.ipc.open_file(pa.memory_map(str(path))).read_all()
        self._order: NDArray[np.int64] = np.load(path.with_suffix(_ORDER_SUFFIX), mmap_mode="r")

    @classmethod
    def open(cls, storage: Storage, cache_dir: Path) -> MaskTable:
        """Copy a mask store into a local folder, unless the copy exists already, and map the copy.

        A copy is identified by the store's address, its description (`store.json`) and its list of shards. Several
        processes may open the same store at once: copies are moved into place whole, and the last one stays.

        Args:
            storage: Folder of the mask store.
            cache_dir: Local folder, created if it is missing.

        Raises:
            InputError: A shard is damaged or has another format.
        """
        groups = sorted(finished_shards(storage))
        description = storage.read_bytes("store.json") if storage.exists("store.json") else b""
        key = hashlib.sha256(f"{storage.uri}\n{groups}\n".encode() + description).hexdigest()[:32]
        path = Path(cache_dir) / f"masks-{key}.arrow"
        if not path.exists():
            _copy(storage, groups, path)
        return cls(path)

    def __len__(self) -> int:
        return len(self._order)

    def __reduce__(self) -> tuple[type[MaskTable], tuple[Path]]:
        return type(self), (self._path,)

    def cam(self, image_id: str) -> NDArray[np.uint8] | None:
        """Return the soft mask at network size, (h, w) uint8 from 0 to 255."""
        (content,) = self._find(image_id, "cam")
        return None if content is None else decode_soft_mask_bytes(content)

    def mask(self, image_id: str) -> NDArray[np.bool_] | None:
        """Return the binary mask at image size, (H, W)."""
        counts, height, width = self._find(image_id, "mask", "height", "width")
        return None if counts is None else decode_mask(counts, height, width)

    def boxes(self, image_id: str) -> NDArray[np.float32] | None:
        """Return the boxes, (n, 4) float32, x0 y0 x1 y1 relative to the image; n may be 0."""
        (boxes,) = self._find(image_id, "boxes")
        return None if boxes is None else np.array(boxes, dtype=np.float32).reshape(-1, 4)

    def _find(self, image_id: str, *columns: str) -> list[Any]:
        """Return an image's values in some columns; None in each if the store lacks it or its localization failed."""
        image_ids = self._table["image_id"]
        place = bisect.bisect_left(self._order, image_id, key=lambda row: image_ids[int(row)].as_py())
        for row in map(int, self._order[place : place + 1]):
            if image_ids[row].as_py() == image_id and self._table["status"][row].as_py() == "ok":
                return [self._table[name][row].as_py() for name in columns]
        return [None] * len(columns)


def _copy(storage: Storage, groups: list[int], path: Path) -> None:
    """Write the shards as one Arrow file, and beside it the numbers of its rows, sorted by image id."""
    path.parent.mkdir(parents=True, exist_ok=True)
    image_ids: list[str] = []
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".copy-") as folder:
        table, order = Path(folder) / "table", Path(folder) / "order.npy"
        with pa.OSFile(str(table), "wb") as sink, pa.ipc.new_file(sink, _SCHEMA) as writer:
            for group in groups:
                shard = read_shard(storage, group)
                image_ids += shard["image_id"].to_pylist()
                writer.write_table(shard.select(_SCHEMA.names))
        rows = sorted(range(len(image_ids)), key=image_ids.__getitem__)
        np.save(order, np.array(rows, dtype=np.int64))
        # Move the table last: a process that sees the table must find the order, too.
        order.replace(path.with_suffix(_ORDER_SUFFIX))
        table.replace(path)
