"""Which images of a data set an evaluation looks at, and what they show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from objectaware.config import DataConfig
from objectaware.data.coco import CocoDataset
from objectaware.data.dataset import Dataset
from objectaware.data.images import Images
from objectaware.errors import InputError


@dataclass(frozen=True)
class LabelledImages:
    """Images with their classes.

    Attributes:
        images: The data set.
        labels: Class of each image (N,), by its index in the data set; -1 for those that are not looked at.
        class_names: Names of the classes.
    """

    images: Images
    labels: NDArray[np.int64]
    class_names: tuple[str, ...]

    @property
    def indices(self) -> NDArray[np.int64]:
        """The images that are looked at, in order."""
        return np.flatnonzero(self.labels >= 0)


def open_labelled(data: DataConfig, class_names: Sequence[str] | None = None) -> LabelledImages:
    """Opens a data set for an evaluation.

    Args:
        data: The data set.
        class_names: The classes that count, numbered in this order; by default all, as the data set numbers them.
            Of whole COCO pictures, those count that show one of the classes and none of the others.

    Raises:
        InputError: The data set has no labels, or not these classes.
    """
    opened = Dataset(data)
    images = opened.images
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
    """Numbers of the wanted classes in a data set."""
    for name in wanted:
        if name not in known:
            shown = ", ".join(known[:20]) + (", …" if len(known) > 20 else "")
            raise InputError("class_names", name, f"is no class of {data.root}", f"It has {shown}.")
    return [known.index(name) for name in wanted]


def _shown_categories(coco: CocoDataset, categories: Sequence[int]) -> NDArray[np.bool_]:
    """Whether each picture shows each of the categories, (N, number of categories)."""
    shown = [{annotation.category_index for annotation in coco.annotations(index)} for index in range(len(coco))]
    return np.array([[category in of_picture for category in categories] for of_picture in shown], dtype=np.bool_)
