"""Packed images: Parquet shards with the encoded pictures and what is known of them; read by index.

A pack is a folder, local or in an object store, with

- `shard-00000.parquet` and so on: the rows, in groups of `ROWS_PER_GROUP`, the unit that is read,
- `index.parquet`: what a training needs of all rows at once, the columns of `INDEX_SCHEMA`,
- `pack.json`: what was packed and how; written last, so that with it the pack is whole.

Rows lie in a random order that was drawn once, so that any run of them is a sample of the data set.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

import cv2
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from objectaware.data.images import decode_image
from objectaware.data.storage import Storage
from objectaware.data.truth import TrueObjects
from objectaware.errors import InputError

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")

PACK_NAME = "pack.json"
INDEX_NAME = "index.parquet"
FORMAT = 2
_EARLIER_FORMAT = 1  # without `error`, and with masks that were not turned with their pictures
ROWS_PER_GROUP = 32

INDEX_SCHEMA = pa.schema(
    [
        pa.field("image_id", pa.string(), nullable=False),
        pa.field("label", pa.int64()),
        pa.field("width", pa.int32()),  # None where the image cannot be read
        pa.field("height", pa.int32()),
        pa.field("error", pa.string()),  # why it cannot be read; None where it can
    ]
)
SHARD_SCHEMA = pa.schema(
    [
        *INDEX_SCHEMA,
        pa.field("boxes", pa.list_(pa.list_(pa.float64(), 4))),
        pa.field("mask", pa.binary()),  # of the packed image's size, black and white, as PNG
        pa.field("image", pa.binary(), nullable=False),
    ]
)


_UNKNOWN_REASON = "gave no picture when it was packed"


def shard_name(number: int) -> str:
    """Name of a shard's file."""
    return f"shard-{number:05d}.parquet"


def unreadable_images(index: pa.Table) -> dict[str, str]:
    """Return the images of a pack's index that gave no picture when they were packed, with the reasons."""
    rows = index.filter(index["error"].is_valid()).select(["image_id", "error"]).to_pylist()
    return {row["image_id"]: row["error"] for row in rows}


class Recent(Generic[Key, Value]):
    """What was loaded lately, up to a size, for many threads: each value is loaded once while it is in use.

    Those that were not asked for longest make room.

    Threads that ask for the same value wait for the one that loads it; others do not wait.

    Args:
        load: Gives a key's value.
        size: Room that a value takes.
        capacity: Room in all. The newest value is kept, however large.
    """

    def __init__(self, load: Callable[[Key], Value], *, size: Callable[[Value], int], capacity: int) -> None:
        self._load = load
        self._size = size
        self._free = capacity
        self._values: OrderedDict[Key, Future[Value]] = OrderedDict()
        self._lock = threading.Lock()

    def __getitem__(self, key: Key) -> Value:
        """The key's value. What its loading raises reaches all who wait for it; the next one tries again."""
        with self._lock:
            future = self._values.get(key)
            is_new = future is None
            if future is None:
                future = self._values[key] = Future()
            self._values.move_to_end(key)
        if is_new:
            self._fill(key, future)
        return future.result()

    def _fill(self, key: Key, future: Future[Value]) -> None:
        try:
            value = self._load(key)
        except BaseException as error:
            with self._lock:
                del self._values[key]
            future.set_exception(error)
            return
        future.set_result(value)
        with self._lock:
            self._free -= self._size(value)
            # One that is still being loaded has no size yet.
            old = [other for other, entry in self._values.items() if other != key and entry.done()]
            for other in old:
                if self._free >= 0:
                    break
                self._free += self._size(self._values.pop(other).result())


