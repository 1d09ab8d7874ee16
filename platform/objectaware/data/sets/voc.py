"""PASCAL VOC 2012 in its published layout.

`JPEGImages/*.jpg`, `Annotations/*.xml`, `ImageSets/{Main,Segmentation}/<part>.txt` and `SegmentationClass/*.png`, in
`VOCdevkit/VOC2012`. Layout as in reference/official-implementation.md §5.
"""

from __future__ import annotations

from xml.etree import ElementTree

import numpy as np
from numpy.typing import NDArray

from objectaware.data.dataset import Dataset, PublishedSet
from objectaware.data.folder import ImageFolder
from objectaware.data.truth import GroundTruth, Turns, read_pixels
from objectaware.data.user_files import Release

_SEGMENTATION = "segmentation-"
_PARTS = ("train", "val", "trainval")
_BORDER = 255
_CLASSES = (
    "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow", "diningtable", "dog",
    "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor",
)  # fmt: skip
"""Names of the numbers in the masks, from 1."""
_RELEASE = Release(
    "voc",
    ("VOC2012", "VOCdevkit/VOC2012"),
    ("JPEGImages", "Annotations", "ImageSets"),
    "Give VOCdevkit/VOC2012, or a folder above it.",
)


class VocTruth(GroundTruth):
    """True boxes of images of VOC, by index, and masks where the part has them.

    Boxes are all that the annotations give, of any size, the difficult and truncated ones included: a found object
    is not wrong for being hard. An object's parts (head, hand, foot) are not counted. In the masks, the border between
    objects and pixels that are too hard to classify (255) are to be ignored.

    Args:
        data: The part.
        image_ids: Names of the images in `JPEGImages`.
    """

    def __init__(self, data: Dataset, image_ids: list[str]) -> None:
        base = _RELEASE.base(data.root)
        names = [image_id.removesuffix(".jpg") for image_id in image_ids]
        self._turns = Turns(ImageFolder(base / "JPEGImages", image_ids), field=_RELEASE.field)
        self._annotations = ImageFolder(base / "Annotations", [f"{name}.xml" for name in names])
        self._masks = ImageFolder(base / "SegmentationClass", [f"{name}.png" for name in names])
        self.has_masks = self.has_ignored = self.has_classes = data.split.startswith(_SEGMENTATION)
        super().__init__(image_ids, [self._annotations, self._masks] if self.has_masks else [self._annotations])

    def mask(self, index: int) -> NDArray[np.bool_]:
        """Return the mask (H, W) of all objects, their borders left out."""
        classes = self._classes(index)
        return np.asarray((classes != 0) & (classes != _BORDER))

    def class_masks(self, index: int) -> dict[str, NDArray[np.bool_]]:
        """Return the mask (H, W) of each class by its name, the objects' borders left out."""
        classes = self._classes(index)
        shown = sorted(set(np.unique(classes).tolist()) - {0, _BORDER})
        if shown and shown[-1] > len(_CLASSES):
            problem = f"has pixels of class {shown[-1]}, of {len(_CLASSES)} classes"
            raise _RELEASE.malformed(self._masks.path(index), problem)
        return {_CLASSES[number - 1]: np.asarray(classes == number) for number in shown}

    def ignored(self, index: int) -> NDArray[np.bool_] | None:
        """Return the borders, (H, W)."""
        return np.asarray(self._classes(index) == _BORDER) if self.has_masks else None

    def boxes(self, index: int) -> NDArray[np.float64]:
        """Return the published boxes (n, 4), x0 y0 x1 y1 relative to the image."""
        path = self._annotations.path(index)
        with _RELEASE.reading(path, "is not an annotation of VOC", ElementTree.ParseError, ValueError, OverflowError):
            annotation = ElementTree.parse(path).getroot()
            width, height = (int(float(annotation.findtext(f"size/{name}", ""))) for name in ("width", "height"))
            if width < 1 or height < 1:
                raise ValueError(f"the size is {width} x {height}")
            boxes = _read_boxes(annotation, width, height)
        return self._turns.of(index, (height, width)).boxes(boxes)

    def _classes(self, index: int) -> NDArray[np.uint8]:
        assert self.has_masks
        path = self._masks.path(index)
        classes = read_pixels(path, None, _RELEASE)
        if classes.ndim != 2:
            problem = "shows colours, where the published file has numbers of classes in a palette"
            raise _RELEASE.malformed(path, problem)
        return self._turns.upright(index, classes)


def _read_boxes(annotation: ElementTree.Element, width: int, height: int) -> NDArray[np.float64]:
    """Turn first and last pixels, counted from 1, into relative edges."""
    corners = [
        [float(one.findtext(f"bndbox/{name}", "")) for name in ("xmin", "ymin", "xmax", "ymax")]
        for one in annotation.findall("object")
    ]
    edges = np.array(corners, dtype=np.float64).reshape(-1, 4) - np.array([1.0, 1.0, 0.0, 0.0])
    return (edges / np.array([width, height] * 2)).clip(0, 1)


class Voc(Dataset):
    """PASCAL VOC 2012, without labels: a picture shows objects of several classes.

    `train`, `val` or `trainval` are of `ImageSets/Main`, with boxes (5,717, 5,823 and 11,540 images); `segmentation-…`
    are of `ImageSets/Segmentation`, with masks besides (1,464, 1,449 and 2,913).
    """

    name = "voc"
    content = "JPEGImages, Annotations, ImageSets and SegmentationClass of VOC 2012"
    masks = "boxes; of the parts segmentation-… masks, too"
    splits = (*_PARTS, *(f"{_SEGMENTATION}{part}" for part in _PARTS))

    def open_images(self) -> ImageFolder:
        """List the images of a part."""
        base = _RELEASE.base(self.root)
        kind = "Segmentation" if self.split.startswith(_SEGMENTATION) else "Main"
        path = base / "ImageSets" / kind / f"{self.split.removeprefix(_SEGMENTATION)}.txt"
        return ImageFolder(base / "JPEGImages", [f"{line.split()[0]}.jpg" for line in _RELEASE.lines(path)])

    def truth_of(self, image_ids: list[str], *, needs_boxes: bool = True) -> VocTruth:
        """Open the annotations, and the masks where the part has them."""
        return VocTruth(self, image_ids)


PublishedSet(
    "VOC2012",
    "VOCdevkit",
    "pictures by their Flickr licences",
    "host.robots.ox.ac.uk/pascal/VOC/voc2012: VOCtrainval_11-May-2012.tar (torchvision's VOCDetection downloads it)",
    {split: {"layout": Voc.name, "split": split} for split in ("val", "segmentation-val")},
    {"val": 5_823, "segmentation-val": 1_449},
    measured=("segmentation-val",),
)
