"""Images kept in memory, and stand-ins for those that cannot be read."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from objectaware.data.images import Images, UnreadableImage, none_readable


class NamedImages(Images, Protocol):
    """A data set whose images have names."""

    @property
    def image_ids(self) -> list[str]:
        """Name of each image."""


class TrainingImages:
    """A data set as training reads it: decoded once while memory allows, and without holes.

    An image that cannot be read is replaced by the next one that can, so that an epoch keeps its length and its
    order; which ones and why stands in `unreadable`.

    Args:
        images: The data set.
        max_bytes: Decoded pixels kept in memory, first come first kept; 0 keeps none.
        unreadable: Images that are known beforehand to give no picture, with reasons.

    Attributes:
        source: The data set.
    """

    def __init__(self, images: NamedImages, *, max_bytes: int, unreadable: Mapping[str, str] | None = None) -> None:
        self.image_ids = images.image_ids
        self.source = images
        self.unreadable = dict(unreadable or {})
        self._kept: dict[int, NDArray[np.uint8]] = {}
        self._free_bytes = max_bytes
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self.source)

    def read(self, index: int) -> NDArray[np.uint8]:
        """Reads an image as 8-bit RGB, shape (H, W, 3).

        Raises:
            InputError: No image of the data set can be read.
        """
        for offset in range(len(self)):
            pixels = self._read_one((index + offset) % len(self))
            if pixels is not None:
                return pixels
        raise none_readable(len(self), self.unreadable.items())

    def is_unreadable(self, index: int) -> bool:
        """Whether another image stands in for this one, as far as it was read."""
        return self.image_ids[index] in self.unreadable

    def _read_one(self, index: int) -> NDArray[np.uint8] | None:
        kept = self._kept.get(index)
        if kept is not None:
            return kept
        if self.is_unreadable(index):
            return None
        try:
            pixels = self.source.read(index)
        except UnreadableImage as error:
            self.unreadable[self.image_ids[index]] = error.reason
            return None
        with self._lock:
            if pixels.nbytes <= self._free_bytes and index not in self._kept:
                self._kept[index] = pixels
                self._free_bytes -= pixels.nbytes
        return pixels
