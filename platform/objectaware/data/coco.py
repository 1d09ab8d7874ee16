"""COCO's instance annotations: `{train,val}2017/*.jpg` and `annotations/instances_{train,val}2017.json`.

`coco_json` reads, checks and draws the annotations. This module puts pictures, masks, boxes and crops
together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from objectaware.data.coco_json import CocoAnnotation, CocoField, CocoInstances, parse_instances, union_mask
from objectaware.data.folder import ImageFolder, require_some_file
from objectaware.data.images import UnreadableImage
from objectaware.data.masks import MIN_BOX_AREA, OBJECT_MARGIN, pixel_region
from objectaware.data.truth import Orientation, TrueObjects, Turns
from objectaware.data.user_files import is_folder
from objectaware.errors import InputError

Box = tuple[float, float, float, float]


@dataclass(frozen=True)
class Instance:
    """An object in a picture, which is upright.

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
        annotated_box: x0, y0, x1, y1, from 0 to 1, margin included, in the picture as it was annotated: no picture is
            opened to list the crops. `CocoDataset.turn` brings it upright.
        label: Category index of the object.
    """

    image_index: int
    annotated_box: Box
    label: int


class CocoDataset:
    """Pictures with their instances; made by `load_coco`.

    Attributes:
        images: All pictures that the annotation file names, in the order of their COCO numbers, unlabelled.
        numbers: COCO's number of each picture.
    """

    def __init__(self, instances: CocoInstances, images: ImageFolder, places: Sequence[int], turns: Turns) -> None:
        self.images = images
        self.numbers = [instances.numbers[place] for place in places]
        self._instances = instances
        self._places = places
        self._turns = turns

    def __len__(self) -> int:
        return len(self._places)

    @property
    def category_names(self) -> tuple[str, ...]:
        """Names by category index."""
        return self._instances.category_names

    @property
    def notice(self) -> str:
        """A line about the annotations for the user, or an empty one."""
        return self._instances.notice

    def select(self, image_ids: Sequence[str]) -> CocoDataset:
        """Return some of the pictures, in the order in which they are named.

        Raises:
            KeyError: A picture is not in the data set.
        """
        place_of = dict(zip(self.images.image_ids, self._places, strict=True))
        places = [place_of[image_id] for image_id in image_ids]
        return CocoDataset(self._instances, ImageFolder(self.images.root, image_ids), places, self._turns)

    def size(self, index: int) -> tuple[int, int]:
        """Return height and width of a picture in pixels, as the annotation file gives them."""
        return self._instances.images[self._places[index]].shape

    def stored(self, index: int) -> Orientation:
        """Return the orientation that brings a picture itself upright.

        Raises:
            UnreadableImage: It cannot be read.
        """
        return self._turns.stored(self._places[index])

    def turn(self, index: int) -> Orientation:
        """Return the orientation that brings upright the annotations of a picture.

        Raises:
            InputError: The picture has the size that the file gives neither as it is stored nor upright.
        """
        return self._turns.of(self._places[index], self.size(index))

    def turns(self) -> CocoTurns:
        """Return the results of `turn` for all pictures, without keeping the annotation file.

        Raises:
            InputError: The file gives no size of some picture.
        """
        shapes = np.array([image.shape for image in self._instances.images], dtype=np.int32).reshape(-1, 2)
        return CocoTurns(self._turns.with_shapes(shapes), shapes, np.array(self._places, dtype=np.int64))

    def annotations(self, index: int) -> list[CocoAnnotation]:
        """Return the annotations of a picture in the order of the file, not turned, crowds included."""
        return self._instances.annotations[self._places[index]]

    def foreground_mask(self, index: int) -> NDArray[np.bool_]:
        """Return the union of all instances of a picture, crowds included.

        Returns:
            Shape (H, W) of the upright picture that was annotated, true on any object.

        Raises:
            InputError: A segmentation cannot be drawn, or see `turn`.
        """
        shapes = [annotation.segmentation for annotation in self.annotations(index)]
        turn = self.turn(index)
        try:
            return turn.pixels(union_mask(shapes, *turn.shape))
        except (ValueError, TypeError) as error:
            problem = f"cannot be drawn ({error})"
            remedy = "Repair the annotation file."
            raise InputError("segmentation", self.images.image_ids[index], problem, remedy) from error

    def instances(self, index: int) -> list[Instance]:
        """Return the objects of a picture in the order of the file, crowds included.

        Raises:
            InputError: See `turn`.
        """
        turn = self.turn(index)
        return [
            Instance(one.category_index, turn.box(one.box_relative), one.area_fraction)
            for one in self.annotated_instances(index)
        ]

    def annotated_boxes(self, index: int, *, min_area: float) -> NDArray[np.float64]:
        """Return the boxes (n, 4) of a picture's objects as annotated, x0 y0 x1 y1 relative, crowds included.

        Args:
            index: Index of the picture.
            min_area: Objects count from more than this share of the picture on.
        """
        height, width = self.size(index)
        large = [one for one in self.annotations(index) if one.area / (width * height) > min_area]
        boxes = [_relative_box(one.box, height, width) for one in large]
        return np.array(boxes, dtype=np.float64).reshape(-1, 4)

    def annotated_instances(self, index: int) -> list[Instance]:
        """Return the objects of a picture as annotated, without opening the picture."""
        height, width = self.size(index)
        return [
            Instance(
                annotation.category_index,
                _relative_box(annotation.box, height, width),
                annotation.area / (width * height),
            )
            for annotation in self.annotations(index)
        ]


class CocoTurns:
    """The turns that bring the annotations of pictures upright; made by `CocoDataset.turns`."""

    def __init__(self, turns: Turns, shapes: NDArray[np.int32], places: NDArray[np.int64]) -> None:
        self._turns = turns
        self._shapes = shapes
        self._places = places

    def __getitem__(self, index: int) -> Orientation:
        """Return the turn of a picture, by its index in the data set; raises as `CocoDataset.turn`."""
        place = int(self._places[index])
        height, width = self._shapes[place].tolist()
        return self._turns.of(place, (height, width))


def instances_file(root: str | Path, split: str) -> Path:
    """Return the path of the file with the annotations of a split's instances."""
    return Path(root, "annotations", f"instances_{split}2017.json")


