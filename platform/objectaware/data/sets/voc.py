"""PASCAL VOC 2012 in its published layout.

`JPEGImages/*.jpg`, `Annotations/*.xml`, `ImageSets/{Main,Segmentation}/<part>.txt` and `SegmentationClass/*.png`, in
`VOCdevkit/VOC2012`. Layout as in reference/official-implementation.md §5.
"""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import numpy as np
from numpy.typing import NDArray

from objectaware.data.folder import ImageFolder
from objectaware.data.layouts import Layout, Place, PublishedSet, register_layout, register_published
from objectaware.data.truth import TrueObjects, Turns, read_pixels
from objectaware.data.user_files import find_base, read_lines
from objectaware.errors import InputError

_SEGMENTATION = "segmentation-"

_FIELD = "voc"
_REMEDY = "Give VOCdevkit/VOC2012, or a folder above it."
_BORDER = 255


def load_voc(root: str | Path, split: str) -> ImageFolder:
    """Open a part of VOC 2012; a picture shows objects of several classes, so that there are no labels.

    Args:
        root: The folder `VOC2012`, `VOCdevkit` or the one above it.
        split: `train`, `val` or `trainval` of `ImageSets/Main`, with boxes (5,717, 5,823 and 11,540 images); or
            `segmentation-train` and so on, of `ImageSets/Segmentation`, with masks besides (1,464, 1,449 and 2,913).

    Raises:
        InputError: A file is missing.
    """
    base = _base(root)
    kind = "Segmentation" if split.startswith(_SEGMENTATION) else "Main"
    path = base / "ImageSets" / kind / f"{split.removeprefix(_SEGMENTATION)}.txt"
    return ImageFolder(base / "JPEGImages", [f"{line.split()[0]}.jpg" for line in _read(path)])


class VocObjects(TrueObjects):
    """True boxes of images of VOC, by index, and masks where the part has them.

    Boxes are all that the annotations give, of any size, the difficult and truncated ones included: a found object
    is not wrong for being hard. An object's parts (head, hand, foot) are not counted. In the masks, the border between
    objects and pixels that are too hard to classify (255) are to be ignored.

    Args:
        root: As for `load_voc`.
        split: The part.
        image_ids: Names of the images in `JPEGImages`.
    """

    def __init__(self, root: str | Path, split: str, image_ids: list[str]) -> None:
        base = _base(root)
        names = [image_id.removesuffix(".jpg") for image_id in image_ids]
        # They were annotated with tools that showed pictures as they are stored.
        self._turns = Turns(ImageFolder(base / "JPEGImages", image_ids), field=_FIELD, unclear="stored")
        self._annotations = ImageFolder(base / "Annotations", [f"{name}.xml" for name in names])
        self._masks = ImageFolder(base / "SegmentationClass", [f"{name}.png" for name in names])
        self.has_masks = self.has_ignored = split.startswith(_SEGMENTATION)
        self.files = [self._annotations, self._masks] if self.has_masks else [self._annotations]

    def mask(self, index: int) -> NDArray[np.bool_]:
        """Return the mask (H, W) of all objects, their borders left out."""
        classes = self._classes(index)
        return np.asarray((classes != 0) & (classes != _BORDER))

    def ignored(self, index: int) -> NDArray[np.bool_]:
        """Return the borders, (H, W)."""
        return np.asarray(self._classes(index) == _BORDER)

    def boxes(self, index: int) -> NDArray[np.float64]:
        """Return the published boxes (n, 4), x0 y0 x1 y1 relative to the image."""
        path = self._annotations.path(index)
        try:
            annotation = ElementTree.parse(path).getroot()
            width, height = (int(float(annotation.findtext(f"size/{name}", ""))) for name in ("width", "height"))
            if width < 1 or height < 1:
                raise ValueError(f"the size is {width} x {height}")
            boxes = _read_boxes(annotation, width, height)
        except FileNotFoundError as error:
            raise InputError(_FIELD, path, "does not exist", _REMEDY) from error
        except (ElementTree.ParseError, ValueError, OverflowError) as error:
            problem = f"is not an annotation of VOC ({error})"
            raise InputError(_FIELD, path, problem, "Extract it from the archive again.") from error
        return self._turns.of(index, (height, width)).boxes(boxes)

    def _classes(self, index: int) -> NDArray[np.uint8]:
        assert self.has_masks
        classes = read_pixels(self._masks.path(index), None, field=_FIELD, remedy=_REMEDY)
        if classes.ndim != 2:
            problem = "shows colours, where the published file has numbers of classes in a palette"
            raise InputError(_FIELD, self._masks.path(index), problem, "Extract it from the archive again.")
        return self._turns.of(index, classes.shape).pixels(classes)


def _base(root: str | Path) -> Path:
    folders = ["VOC2012", "VOCdevkit/VOC2012"]
    return find_base(root, folders, ["JPEGImages", "Annotations", "ImageSets"], field=_FIELD, remedy=_REMEDY)


def _read(path: Path) -> list[str]:
    return read_lines(path, field=_FIELD, remedy=_REMEDY)


def _read_boxes(annotation: ElementTree.Element, width: int, height: int) -> NDArray[np.float64]:
    """Turn first and last pixels, counted from 1, into relative edges."""
    corners = [
        [float(one.findtext(f"bndbox/{name}", "")) for name in ("xmin", "ymin", "xmax", "ymax")]
        for one in annotation.findall("object")
    ]
    edges = np.array(corners, dtype=np.float64).reshape(-1, 4) - np.array([1.0, 1.0, 0.0, 0.0])
    return (edges / np.array([width, height] * 2)).clip(0, 1)


_PARTS = ("train", "val", "trainval")


@register_layout
class Voc(Layout):
    """PASCAL VOC 2012."""

    name = "voc"
    content = "JPEGImages, Annotations, ImageSets and SegmentationClass of VOC 2012"
    masks = "boxes; of the parts segmentation-… masks, too"
    splits = (*_PARTS, *(f"{_SEGMENTATION}{part}" for part in _PARTS))

    def open(self, place: Place) -> ImageFolder:
        """List the images of a part."""
        return load_voc(place.root, place.split)

    def truth(self, place: Place, image_ids: list[str], *, needs_boxes: bool) -> VocObjects:
        """Open the annotations, and the masks where the part has them."""
        return VocObjects(place.root, place.split, image_ids)


register_published(
    PublishedSet(
        "VOC2012",
        "VOCdevkit",
        "pictures by their Flickr licences",
        "host.robots.ox.ac.uk/pascal/VOC/voc2012: VOCtrainval_11-May-2012.tar (torchvision's VOCDetection downloads "
        "it)",
        {split: {"layout": Voc.name, "split": split} for split in ("val", "segmentation-val")},
        {"val": 5_823, "segmentation-val": 1_449},
        measured=("segmentation-val",),
    )
)