class PackedImages:
    """The images of a pack, by index; made by `open`.

    What was read lately is kept, up to `2 * window` shards: enough for training, which goes through the rows of
    `window` shards in a random order and then through those of the next (`training.inputs.windowed_batches`), and
    for the moment in which both are in use.

    Attributes:
        image_ids: Path of each image in the data set that was packed.
        labels: Class index of each image, (N,), or None.
        class_names: Names of the classes, by index.
        shard_sizes: Rows of each shard, (number of shards,); their images have consecutive indices.
        unreadable: Images that gave no picture when they were packed, with the reason; they have no mask either.
        short_side: What images were shrunk to; None where they are as they were.
        has_masks: Whether true masks and boxes were packed.
    """

    def __init__(self, storage: Storage, description: dict[str, Any], index: pa.Table, *, window: int) -> None:
        self.image_ids: list[str] = index["image_id"].to_pylist()
        self.unreadable = unreadable_images(index)
        self.class_names = tuple(description["class_names"])
        self.labels: NDArray[np.int64] | None = None
        if description["has_labels"]:
            self.labels = index["label"].to_numpy().astype(np.int64)
        self.shard_sizes: NDArray[np.int64] = np.array(description["shard_sizes"], dtype=np.int64)
        self.short_side: int | None = description["short_side"]
        self.has_masks: bool = description["has_masks"]
        self._storage = storage
        self._starts = np.concatenate([[0], np.cumsum(self.shard_sizes)])
        num_kept = 2 * window
        self._footers: Recent[int, pq.FileMetaData] = Recent(self._read_footer, size=lambda _: 1, capacity=num_kept)
        num_kept_bytes = num_kept * description["max_shard_bytes"]
        # Apart: masks and boxes are small, and shall not push images out.
        self._groups, self._truths = (
            Recent[tuple[int, int, str], pa.Array](
                lambda key: self._read_columns(*key), size=lambda column: int(column.nbytes), capacity=num_kept_bytes
            )
            for _ in range(2)
        )

    @classmethod
    def open(cls, address: str, *, window: int = 1) -> PackedImages:
        """Opens a pack.

        Args:
            address: Path or URI of its folder.
            window: Shards that training mixes.

        Raises:
            InputError: There is no finished pack, one of another format, or its index is damaged.
        """
        description = cls.describe(address)
        storage = Storage.from_uri(address)
        with _opened(storage, INDEX_NAME) as stream:
            index = pq.read_table(stream, page_checksum_verification=True)
        if description["format"] == _EARLIER_FORMAT:
            reasons = pc.if_else(index["width"].is_null(), _UNKNOWN_REASON, pa.scalar(None, pa.string()))
            index = index.append_column("error", reasons)
        return cls(storage, description, index, window=window)

    @staticmethod
    def describe(address: str) -> dict[str, Any]:
        """Reads what a pack says of itself (`pack.json`).

        Raises:
            InputError: There is no finished pack, or one of another format. One of the format before is read where it
                holds no masks, which were not turned with their pictures then.
        """
        storage = Storage.from_uri(address)
        if not storage.exists(PACK_NAME):
            remedy = "Run objectaware data pack, again where it was interrupted."
            raise InputError("root", address, f"holds no finished pack ({PACK_NAME})", remedy)
        description: dict[str, Any] = storage.read_json(PACK_NAME)
        known = (FORMAT,) if description.get("has_masks") else (FORMAT, _EARLIER_FORMAT)
        if description["format"] not in known:
            raise InputError("root", address, f"is a pack of format {description['format']}", "Pack the data again.")
        return description

    def __len__(self) -> int:
        return len(self.image_ids)

    def read(self, index: int) -> NDArray[np.uint8]:
        """Reads an image as 8-bit RGB of shape (H, W, 3).

        Raises:
            objectaware.data.images.UnreadableImage: What was packed gives no picture.
            InputError: Its shard is damaged or missing.
            OSError: The store is away.
        """
        shard, row = self._locate(index)
        images = self._groups[shard, row // ROWS_PER_GROUP, "image"]
        return decode_image(images[row % ROWS_PER_GROUP].as_buffer(), name=self.image_ids[index])

    def mask(self, index: int) -> NDArray[np.bool_]:
        """True mask (H, W) at the packed image's size, true on any object.

        Raises:
            InputError: No mask of the image was packed.
        """
        content = self._truth(index, "mask")
        decoded = cv2.imdecode(np.frombuffer(content, dtype=np.uint8), cv2.IMREAD_GRAYSCALE)
        return np.asarray(decoded, dtype=np.uint8) > 0

    def boxes(self, index: int) -> NDArray[np.float64]:
        """Boxes (n, 4), x0 y0 x1 y1 relative to the image, of the objects that cover more than 1% of it.

        Raises:
            InputError: No boxes of the image were packed.
        """
        return np.array(self._truth(index, "boxes"), dtype=np.float64).reshape(-1, 4)

    def _truth(self, index: int, column: str) -> Any:  # noqa: ANN401 - a column's value
        shard, row = self._locate(index)
        group = self._truths[shard, row // ROWS_PER_GROUP, column]
        value = group[row % ROWS_PER_GROUP].as_py()
        if value is None:
            raise InputError("image_id", self.image_ids[index], f"has no {column} in the pack", "Pack its masks too.")
        return value

    def _locate(self, index: int) -> tuple[int, int]:
        shard = int(np.searchsorted(self._starts, index, side="right")) - 1
        return shard, index - int(self._starts[shard])

    def _read_footer(self, shard: int) -> pq.FileMetaData:
        with _opened(self._storage, shard_name(shard)) as stream:
            return pq.read_metadata(stream)

    def _read_columns(self, shard: int, group: int, column: str) -> pa.Array:
        footer = self._footers[shard]
        with _opened(self._storage, shard_name(shard)) as stream:
            file = pq.ParquetFile(stream, metadata=footer, page_checksum_verification=True)
            table = file.read_row_group(group, columns=[column], use_threads=False)
        return table.column(column).combine_chunks()


@contextmanager
def _opened(storage: Storage, name: str) -> Iterator[pa.NativeFile]:
    """Opens a file of a pack; what fails while it is read is told to be the file's fault or the store's.

    Raises:
        InputError: The file is damaged or missing.
        OSError: The store is away, and may come back.
    """
    try:
        with storage.open_file(name) as stream:
            yield stream
    except (OSError, pa.ArrowException):
        _refuse_damaged(storage, name)
        raise


def _refuse_damaged(storage: Storage, name: str) -> None:
    """Refuses a file that comes whole from its store and cannot be read."""
    remedy = "Delete it and run the same objectaware data pack again, which writes what is missing."
    address = f"{storage.uri}/{name}"
    try:
        content = storage.read_bytes(name)
    except FileNotFoundError as error:
        raise InputError("data.root", address, "is missing", remedy) from error
    try:
        pq.read_table(pa.BufferReader(content), page_checksum_verification=True)
    except (OSError, pa.ArrowException) as error:
        raise InputError("data.root", address, f"is damaged ({error})", remedy) from error


class PackedObjects(TrueObjects):
    """Masks and boxes that were packed with their images.

    Args:
        address: Of the pack.
        image_ids: Some of its images, in order.

    Raises:
        InputError: Nothing of the kind was packed.
    """

    def __init__(self, address: str, image_ids: list[str]) -> None:
        self._images = PackedImages.open(address)
        if not self._images.has_masks:
            remedy = "Pack a data set that has them."
            raise InputError("root", address, "is a pack without true masks", remedy)
        place = {image_id: index for index, image_id in enumerate(self._images.image_ids)}
        self._places = [place[image_id] for image_id in image_ids]

    def mask(self, index: int) -> NDArray[np.bool_]:
        """Mask at the packed image's size, (H, W)."""
        return self._images.mask(self._places[index])

    def boxes(self, index: int) -> NDArray[np.float64]:
        """The packed boxes (n, 4)."""
        return self._images.boxes(self._places[index])


def pack_hash(address: str, verify: bool = False) -> str:
    """Hash what a pack says of its images and settings, but not where it came from.

    Args:
        address: Of the pack.
        verify: Hash the shards' content, too.
    """
    description = PackedImages.describe(address)
    digest = hashlib.sha256(json.dumps({**description, "source": None}, sort_keys=True).encode())
    if verify:
        storage = Storage.from_uri(address)
        for number in range(len(description["shard_sizes"])):
            digest.update(hashlib.sha256(storage.read_bytes(shard_name(number))).digest())
    return digest.hexdigest()
