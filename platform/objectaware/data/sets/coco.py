"""COCO 2017 and any data set in its layout, and COCO-Crop, its objects cut out.

`{train,val}2017/*.jpg` and `annotations/instances_{train,val}2017.json`. `objectaware.data.coco_json` reads, checks and
draws the annotations. This module puts pictures, masks, boxes and crops together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from objectaware.data.coco_json import CocoAnnotation, CocoField, CocoInstances, forget_instances, parse_instances
from objectaware.data.dataset import Dataset, PublishedSet
from objectaware.data.folder import ImageFolder, require_some_file
from objectaware.data.images import UnreadableImage
from objectaware.data.masks import MIN_BOX_AREA, OBJECT_MARGIN, Box, expand_box, pixel_region
from objectaware.data.truth import GroundTruth, Orientation, Turns
from objectaware.data.user_files import is_folder
from objectaware.errors import InputError


class CocoDataset:
    """Pictures with their instances; made by `load_coco`.

    Attributes:
        images: All pictures that the annotation file names, in the order of their COCO numbers, unlabelled.
        numbers: COCO's number of each picture.
        instances: The annotation file.
        places: Place of each picture in the file.
        turns: The turns that bring the annotations of the file's pictures upright, by place.
    """

    def __init__(self, instances: CocoInstances, images: ImageFolder, places: Sequence[int], turns: Turns) -> None:
        self.images = images
        self.numbers = [instances.numbers[place] for place in places]
        self.instances = instances
        self.places = places
        self.turns = turns

    def __len__(self) -> int:
        return len(self.places)

    @property
    def category_names(self) -> tuple[str, ...]:
        """Names by category index."""
        return self.instances.category_names

    def select(self, image_ids: Sequence[str]) -> CocoDataset:
        """Return some of the pictures, in the order in which they are named.

        Raises:
            KeyError: A picture is not in the data set.
        """
        place_of = dict(zip(self.images.image_ids, self.places, strict=True))
        places = [place_of[image_id] for image_id in image_ids]
        return CocoDataset(self.instances, ImageFolder(self.images.root, image_ids), places, self.turns)

    def size(self, index: int) -> tuple[int, int]:
        """Return height and width of a picture in pixels, as the annotation file gives them."""
        return self.instances.shape(self.places[index])

    def stored(self, index: int) -> Orientation:
        """Return the orientation that brings a picture itself upright.

        Raises:
            UnreadableImage: It cannot be read.
        """
        return self.turns.stored(self.places[index])

    def turn(self, index: int) -> Orientation:
        """Return the orientation that brings upright the annotations of a picture.

        Raises:
            InputError: The picture has the size that the file gives neither as it is stored nor upright.
        """
        return self.turns.of(self.places[index], self.size(index))

    def annotations(self, index: int) -> list[CocoAnnotation]:
        """Return the annotations of a picture in the order of the file, not turned, crowds included."""
        return self.instances.annotations[self.places[index]]

    def foreground_mask(self, index: int, category: int | None = None) -> NDArray[np.bool_]:
        """Return the union of all instances of a picture, or of one category, crowds included.

        Args:
            index: Index of the picture.
            category: Index of the category; by default all count.

        Returns:
            Shape (H, W) of the upright picture that was annotated, true on any object.

        Raises:
            InputError: A segmentation cannot be drawn, or see `turn`.
        """
        turn = self.turn(index)
        return turn.pixels(self.instances.union(self.places[index], turn.shape, category))

    def annotated_boxes(self, index: int, *, min_area: float) -> NDArray[np.float64]:
        """Return the boxes (n, 4) of a picture's objects as annotated, x0 y0 x1 y1 relative, crowds included.

        Args:
            index: Index of the picture.
            min_area: Objects count from more than this share of the picture on.
        """
        height, width = self.size(index)
        large = [one for one in self.annotations(index) if one.area / (width * height) > min_area]
        boxes = [_relative_box(one, height, width) for one in large]
        return np.array(boxes, dtype=np.float64).reshape(-1, 4)


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
    turns = Turns(images, field="coco", unclear="upright", shapes=instances.shape)
    return CocoDataset(instances, images, range(len(images)), turns)


class CocoTruth(GroundTruth):
    """Instances of COCO: their union, and the boxes of those that cover more than 1% of the picture."""

    has_classes = True

    def __init__(self, coco: CocoDataset) -> None:
        super().__init__(coco.images.image_ids)
        self.coco: CocoDataset = coco
        self.notice = coco.instances.notice

    def mask(self, index: int) -> NDArray[np.bool_]:
        """Return the union of the instances, (H, W)."""
        return self.coco.foreground_mask(index)

    def class_masks(self, index: int) -> dict[str, NDArray[np.bool_]]:
        """Return the union of the instances of each category, by its name."""
        masks: dict[str, NDArray[np.bool_]] = {}
        for category in sorted({annotation.category_index for annotation in self.coco.annotations(index)}):
            name, mask = self.coco.category_names[category], self.coco.foreground_mask(index, category)
            masks[name] = mask | masks[name] if name in masks else mask  # two categories may share a name
        return masks

    def boxes(self, index: int) -> NDArray[np.float64]:
        """Return the instances' boxes (n, 4)."""
        return self.coco.turn(index).boxes(self.coco.annotated_boxes(index, min_area=MIN_BOX_AREA))