def load_coco(root: str | Path, split: str, *fields: CocoField) -> CocoDataset:
    """Open one part of COCO, or of any data set in its layout.

    Args:
        root: Folder that holds `<split>2017` and `annotations`.
        split: `train` or `val`.
        fields: Fields of images and annotations that will be used, to be refused now where they are malformed.

    Raises:
        InputError: The folder or the annotation file is missing, the file is malformed, or none of its pictures is
            in the folder.
    """
    folder = Path(root, f"{split}2017")
    if not is_folder(folder, field="coco"):
        remedy = "Give the folder that holds train2017, val2017 and annotations."
        raise InputError("coco", root, f"holds no folder {folder}", remedy)
    instances = parse_instances(instances_file(root, split))
    coco = coco_of(instances, folder)
    require_some_file(coco.images, named_by=instances.path, field="coco")
    instances.check(*fields)
    return coco


def coco_of(instances: CocoInstances, folder: Path) -> CocoDataset:
    """Put an annotation file and a folder together, which may lack pictures.

    Args:
        instances: The content of the file.
        folder: The folder of the pictures that it names.
    """
    images = ImageFolder(folder, [image.file_name for image in instances.images])
    # Tools of today show pictures upright to those who annotate.
    turns = Turns(images, field="coco", unclear="upright", shapes=_Shapes(instances))
    return CocoDataset(instances, images, range(len(images)), turns)


class _Shapes:
    """Height and width of each picture as the annotation file gives them; unlike a lambda, it can be pickled."""

    def __init__(self, instances: CocoInstances) -> None:
        self._instances = instances

    def __call__(self, index: int) -> tuple[int, int]:
        return self._instances.images[index].shape


