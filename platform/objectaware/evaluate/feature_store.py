"""Features in storage, in parts: computed once, read by every evaluation, whole or a part at a time.

A part is two files: `part-00000.npy`, the features, which a local reader maps into memory, and after it
`part-00000.json`, whose presence says that the part is whole: which images the rows belong to, and why others have
none. Both are written under a temporary name first, so that what is there is whole.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from objectaware.data.images import none_readable
from objectaware.data.storage import Storage
from objectaware.errors import InputError
from objectaware.evaluate.features import Features

PART_SIZE = 2048
"""Images a part: 16 MiB of a ResNet-50's features, and a multiple of the batches that they are computed in."""

_RECORD = re.compile(r"part-(\d{5})\.json")


def write_part(folder: Storage, number: int, features: Features) -> None:
    """Writes a part; one that is there is replaced.

    Args:
        folder: Of the set of features.
        number: Of the part, from 0.
        features: Of the part's images; there may be none that can be read.
    """
    content = io.BytesIO()
    np.save(content, features.values.numpy())
    folder.write_bytes(_values_name(number), content.getvalue())
    unreadable = {str(index): reason for index, reason in features.unreadable.items()}
    folder.write_json(f"part-{number:05d}.json", {"indices": features.indices.tolist(), "unreadable": unreadable})


def finished_parts(folder: Storage) -> set[int]:
    """Numbers of the parts that are whole."""
    return {int(found[1]) for name in folder.list_names("part-") if (found := _RECORD.fullmatch(name))}


@dataclass(frozen=True)
class FeatureSet:
    """Features of the images that could be read; made by `FeatureSet.open`, and picklable.

    Attributes:
        folder: Where the parts lie.
        indices: The images that each part's rows belong to, (m,) int64 each, m from 0 to `PART_SIZE`.
        unreadable: Why other images have none, by index.
    """

    folder: Storage
    indices: tuple[NDArray[np.int64], ...]
    unreadable: dict[int, str]

    @classmethod
    def open(cls, folder: Storage, num_parts: int) -> FeatureSet:
        """Opens a set whose parts 0 to `num_parts` - 1 are all whole.

        Raises:
            InputError: No image of it could be read, or a file is damaged.
        """
        records = [folder.read_json(f"part-{number:05d}.json") for number in range(num_parts)]
        indices = tuple(np.array(record["indices"], dtype=np.int64) for record in records)
        unreadable = {int(index): reason for record in records for index, reason in record["unreadable"].items()}
        if not any(map(len, indices)):
            reasons = ((f"number {index}", reason) for index, reason in unreadable.items())
            raise none_readable(len(unreadable), reasons)
        return cls(folder, indices, unreadable)

    @property
    def num_rows(self) -> int:
        """Number of images that have features."""
        return sum(map(len, self.indices))

    def parts(self) -> Iterator[tuple[Tensor, NDArray[np.int64]]]:
        """Reads the parts one after the other, in the order of the images.

        Yields:
            Features (m, C) float32 on the CPU, not to be written to, and the images that they belong to (m,).

        Raises:
            InputError: A file is missing or damaged.
        """
        for number, indices in enumerate(self.indices):
            if len(indices):
                yield self._read(number, len(indices)), indices

    def load(self) -> tuple[Tensor, NDArray[np.int64]]:
        """Reads all of it: features (M, C) float32 on the CPU, and the images that they belong to (M,)."""
        values, indices = zip(*self.parts(), strict=True)
        return torch.cat(values), np.concatenate(indices)

    def num_columns(self) -> int:
        """C."""
        return next(self.parts())[0].shape[1]

    def _read(self, number: int, num_rows: int) -> Tensor:
        name = _values_name(number)
        local = self.folder.local_path(name)
        try:
            source = io.BytesIO(self.folder.read_bytes(name)) if local is None else local
            # Copy on write, since a tensor cannot be kept from being written to.
            values = np.load(source, mmap_mode=None if local is None else "c", allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise self._damaged(name) from error
        if values.shape[:1] != (num_rows,):
            raise self._damaged(name)
        return torch.from_numpy(values)

    def _damaged(self, name: str) -> InputError:
        remedy = "Run the command again with --fresh, which computes the features anew."
        return InputError("features", f"{self.folder.uri}/{name}", "is missing or damaged", remedy)


def _values_name(number: int) -> str:
    return f"part-{number:05d}.npy"