@dataclass(frozen=True)
class Crop:
    """A box to cut out of a picture.

    Attributes:
        image_index: Index of the picture in `CocoDataset.images`.
        annotated_box: x0, y0, x1, y1, from 0 to 1, margin included, in the picture as it was annotated: no picture is
            opened to list the crops. `CocoDataset.turn` brings it upright.
        label: Category index of the object.
    """

    image_index: int
    annotated_box: Box
    label: int


class CroppedObjects:
    """Objects cut out of their pictures with a margin, each labelled with its category, in the order of pictures.

    They are what the paper's linear evaluation of single objects classifies. Crowds are included, as in the official
    repository's create_coco-objects.py. An object keeps its proportions, there as here: torchvision's
    `resized_crop(…, 256)` takes a single number for the short side.

    Args:
        coco: The pictures and their instances.
        min_area: Objects that cover less of the picture are left out.
        margin: Share of a box's width and height added on each side, cut at the border.

    Attributes:
        crops: What is cut out of which picture.
        files: The pictures that have objects.
        image_ids: `<picture>#<number of the crop>`.
        labels: Category index of each crop, (N,).
        class_names: Names of the categories.

    Source:
        official-implementation §2 (linear evaluation: area at least 1%, 20% margin).
    """

    def __init__(self, coco: CocoDataset, *, min_area: float = MIN_BOX_AREA, margin: float = OBJECT_MARGIN) -> None:
        self._coco = coco
        self.crops = [
            Crop(index, expand_box(_relative_box(one, height, width), margin), one.category_index)
            for index in range(len(coco))
            for height, width in [coco.size(index)]
            for one in coco.annotations(index)
            if one.area / (width * height) >= min_area
        ]
        self.files = coco.images.select(sorted({crop.image_index for crop in self.crops}))
        names = coco.images.image_ids
        self.image_ids = [f"{names[crop.image_index]}#{number}" for number, crop in enumerate(self.crops)]
        self.labels = np.array([crop.label for crop in self.crops], dtype=np.int64)
        self.class_names = coco.category_names

    def __len__(self) -> int:
        return len(self.crops)

    def read(self, index: int) -> NDArray[np.uint8]:
        """Return the pixels (h, w, 3) of one object.

        Raises:
            objectaware.data.images.UnreadableImage: The picture cannot be read, or its annotations are for one of
                another size.
        """
        crop = self.crops[index]
        image = self._coco.images.read(crop.image_index)
        try:
            [box] = self._coco.turn(crop.image_index).boxes(np.array([crop.annotated_box]))
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
        self._places = coco.places
        self._shapes = [image.shape for image in coco.instances.images]
        self._turns = replace(coco.turns, shapes=self._shapes.__getitem__)  # instead of the annotation file's
        annotated = (coco.annotated_boxes(index, min_area=min_area).tolist() for index in range(len(coco)))
        self._annotated = [
            np.array([expand_box(tuple(box), margin) for box in boxes]).reshape(-1, 4) for boxes in annotated
        ]

    def __len__(self) -> int:
        return len(self._annotated)

    def __getitem__(self, index: int) -> NDArray[np.float32]:
        """Return the boxes (n, 4), x0 y0 x1 y1 relative to the picture; n may be 0.

        Raises:
            InputError: See `CocoDataset.turn`.
        """
        place = self._places[index]
        return self._turns.of(place, self._shapes[place]).boxes(self._annotated[index]).astype(np.float32)


