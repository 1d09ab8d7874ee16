"""The images of a data set that an evaluation uses, with their classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from objectaware.config import DataConfig
from objectaware.data.dataset import Dataset
from objectaware.data.images import Images
from objectaware.data.sets.coco import CocoDataset
from objectaware.errors import InputError


@dataclass(frozen=True)
class LabelledImages:
    """Images with their classes.

    Attributes:
        images: The data set.
        labels: Class of each image (N,), by its index in the data set; -1 for images that are not used.
        class_names: Names of the classes.
    """

    images: Images
    labels: NDArray[np.int64]
    class_names: tuple[str, ...]

    @property
    def indices(self) -> NDArray[np.int64]:
        """Return the indices of the images that are used, in order."""
        return np.flatnonzero(self.labels >= 0)


def open_labelled(opened: Dataset, class_names: Sequence[str] | None = None) -> LabelledImages:
    """Open a data set for an evaluation.

    Args:
        opened: The data set.
        class_names: Names of the classes that count, numbered in this order. By default all classes count, with the
            data set's numbers. A whole COCO picture counts if it shows exactly one of the classes.

    Raises:
        InputError: The data set has no labels, or not these classes.
    """
    images, data = opened.images, opened.config
    if class_names is not None and opened.layout.has_instances:
        coco = opened.instances("category_index")
        shown = _shown_categories(coco, _places(data, coco.category_names, class_names))
        alone = np.where(shown.sum(axis=1) == 1, shown.argmax(axis=1), -1)
        return LabelledImages(images, alone.astype(np.int64), tuple(class_names))
    if images.labels is None:
        raise InputError(
            "layout", data.layout, "has no labels", "Use class-folders, backgrounds-challenge or coco-crop."
        )
    if class_names is None:
        return LabelledImages(images, images.labels, images.class_names)
    labels = np.full(len(images.labels), -1, dtype=np.int64)
    for number, place in enumerate(_places(data, images.class_names, class_names)):
        labels[images.labels == place] = number
    return LabelledImages(images, labels, tuple(class_names))


def _places(data: DataConfig, known: Sequence[str], wanted: Sequence[str]) -> list[int]:
    """Return the numbers of the wanted classes in a data set."""
    for name in wanted:
        if name not in known:
            shown = ", ".join(known[:20]) + (", …" if len(known) > 20 else "")
            raise InputError("class_names", name, f"is no class of {data.root}", f"It has {shown}.")
    return [known.index(name) for name in wanted]


def _shown_categories(coco: CocoDataset, categories: Sequence[int]) -> NDArray[np.bool_]:
    """Return whether each picture shows each of the categories, (N, number of categories)."""
    shown = [{annotation.category_index for annotation in coco.annotations(index)} for index in range(len(coco))]
    return np.array([[category in of_picture for category in categories] for of_picture in shown], dtype=np.bool_)
