"""The objects of a COCO folder as a labelled data set of their own (COCO-Crop)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from objectaware.data.boxes import pixel_region
from objectaware.data.coco import CocoDataset, object_crops
from objectaware.data.images import UnreadableImage
from objectaware.errors import InputError


class CroppedObjects:
    """Objects cut out of their pictures with a margin, each labelled with its category.

    Args:
        coco: The pictures and their instances.
        min_area: Objects that cover less of the picture are left out.
        margin: Share of a box's width and height added on each side.

    Attributes:
        files: The pictures that have objects.
        root: Folder of the pictures.
        image_ids: `<picture>#<number of the crop>`.
        labels: Category index of each crop, (N,).
        class_names: Names of the categories.

    Source:
        official-implementation §2 (linear evaluation: area at least 1%, 20% margin).
    """

    def __init__(self, coco: CocoDataset, *, min_area: float = 0.01, margin: float = 0.2) -> None:
        self._coco = coco
        self._images = coco.images
        self._crops = object_crops(coco, min_area=min_area, margin=margin)
        shown = sorted({crop.image_index for crop in self._crops})
        self.files = coco.images.select(np.array(shown, dtype=np.int64))
        self.root: Path = coco.images.root
        self.image_ids = [
            f"{coco.images.image_ids[crop.image_index]}#{number}" for number, crop in enumerate(self._crops)
        ]
        self.labels = np.array([crop.label for crop in self._crops], dtype=np.int64)
        self.class_names = coco.category_names

    def __len__(self) -> int:
        return len(self._crops)

    def read(self, index: int) -> NDArray[np.uint8]:
        """Pixels (h, w, 3) of one object.

        Raises:
            objectaware.data.images.UnreadableImage: The picture cannot be read, or its annotations are for one of
                another size.
        """
        crop = self._crops[index]
        image = self._images.read(crop.image_index)
        try:
            box = self._coco.turn(crop.image_index).box(crop.annotated_box)
        except InputError as error:
            raise UnreadableImage(f"its picture {error.problem}") from error
        top, left, height, width = pixel_region(box, image.shape[0], image.shape[1])
        return image[top : top + height, left : left + width]
