"""Packs: a data set as Parquet shards of encoded pictures with labels, masks and boxes; written once, read by index.

A pack is a folder, local or in an object store, with

- `shard-00000.parquet` and so on: the rows, in groups of `ROWS_PER_GROUP`, the unit that is read,
- `index.parquet`: the columns of `INDEX_SCHEMA` of all rows, which a training needs at once,
- `pack.json`: what was packed and how. It is written last, so that the pack is whole when it is there.

Rows lie in a random order that was drawn once, so that any run of them is a sample of the data set.
"""

from __future__ import annotations

import hashlib
import io
import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

import cv2
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from PIL import Image

from objectaware.data.folder import ImageFolder, Manifest
from objectaware.data.images import UnreadableImage, decode_image, none_readable
from objectaware.data.masks import mask_png, resize_mask
from objectaware.data.storage import Storage, is_temporary
from objectaware.data.truth import GroundTruth
from objectaware.errors import InputError, system_reason

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
    """Recently loaded values, up to a size, for many threads: each value is loaded once while it is in use.

    The least recently used values are dropped first.

    Threads that ask for the same value wait for the one that loads it; others do not wait.

    Args:
        load: Returns a key's value.
        size: Returns the size of a value, in any unit.
        capacity: Total size of the values, in the same unit. The newest value is kept, however large.
    """

    def __init__(self, load: Callable[[Key], Value], *, size: Callable[[Value], int], capacity: int) -> None:
        self._load = load
        self._size = size
        self._free = capacity
        self._values: OrderedDict[Key, Future[Value]] = OrderedDict()
        self._lock = threading.Lock()

    def __getitem__(self, key: Key) -> Value:
        """Return a key's value. An error of loading it reaches all waiting threads; the next request loads it again."""
        with self._lock:
            is_new = key not in self._values
            future = self._values.setdefault(key, Future())
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
                if self._free < 0:
                    self._free += self._size(self._values.pop(other).result())


class PackedImages:
    """The images of a pack, by index.

    Recently read rows are kept, up to `2 * window` shards. Training goes through the rows of `window` shards in a
    random order and then through those of the next (`training.inputs.windowed_batches`). At the border both are in use.

    Args:
        address: Path or URI of its folder.
        window: Shards that training mixes.

    Raises:
        InputError: There is no finished pack, one of another format, or its index is damaged.

    Attributes:
        image_ids: Path of each image in the data set that was packed.
        labels: Class index of each image, (N,), or None.
        class_names: Names of the classes, by index.
        shard_sizes: Rows of each shard, (number of shards,); their images have consecutive indices.
        unreadable: Images that gave no picture when they were packed, with the reason; they have no mask either.
        short_side: Short side in pixels that images were shrunk to; None where they were not shrunk.
        has_masks: Whether true masks and boxes were packed.
    """

    def __init__(self, address: str, *, window: int = 1) -> None:
        description = self.describe(address)
        self._storage = Storage.from_uri(address)
        with _opened(self._storage, INDEX_NAME) as stream:
            index = pq.read_table(stream, page_checksum_verification=True)
        if description["format"] == _EARLIER_FORMAT:
            reasons = pc.if_else(index["width"].is_null(), _UNKNOWN_REASON, pa.scalar(None, pa.string()))
            index = index.append_column("error", reasons)
        self.image_ids: list[str] = index["image_id"].to_pylist()
        self.unreadable = unreadable_images(index)
        self.class_names = tuple(description["class_names"])
        self.labels: NDArray[np.int64] | None = None
        if description["has_labels"]:
            self.labels = index["label"].to_numpy().astype(np.int64)
        self.shard_sizes: NDArray[np.int64] = np.array(description["shard_sizes"], dtype=np.int64)
        self.short_side: int | None = description["short_side"]
        self.has_masks: bool = description["has_masks"]
        self._starts = np.concatenate([[0], np.cumsum(self.shard_sizes)])
        num_kept = 2 * window
        self._footers: Recent[int, pq.FileMetaData] = Recent(self._read_footer, size=lambda _: 1, capacity=num_kept)
        num_kept_bytes = num_kept * description["max_shard_bytes"]
        # Apart: masks and boxes are small, and should not push images out.
        self._groups, self._truths = (
            Recent[tuple[int, int, str], pa.Array](
                lambda key: self._read_columns(*key), size=lambda column: int(column.nbytes), capacity=num_kept_bytes
            )
            for _ in range(2)
        )

    @staticmethod
    def describe(address: str) -> dict[str, Any]:
        """Read the description of a pack (`pack.json`).

        Raises:
            InputError: There is no finished pack, or one of another format. One of the previous format is read where it
                holds no masks: those were not turned with their pictures.
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
        """Read an image as 8-bit RGB of shape (H, W, 3).

        Raises:
            objectaware.data.images.UnreadableImage: The packed file gives no picture.
            InputError: Its shard is damaged or missing.
            OSError: The store is away.
        """
        image = self._cell(self._groups, index, "image")
        return decode_image(image.as_buffer(), name=self.image_ids[index])

    def mask(self, index: int) -> NDArray[np.bool_]:
        """Return the true mask (H, W) at the packed image's size, true on any object.

        Raises:
            InputError: No mask of the image was packed.
        """
        content = self._truth(index, "mask")
        decoded = cv2.imdecode(np.frombuffer(content, dtype=np.uint8), cv2.IMREAD_GRAYSCALE)
        return np.asarray(decoded, dtype=np.uint8) > 0

    def boxes(self, index: int) -> NDArray[np.float64]:
        """Return the boxes (n, 4), x0 y0 x1 y1 relative to the image, of the objects that cover more than 1% of it.

        Raises:
            InputError: No boxes of the image were packed.
        """
        return np.array(self._truth(index, "boxes"), dtype=np.float64).reshape(-1, 4)

    def _truth(self, index: int, column: str) -> Any:  # noqa: ANN401 - a column's value
        value = self._cell(self._truths, index, column).as_py()
        if value is None:
            raise InputError("image_id", self.image_ids[index], f"has no {column} in the pack", "Pack its masks too.")
        return value

    def _cell(self, groups: Recent[tuple[int, int, str], pa.Array], index: int, column: str) -> pa.Scalar:
        shard = int(np.searchsorted(self._starts, index, side="right")) - 1
        group, row = divmod(index - int(self._starts[shard]), ROWS_PER_GROUP)
        return groups[shard, group, column][row]

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
    """Open a file of a pack, and decide whether an error of reading it is the file's fault or the store's.

    Raises:
        InputError: The file is damaged or missing.
        OSError: The store is away, and may come back.
    """
    try:
        with storage.open_file(name) as stream:
            yield stream
    except (OSError, pa.ArrowException):
        # A file that comes whole from its store and cannot be read is damaged.
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
        raise


class PackedTruth(GroundTruth):
    """Masks and boxes that were packed with their images.

    Args:
        address: Of the pack.
        image_ids: Some of its images, in order.

    Raises:
        InputError: Nothing of the kind was packed.
    """

    def __init__(self, address: str, image_ids: list[str]) -> None:
        self._images = PackedImages(address)
        if not self._images.has_masks:
            remedy = "Pack a data set that has them."
            raise InputError("root", address, "is a pack without true masks", remedy)
        place = {image_id: index for index, image_id in enumerate(self._images.image_ids)}
        self._places = [place[image_id] for image_id in image_ids]
        super().__init__(image_ids)

    def mask(self, index: int) -> NDArray[np.bool_]:
        """Return the mask at the packed image's size, (H, W)."""
        return self._images.mask(self._places[index])

    def boxes(self, index: int) -> NDArray[np.float64]:
        """Return the packed boxes (n, 4)."""
        return self._images.boxes(self._places[index])