def _relative_box(annotation: CocoAnnotation, height: int, width: int) -> Box:
    """Turn x, y, width, height in pixels into corners relative to a picture of this height and width."""
    x, y, box_width, box_height = annotation.box
    left, right = (min(max(value / width, 0.0), 1.0) for value in (x, x + box_width))
    top, bottom = (min(max(value / height, 0.0), 1.0) for value in (y, y + box_height))
    return left, top, right, bottom


class _Annotated(Dataset):
    """Images with one file of annotations for all."""

    splits = ("train", "val")

    @property
    def annotation_hash(self) -> str:
        """Hash of the annotation file, which is parsed for that and kept."""
        return parse_instances(instances_file(self.root, self.split)).sha256


class Coco(_Annotated):
    """Whole pictures."""

    name = "coco"
    content = "{train,val}2017 and annotations/instances_{train,val}2017.json"
    masks = "union of the instances"
    has_instances = True
    true_masks = True
    true_boxes = True

    def open_images(self) -> ImageFolder:
        """List the pictures of the annotation file."""
        return load_coco(self.root, self.split).images

    def instances(self, *fields: CocoField) -> CocoDataset:
        """Open the images with their annotations."""
        whole = load_coco(self.root, self.split, *fields)
        return whole if self.config.subset is None else whole.select(self.image_ids)

    def truth_of(self, image_ids: list[str], *, needs_boxes: bool = True) -> CocoTruth:
        """Open the annotations; those without boxes need not say anything of them."""
        of_boxes: tuple[CocoField, ...] = ("box", "area") if needs_boxes else ()
        return CocoTruth(load_coco(self.root, self.split, "shape", "segmentation", *of_boxes).select(image_ids))

    def training_boxes(self, image_ids: list[str]) -> ObjectBoxes:
        """Open the boxes and let go of the annotation file, which would fill every worker's memory."""
        boxes = ObjectBoxes(load_coco(self.root, self.split, "shape", "box", "area").select(image_ids))
        forget_instances()
        return boxes


class CocoCrop(_Annotated):
    """Each object of COCO by itself, labelled with its category."""

    name = "coco-crop"
    content = "the same folder; each object cut out"
    labels = "category"
    are_files = False

    def open_images(self) -> CroppedObjects:
        """List the objects."""
        return CroppedObjects(load_coco(self.root, self.split, "shape", "category_index", "box", "area"))


COCO = PublishedSet(
    "COCO",
    "COCO",
    "annotations CC BY 4.0; pictures by their Flickr licences",
    "cocodataset.org: train2017.zip, val2017.zip, annotations_trainval2017.zip",
    {part: {"layout": Coco.name, "split": part} for part in Coco.splits},
    {"train": 118_287, "val": 5_000},
)

PublishedSet(
    "COCO-Crop",
    "COCO",
    COCO.licence,
    "derived from COCO: " + COCO.source,
    {part: {"layout": CocoCrop.name, "split": part} for part in CocoCrop.splits},
)
