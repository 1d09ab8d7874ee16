from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from numpy.typing import NDArray

from objectaware.data.cache import TrainingImages
from objectaware.data.images import UnreadableImage
from objectaware.errors import InputError


class Files:
    """Pictures of 300 bytes, filled with their index; counts how often each is decoded."""

    def __init__(self, number: int, broken: tuple[int, ...] = ()) -> None:
        self.image_ids = [f"{index}.png" for index in range(number)]
        self.decoded: Counter[int] = Counter()
        self._broken = broken

    def __len__(self) -> int:
        return len(self.image_ids)

    def read(self, index: int) -> NDArray[np.uint8]:
        self.decoded[index] += 1
        if index in self._broken:
            raise UnreadableImage("the file is empty")
        return np.full((10, 10, 3), index, dtype=np.uint8)


def _first_pixels(images: TrainingImages) -> list[int]:
    return [int(images.read(index)[0, 0, 0]) for index in range(len(images))]


def test_images_are_decoded_once_while_they_fit() -> None:
    files = Files(5)
    images = TrainingImages(files, max_bytes=2 * 300)
    for _ in range(3):
        assert _first_pixels(images) == [0, 1, 2, 3, 4]
    assert files.decoded == {0: 1, 1: 1, 2: 3, 3: 3, 4: 3}


def test_nothing_is_kept_without_memory() -> None:
    files = Files(2)
    images = TrainingImages(files, max_bytes=0)
    assert _first_pixels(images) + _first_pixels(images) == [0, 1, 0, 1]
    assert files.decoded == {0: 2, 1: 2}


def test_the_next_readable_image_stands_in_for_a_broken_one() -> None:
    files = Files(5, broken=(1, 2, 4))
    images = TrainingImages(files, max_bytes=10_000)
    assert _first_pixels(images) == [0, 3, 3, 3, 0]
    assert images.unreadable == dict.fromkeys(("1.png", "2.png", "4.png"), "the file is empty")
    assert _first_pixels(images) == [0, 3, 3, 3, 0]
    assert files.decoded == dict.fromkeys(range(5), 1)
    assert len(images) == 5


def test_a_data_set_without_any_readable_image_is_refused() -> None:
    with pytest.raises(InputError, match="none that can be read"):
        TrainingImages(Files(2, broken=(0, 1)), max_bytes=0).read(1)


def test_threads_do_not_keep_more_than_fits() -> None:
    files = Files(40)
    images = TrainingImages(files, max_bytes=10 * 300)
    with ThreadPoolExecutor(4) as pool:
        for _ in range(3):
            assert [int(pixels[0, 0, 0]) for pixels in pool.map(images.read, range(40))] == list(range(40))
    before = files.decoded.copy()
    _first_pixels(images)
    assert sum((files.decoded - before).values()) == 30