def pack_hash(address: str, verify: bool = False) -> str:
    """Hash the description of a pack, but not where its images came from.

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


_BEGUN_NAME = "pack-begun.json"
_JPEG_QUALITY = 95


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
    truth: GroundTruth | None = None,
    truth_hash: str | None = None,
    short_side: int | None = None,
    shard_bytes: int = 128 * 2**20,
    num_threads: int = 4,
    on_shard: Callable[[int, int], None] = lambda done, total: None,
) -> PackSummary:
    """Pack images, or continue a pack that was begun with the same settings.

    A shard is written whole or not at all, and one that is there is not written again.

    Args:
        images: The data set.
        out: Folder of the pack.
        source: Where the images come from, for `pack.json`.
        truth: True masks and boxes, where the data set has them; masks are brought to the packed image's size.
        truth_hash: Hash of the files that they come from, which distinguishes packs of other masks.
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
    row = partial(_row, images, truth, short_side)
    with ThreadPoolExecutor(num_threads, thread_name_prefix="pack") as pool:
        for number, indices in enumerate(plan):
            if shard_name(number) not in there:
                rows = list(pool.map(row, indices.tolist()))
                out.write_bytes(shard_name(number), _parquet(pa.Table.from_pylist(rows, SHARD_SCHEMA)))
            on_shard(number + 1, len(plan))
    return _finish(out, settings, plan)


def plan_shards(sizes: tuple[int, ...], shard_bytes: int) -> list[NDArray[np.int64]]:
    """Cut a random order of the images, always the same, into shards of about the same size.

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
    """Return the bytes that a shard's images take in memory."""
    column = SHARD_SCHEMA.names.index("image")
    # Boxes are a column of one leaf, so that leaves are numbered as columns are.
    groups = [footer.row_group(number).column(column) for number in range(footer.num_row_groups)]
    assert all(group.path_in_schema == "image" for group in groups)
    return sum(group.total_uncompressed_size for group in groups)


def _parquet(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    # Encoded images do not shrink any further, and nobody filters by their bytes. Checksums reveal a damaged shard:
    # an image of it may still decode, to another picture.
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


def _row(images: ImageFolder, truth: GroundTruth | None, short_side: int | None, index: int) -> dict[str, object]:
    """Make the row of an image."""
    row: dict[str, object] = {
        "image_id": images.image_ids[index],
        "label": None if images.labels is None else int(images.labels[index]),
    }
    path = images.path(index)
    try:
        content = path.read_bytes()
    except (OSError, ValueError) as error:  # such as a link without its target: training will count it
        return {**row, "image": b"", "error": f"the file cannot be read: {system_reason(error)}"}
    try:
        content, height, width = shrink(content, short_side, name=str(path))
    except UnreadableImage as error:
        return {**row, "image": content, "error": error.reason}
    if truth is not None:
        row |= {"mask": mask_png(resize_mask(truth[index], height, width)), "boxes": truth.boxes(index).tolist()}
    return {**row, "image": content, "height": height, "width": width}


def shrink(content: bytes, short_side: int | None, *, name: str = "an image") -> tuple[bytes, int, int]:
    """Shrink an encoded image whose short side is larger; others stay as they are, byte by byte.

    Args:
        content: The image's file.
        short_side: Short side in pixels; None leaves all images as they are.
        name: Name of the image in errors.

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