def object_crops(
    coco: CocoDataset, *, min_area: float = MIN_BOX_AREA, margin: float = OBJECT_MARGIN
) -> list[ObjectCrop]:
    """List the objects of COCO-Crop, the paper's linear evaluation of single objects.

    Crowds are included, as in the official repository's create_coco-objects.py.

    Args:
        coco: The data set.
        min_area: Least area of the object's mask as a fraction of the picture.
        margin: Margin added on each side, as a fraction of the box's width or height, cut at the border.

    Returns:
        Crops in the order of pictures and of instances.
    """
    return [
        ObjectCrop(index, expand_box(instance.box_relative, margin), instance.category_index)
        for index in range(len(coco))
        for instance in coco.annotated_instances(index)
        if instance.area_fraction >= min_area
    ]


class CocoObjects(TrueObjects):
    """Instances of COCO: their union, and the boxes of those that cover more than 1% of the picture.

    Attributes:
        coco: The images.
    """

    def __init__(self, coco: CocoDataset) -> None:
        self.coco: CocoDataset = coco
        self.notice = coco.notice

    def mask(self, index: int) -> NDArray[np.bool_]:
        """Return the union of the instances, (H, W)."""
        return self.coco.foreground_mask(index)

    def boxes(self, index: int) -> NDArray[np.float64]:
        """Return the instances' boxes (n, 4)."""
        return self.coco.turn(index).boxes(self.coco.annotated_boxes(index, min_area=MIN_BOX_AREA))


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

    def __init__(self, coco: CocoDataset, *, min_area: float = MIN_BOX_AREA, margin: float = OBJECT_MARGIN) -> None:
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
        """Return the pixels (h, w, 3) of one object.

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


class ObjectBoxes:
    """The boxes that the object-aware crop takes from the annotations, by picture, in place of found ones.

    Crowds are included. The data set itself, with all that its annotation file says, is not kept.

    Args:
        coco: The data set.
        min_area: Objects count from more than this share of the picture on.
        margin: Margin added on each side, as a fraction of the box's width or height, cut at the border.

    Source:
        official-implementation §2 ("GT boxes: annotation area > 1%, crowds included, same margin").
    """

    def __init__(self, coco: CocoDataset, *, min_area: float = MIN_BOX_AREA, margin: float = OBJECT_MARGIN) -> None:
        self._turns = coco.turns()
        self._annotated = [
            _expanded(coco.annotated_boxes(index, min_area=min_area), margin) for index in range(len(coco))
        ]

    def __len__(self) -> int:
        return len(self._annotated)

    def __getitem__(self, index: int) -> NDArray[np.float32]:
        """Return the boxes (n, 4), x0 y0 x1 y1 relative to the picture; n may be 0.

        Raises:
            InputError: See `CocoDataset.turn`.
        """
        return self._turns[index].boxes(self._annotated[index]).astype(np.float32)


def _relative_box(box: Box, height: int, width: int) -> Box:
    """Turn x, y, width, height in pixels into corners relative to a picture of this height and width."""
    x, y, box_width, box_height = box
    left, right = (min(max(value / width, 0.0), 1.0) for value in (x, x + box_width))
    top, bottom = (min(max(value / height, 0.0), 1.0) for value in (y, y + box_height))
    return left, top, right, bottom


def _expanded(boxes: NDArray[np.float64], margin: float) -> NDArray[np.float64]:
    """Expand boxes (n, 4) as `expand_box` does."""
    return np.array([expand_box((x0, y0, x1, y1), margin) for x0, y0, x1, y1 in boxes.tolist()]).reshape(-1, 4)


def expand_box(box: Box, margin: float) -> Box:
    """Add to each side of a relative box a fraction of its width or height, cut at the picture's border."""
    left, top, right, bottom = box
    width, height = (right - left) * margin, (bottom - top) * margin
    return max(left - width, 0.0), max(top - height, 0.0), min(right + width, 1.0), min(bottom + height, 1.0)
