"""COCO's instance annotations: `{train,val}2017/*.jpg` and `annotations/instances_{train,val}2017.json`.

`coco_json` reads and checks the file, `coco_masks` draws; this module puts pictures, masks, boxes and crops
together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from objectaware.data.coco_json import CocoAnnotation, CocoImage, parse_instances
from objectaware.data.coco_masks import union_mask
from objectaware.data.folder import ImageFolder
from objectaware.data.places import is_folder
from objectaware.errors import InputError

Box = tuple[float, float, float, float]

OBJECT_MARGIN = 0.2
"""What the paper adds to each side of an object's box, as a fraction of its width or height."""


@dataclass(frozen=True)
class Instance:
    """An object in a picture.

    Attributes:
        category_index: From 0, in the order of COCO's category numbers.
        box_relative: x0, y0, x1, y1, from 0 to 1.
        area_fraction: Area of its mask over that of the picture.
    """

    category_index: int
    box_relative: Box
    area_fraction: float


@dataclass(frozen=True)
class ObjectCrop:
    """A box to cut out of a picture for the COCO-Crop classification task.

    Attributes:
        image_index: Index of the picture in `CocoDataset.images`.
        box_relative: x0, y0, x1, y1, from 0 to 1, margin included.
        label: Category index of the object.
    """

    image_index: int
    box_relative: Box
    label: int


class CocoDataset:
    """Pictures with their instances; made by `load_coco`.

    Attributes:
        images: All pictures that the annotation file names, in the order of their COCO numbers, unlabelled.
        category_names: Names by category index.
        numbers: COCO's number of each picture.
    """

    def __init__(
        self,
        images: ImageFolder,
        category_names: tuple[str, ...],
        numbers: list[int],
        records: list[CocoImage],
        annotations: list[list[CocoAnnotation]],
    ) -> None:
        self.images = images
        self.category_names = category_names
        self.numbers = numbers
        self._records = records
        self._annotations = annotations

    def __len__(self) -> int:
        return len(self._records)

    def select(self, image_ids: Sequence[str]) -> CocoDataset:
        """Return some of the pictures, in the order in which they are named.

        Raises:
            KeyError: A picture is not in the data set.
        """
        index_of = {image_id: index for index, image_id in enumerate(self.images.image_ids)}
        places = [index_of[image_id] for image_id in image_ids]
        return CocoDataset(
            ImageFolder(self.images.root, image_ids),
            self.category_names,
            [self.numbers[index] for index in places],
            [self._records[index] for index in places],
            [self._annotations[index] for index in places],
        )

    def size(self, index: int) -> tuple[int, int]:
        """Return height and width of a picture in pixels, as the annotation file gives them."""
        return self._records[index].height, self._records[index].width

    def annotations(self, index: int) -> list[CocoAnnotation]:
        """Return what the file says of the objects of a picture, in its order, crowds included."""
        return self._annotations[index]

    def foreground_mask(self, index: int) -> NDArray[np.bool_]:
        """Return the union of all instances of a picture, crowds included.

        Returns:
            Shape (H, W) as the annotation file gives them, true on any object.

        Raises:
            InputError: A segmentation cannot be decoded.
        """
        record = self._records[index]
        shapes = [annotation.segmentation for annotation in self._annotations[index]]
        try:
            return union_mask(shapes, record.height, record.width)
        except (ValueError, TypeError) as error:
            problem = f"cannot be drawn ({error})"
            remedy = "Repair the annotation file."
            raise InputError("segmentation", record.file_name, problem, remedy) from error

    def instances(self, index: int) -> list[Instance]:
        """Return the objects of a picture in the order of the file, crowds included."""
        record = self._records[index]
        return [
            Instance(
                annotation.category_index,
                _relative_box(annotation.box, record),
                annotation.area / (record.width * record.height),
            )
            for annotation in self._annotations[index]
        ]


def instances_file(root: str | Path, split: str) -> Path:
    """The file with the annotations of a split's instances."""
    return Path(root, "annotations", f"instances_{split}2017.json")


def load_coco(root: str | Path, split: str) -> CocoDataset:
    """Open one part of COCO, or of any data set in its layout.

    Args:
        root: Folder that holds `<split>2017` and `annotations`.
        split: `train` or `val`.

    Raises:
        InputError: The folder or the annotation file is missing, or the file is malformed.
    """
    folder = Path(root, f"{split}2017")
    if not is_folder(folder, field="coco"):
        remedy = "Give the folder that holds train2017, val2017 and annotations."
        raise InputError("coco", root, f"holds no folder {folder}", remedy)
    instances = parse_instances(instances_file(root, split))
    images = ImageFolder(folder, [record.file_name for record in instances.images])
    return CocoDataset(images, instances.category_names, instances.numbers, instances.images, instances.annotations)


def object_crops(coco: CocoDataset, *, min_area: float = 0.01, margin: float = OBJECT_MARGIN) -> list[ObjectCrop]:
    """List the objects of COCO-Crop, the paper's linear evaluation of single objects.

    Crowds are included, as in the official repository's create_coco-objects.py.

    Args:
        coco: The data set.
        min_area: Least area of the object's mask as a fraction of the picture.
        margin: What is added on each side, as a fraction of the box's width or height, cut at the border.

    Returns:
        Crops in the order of pictures and of instances.
    """
    return [
        ObjectCrop(index, expand_box(instance.box_relative, margin), instance.category_index)
        for index in range(len(coco))
        for instance in coco.instances(index)
        if instance.area_fraction >= min_area
    ]


def object_boxes(
    coco: CocoDataset, *, min_area: float = 0.01, margin: float = OBJECT_MARGIN
) -> list[NDArray[np.float32]]:
    """Give the boxes that the object-aware crop takes from the annotations, in place of found ones.

    Crowds are included.

    Args:
        coco: The data set.
        min_area: Objects count from more than this share of the picture on.
        margin: What is added on each side, as a fraction of the box's width or height, cut at the border.

    Returns:
        For each picture boxes (n, 4), x0 y0 x1 y1 relative to it; n may be 0.

    Source:
        official-implementation §2 ("GT boxes: annotation area > 1%, crowds included, same margin").
    """
    return [
        np.array(
            [expand_box(one.box_relative, margin) for one in coco.instances(index) if one.area_fraction > min_area],
            dtype=np.float32,
        ).reshape(-1, 4)
        for index in range(len(coco))
    ]


def _relative_box(box: Box, record: CocoImage) -> Box:
    """From x, y, width, height in pixels to relative corners."""
    x, y, width, height = box
    left, right = (min(max(value / record.width, 0.0), 1.0) for value in (x, x + width))
    top, bottom = (min(max(value / record.height, 0.0), 1.0) for value in (y, y + height))
    return left, top, right, bottom


def expand_box(box: Box, margin: float) -> Box:
    """Adds to each side of a relative box a fraction of its width or height, cut at the picture's border."""
    left, top, right, bottom = box
    width, height = (right - left) * margin, (bottom - top) * margin
    return max(left - width, 0.0), max(top - height, 0.0), min(right + width, 1.0), min(bottom + height, 1.0)
