"""Random access to masks during training: a copy of the mask store that all processes on a node share."""

from __future__ import annotations

import bisect
import hashlib
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from objectaware.data.storage import Storage
from objectaware.localize.mask_store import (
    decode_mask,
    decode_soft_mask_bytes,
    finished_shards,
    mask_fields_schema,
    read_shard,
)

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
        row = self._find(image_id)
        content = None if row is None else self._table["cam"][row].as_py()
        return None if content is None else decode_soft_mask_bytes(content)

    def mask(self, image_id: str) -> NDArray[np.bool_] | None:
        """Return the binary mask at image size, (H, W)."""
        row = self._find(image_id)
        if row is None or not self._table["mask"][row].is_valid:
            return None
        counts, height, width = (self._table[name][row].as_py() for name in ("mask", "height", "width"))
        return decode_mask(counts, height, width)

    def boxes(self, image_id: str) -> NDArray[np.float32] | None:
        """Return the boxes, (n, 4) float32, x0 y0 x1 y1 relative to the image; n may be 0."""
        row = self._find(image_id)
        if row is None:
            return None
        return np.array(self._table["boxes"][row].as_py(), dtype=np.float32).reshape(-1, 4)

    def _find(self, image_id: str) -> int | None:
        """Return the row of an image; None if the store lacks it or its localization failed."""
        image_ids = self._table["image_id"]
        place = bisect.bisect_left(self._order, image_id, key=lambda row: image_ids[int(row)].as_py())
        if place == len(self._order):
            return None
        row = int(self._order[place])
        succeeded = self._table["status"][row].as_py() == "ok"
        return row if succeeded and image_ids[row].as_py() == image_id else None


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
