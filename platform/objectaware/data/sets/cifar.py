"""CIFAR-10 and CIFAR-100 in the pickles of their authors, as torchvision unpacks them.

`cifar-10-batches-py/{data_batch_1…5,test_batch,batches.meta}` and `cifar-100-python/{train,test,meta}`.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from objectaware.data.folder import ImageFolder
from objectaware.data.layouts import Layout, Place, PublishedSet, register_layout, register_published
from objectaware.data.user_files import EXTRACTED, find_base
from objectaware.errors import InputError, one_line

_SIDE = 32


class ArrayImages:
    """Images of one size that lie in memory.

    Args:
        files: The files that they come from.
        image_ids: One name per image.
        pixels: Shape (N, H, W, 3).
        labels: Class index of each image, (N,).
        class_names: Names of the classes, by index.

    Attributes:
        root: Folder of the files.
    """

    def __init__(
        self,
        files: ImageFolder,
        image_ids: list[str],
        pixels: NDArray[np.uint8],
        labels: NDArray[np.int64],
        class_names: tuple[str, ...],
    ) -> None:
        self.files = files
        self.root = files.root
        self.image_ids = image_ids
        self.labels = labels
        self.class_names = class_names
        self._pixels = pixels

    def __len__(self) -> int:
        return len(self.image_ids)

    def read(self, index: int) -> NDArray[np.uint8]:
        """Return the pixels (H, W, 3) of one image."""
        return self._pixels[index].copy()


@dataclass(frozen=True)
class _Form:
    """How one of the two sets lies in its folder."""

    folder: str
    batches: dict[str, tuple[str, ...]]
    labels: str
    meta: str
    names: str


_FORMS = {
    10: _Form(
        "cifar-10-batches-py",
        {"train": tuple(f"data_batch_{number}" for number in range(1, 6)), "test": ("test_batch",)},
        "labels",
        "batches.meta",
        "label_names",
    ),
    100: _Form("cifar-100-python", {"train": ("train",), "test": ("test",)}, "fine_labels", "meta", "fine_label_names"),
}


def load_cifar(root: str | Path, num_classes: int, split: str) -> ArrayImages:
    """Open a split, 32 × 32 pixels per image.

    Args:
        root: The folder, or the one above it.
        num_classes: 10 or 100.
        split: `train` or `test`.

    Raises:
        InputError: A file is missing or malformed.
    """
    form = _FORMS[num_classes]
    names = form.batches[split]
    folder = find_base(root, [form.folder], [*names, form.meta], field="cifar", remedy=EXTRACTED)
    class_names = tuple(str(name) for name in _read(folder / form.meta, (form.names,))[0])
    pixels, labels, image_ids = [], [], []
    for name in names:
        data, numbers = (np.asarray(part) for part in _read(folder / name, ("data", form.labels)))
        if data.dtype != np.uint8 or data.shape != (len(numbers), 3 * _SIDE * _SIDE):
            problem = f"has images of shape {data.shape} and type {data.dtype}, and {len(numbers)} labels"
            raise InputError("cifar", folder / name, problem, EXTRACTED)
        pixels.append(data.reshape(-1, 3, _SIDE, _SIDE).transpose(0, 2, 3, 1))
        labels.append(numbers.astype(np.int64))
        image_ids += [f"{name}#{number}" for number in range(len(numbers))]
    files = ImageFolder(folder, [form.meta, *names])
    return ArrayImages(files, image_ids, np.concatenate(pixels), np.concatenate(labels), class_names)


def _read(path: Path, keys: tuple[str, ...]) -> list[Any]:
    """Return the values of a pickled mapping under some keys."""
    try:
        with path.open("rb") as stream:
            # Written by Python 2, whose strings are bytes.
            content = _PlainUnpickler(stream, encoding="latin1").load()
        return [content[key] for key in keys]
    except Exception as error:  # pickle raises whatever a malformed file provokes in it
        raise InputError("cifar", path, f"is not a part of the data set ({one_line(error)})", EXTRACTED) from error


class _PlainUnpickler(pickle.Unpickler):
    """Reads arrays, strings, numbers, lists and mappings; a pickle that would call anything else is refused."""

    def find_class(self, module: str, name: str) -> Any:  # noqa: ANN401 - as pickle has it
        reconstruct = np.empty(0).__reduce__()[0]
        allowed = {
            ("numpy.core.multiarray", "_reconstruct"): reconstruct,
            ("numpy._core.multiarray", "_reconstruct"): reconstruct,  # as NumPy 2 names it
            ("numpy", "ndarray"): np.ndarray,
            ("numpy", "dtype"): np.dtype,
        }
        if (module, name) in allowed:
            return allowed[module, name]
        raise pickle.UnpicklingError(f"it asks for {module}.{name}")


class _Cifar(Layout):
    splits = ("train", "test")
    are_files = False
    num_classes: ClassVar[int]

    def open(self, place: Place) -> ArrayImages:
        """Read a split into memory."""
        return load_cifar(place.root, self.num_classes, place.split)


@register_layout
class Cifar10(_Cifar):
    """Ten classes."""

    name = "cifar-10"
    content = "cifar-10-batches-py/{data_batch_1…5,test_batch,batches.meta}"
    labels = "class"
    num_classes = 10


@register_layout
class Cifar100(_Cifar):
    """A hundred fine classes."""

    name = "cifar-100"
    content = "cifar-100-python/{train,test,meta}"
    labels = "fine class"
    num_classes = 100


_LICENCE = "none stated; its authors ask to be cited"
_SOURCE = "torchvision.datasets.CIFAR{} downloads it (www.cs.toronto.edu/~kriz/cifar.html, the Python version)"

register_published(
    *(
        PublishedSet(
            f"CIFAR-{one.num_classes}",
            _FORMS[one.num_classes].folder,
            _LICENCE,
            _SOURCE.format(one.num_classes),
            {part: {"layout": one.name, "split": part} for part in one.splits},
            {"train": 50_000, "test": 10_000},
        )
        for one in (Cifar10, Cifar100)
    )
)
