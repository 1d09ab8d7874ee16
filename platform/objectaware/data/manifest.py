"""What exactly a run reads, and how it is cut into groups."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from objectaware.data.folder import ImageFolder

MISSING = -1
"""Size and time of a file that cannot be looked at."""


@dataclass(frozen=True)
class Manifest:
    """The images of a data set, in order, with what tells whether a file has changed.

    Attributes:
        root: Folder of the data set, absolute.
        image_ids: Paths relative to `root`.
        sizes: Bytes of each image; `MISSING` where the file cannot be looked at.
        modified_ns: Time of the last change in nanoseconds since 1970; `MISSING` where the file cannot be looked at.
    """

    root: str
    image_ids: tuple[str, ...]
    sizes: tuple[int, ...]
    modified_ns: tuple[int, ...]

    @classmethod
    def of(cls, dataset: ImageFolder) -> Manifest:
        """Look at each file of a data set once."""
        states = [_size_and_time(dataset.path(index)) for index in range(len(dataset))]
        return cls(
            root=str(dataset.root),
            image_ids=tuple(dataset.image_ids),
            sizes=tuple(size for size, _ in states),
            modified_ns=tuple(modified for _, modified in states),
        )

    def __len__(self) -> int:
        return len(self.image_ids)

    def content_hash(self, verify: bool = False) -> str:
        """Hash what the data set holds: names in order, sizes, and times of change. `root` does not enter.

        Args:
            verify: Read every file and hash its content in place of its time. Copying or touching the files
                then changes nothing, and a change that kept a file's size and time is seen.

        Returns:
            SHA-256 as 64 hexadecimal digits.
        """
        digest = hashlib.sha256(b"content" if verify else b"modified")
        for image_id, size, modified in zip(self.image_ids, self.sizes, self.modified_ns, strict=True):
            mark = _hash_file(Path(self.root, image_id)) if verify else str(modified)
            # No file name holds a NUL character, so that fields cannot run into each other.
            digest.update(f"{image_id}\0{size}\0{mark}\0".encode())
        return digest.hexdigest()

    def groups(self, group_size: int = 64, seed: int = 0) -> list[NDArray[np.int64]]:
        """Cut a seeded permutation of the images into groups, the units of work, negatives and resuming.

        The paper takes negatives from batches of 64. The permutation keeps neighbours in file order, which
        are often of one class, from being each other's negatives (reference/official-implementation.md §3).

        Args:
            group_size: Images a group, at least 1.
            seed: Seed of the permutation, which is NumPy's with PCG64.

        Returns:
            Index arrays; every index from 0 to `len(self) - 1` is in exactly one. Only the last may be
            shorter.
        """
        assert group_size >= 1, group_size
        order = np.random.Generator(np.random.PCG64(seed)).permutation(len(self)).astype(np.int64)
        return [order[start : start + group_size] for start in range(0, len(order), group_size)]

    def negatives_filler(self, group_size: int = 64, seed: int = 0) -> NDArray[np.int64]:
        """Return the images that fill the last, short group's batch of negatives up to `group_size`.

        They come from the start of the first group and serve as negatives only: their own results are those
        that they get in the first group.

        Returns:
            Index array; empty where the last group is full, or the only one.
        """
        groups = self.groups(group_size, seed)
        if len(groups) < 2:
            return np.empty(0, dtype=np.int64)
        return groups[0][: group_size - len(groups[-1])]


def _size_and_time(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except OSError:  # such as a link without its target; reading the image will say so
        return MISSING, MISSING
    return status.st_size, status.st_mtime_ns


def _hash_file(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError:
        return str(MISSING)
