"""CIFAR-10 and CIFAR-100 in the pickles of their authors, as torchvision unpacks them.

`cifar-10-batches-py/{data_batch_1…5,test_batch,batches.meta}` and `cifar-100-python/{train,test,meta}`.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from objectaware.data.dataset import Dataset, PublishedSet
from objectaware.data.folder import ImageFolder
from objectaware.data.user_files import Release

_RELEASE = Release("cifar")
_SIDE = 32


@dataclass(frozen=True, eq=False)
class ArrayImages:
    """Images of one size that lie in memory.

    Attributes:
        files: The files that they come from.
        image_ids: One name per image.
        pixels: Shape (N, H, W, 3).
        labels: Class index of each image, (N,).
        class_names: Names of the classes, by index.
    """

    files: ImageFolder
    image_ids: list[str]
    pixels: NDArray[np.uint8]
    labels: NDArray[np.int64]
    class_names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.image_ids)

    def read(self, index: int) -> NDArray[np.uint8]:
        """Return the pixels (H, W, 3) of one image."""
        return self.pixels[index].copy()


class _PlainUnpickler(pickle.Unpickler):
    """Reads arrays, strings, numbers, lists and mappings; a pickle that would call anything else is refused."""

    def find_class(self, module: str, name: str) -> Any:  # noqa: ANN401 - as pickle has it
        if name == "_reconstruct" and module in ("numpy.core.multiarray", "numpy._core.multiarray"):  # of NumPy 1 and 2
            return np.empty(0).__reduce__()[0]
        if module == "numpy" and name in ("ndarray", "dtype"):
            return getattr(np, name)
        raise pickle.UnpicklingError(f"it asks for {module}.{name}")


class _Cifar(Dataset):
    """Base of the two sets. Pictures have 32 × 32 pixels.

    Attributes:
        folder: The folder that the archive unpacks to.
        batches: Names of its files in the splits train and test.
        meta: Its file of class names.
        keys: Keys of the labels and of the class names in these files.
    """

    splits = ("train", "test")
    are_files = False
    folder: ClassVar[str]
    batches: ClassVar[tuple[tuple[str, ...], tuple[str, ...]]]
    meta: ClassVar[str]
    keys: ClassVar[tuple[str, str]]

    def open_images(self) -> ArrayImages:
        """Read a split into memory."""
        names = self.batches[self.splits.index(self.split)]
        folder = replace(_RELEASE, folders=(self.folder,), needed=(*names, self.meta)).base(self.root)
        class_names = tuple(str(name) for name in _read(folder / self.meta, (self.keys[1],))[0])
        pixels, labels, image_ids = [], [], []
        for name in names:
            data, numbers = (np.asarray(part) for part in _read(folder / name, ("data", self.keys[0])))
            if data.dtype != np.uint8 or data.shape != (len(numbers), 3 * _SIDE * _SIDE):
                problem = f"has images of shape {data.shape} and type {data.dtype}, and {len(numbers)} labels"
                raise _RELEASE.malformed(folder / name, problem)
            pixels.append(data.reshape(-1, 3, _SIDE, _SIDE).transpose(0, 2, 3, 1))
            labels.append(numbers.astype(np.int64))
            image_ids += [f"{name}#{number}" for number in range(len(numbers))]
        files = ImageFolder(folder, [self.meta, *names])
        return ArrayImages(files, image_ids, np.concatenate(pixels), np.concatenate(labels), class_names)


def _read(path: Path, keys: tuple[str, ...]) -> list[Any]:
    """Return the values of a pickled mapping under some keys."""
    # pickle raises whatever a malformed file provokes in it.
    with _RELEASE.reading(path, "is not a part of the data set", Exception), path.open("rb") as stream:
        # Written by Python 2, whose strings are bytes.
        content = _PlainUnpickler(stream, encoding="latin1").load()
        return [content[key] for key in keys]


class Cifar10(_Cifar):
    """Ten classes."""

    name = "cifar-10"
    content = "cifar-10-batches-py/{data_batch_1…5,test_batch,batches.meta}"
    labels = "class"
    folder = "cifar-10-batches-py"
    batches = (tuple(f"data_batch_{number}" for number in range(1, 6)), ("test_batch",))
    meta = "batches.meta"
    keys = ("labels", "label_names")


class Cifar100(_Cifar):
    """A hundred fine classes."""

    name = "cifar-100"
    content = "cifar-100-python/{train,test,meta}"
    labels = "fine class"
    folder = "cifar-100-python"
    batches = (("train",), ("test",))
    meta = "meta"
    keys = ("fine_labels", "fine_label_names")


for _layout in (Cifar10, Cifar100):
    PublishedSet(
        _layout.name.upper(),
        _layout.folder,
        "none stated; its authors ask to be cited",
        f"torchvision.datasets.{_layout.__name__.upper()} downloads it (www.cs.toronto.edu/~kriz/cifar.html, the "
        "Python version)",
        {part: {"layout": _layout.name, "split": part} for part in _layout.splits},
        {"train": 50_000, "test": 10_000},
    )
