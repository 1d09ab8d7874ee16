"""True masks and boxes of a data set, by index."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from objectaware.data.boxes import MIN_BOX_AREA
from objectaware.data.folder import ImageFolder
from objectaware.data.manifest import Manifest

if TYPE_CHECKING:
    from objectaware.data.coco import CocoDataset


class TrueObjects:
    """True masks and boxes of some images, by index; each published layout has one of its own.

    Attributes:
        has_masks: Whether every image has a mask; else there are boxes alone.
        has_ignored: Whether some pixels count neither as object nor as background.
        files: The files that they are read from, by folder, but for annotations that are part of the images' own hash.
        notice: What the user should know of them, as a line; empty where there is nothing to say.
        coco: The images with their numbers, in the same order, where they have annotations in COCO's format.
    """

    has_masks: bool = True
    has_ignored: bool = False
    files: Sequence[ImageFolder] = ()
    notice: str = ""
    coco: CocoDataset | None = None

    def mask(self, index: int) -> NDArray[np.bool_]:
        """Mask (H, W), true on any object."""
        raise NotImplementedError

    def ignored(self, index: int) -> NDArray[np.bool_] | None:
        """Pixels (H, W) that do not count, at the mask's size; None where all do."""
        return None

    def boxes(self, index: int) -> NDArray[np.float64]:
        """Boxes (n, 4), x0 y0 x1 y1 relative to the image; here those around the regions of more than 1% of it."""
        from objectaware.data.masks import region_boxes  # here, as it imports OpenCV

        mask = self.mask(index)
        around, areas = region_boxes(mask)
        return around[areas > MIN_BOX_AREA * mask.size]


class GroundTruth:
    """True foreground masks and boxes of a data set, by index; made by `Dataset.truth`.

    Args:
        objects: The masks and boxes.
        num_images: Number of images.
    """

    def __init__(self, objects: TrueObjects, num_images: int) -> None:
        self._objects = objects
        self._num_images = num_images

    @property
    def has_masks(self) -> bool:
        """Whether every image has a mask; else there are boxes alone."""
        return self._objects.has_masks

    @property
    def has_ignored(self) -> bool:
        """Whether some pixels count neither as object nor as background."""
        return self._objects.has_masks and self._objects.has_ignored

    @property
    def files(self) -> Sequence[ImageFolder]:
        """The files that masks and boxes are read from, by folder, but for annotations that are the images' own."""
        return self._objects.files

    @property
    def notice(self) -> str:
        """What the user should know of them, as a line; empty where there is nothing to say."""
        return self._objects.notice

    @property
    def coco(self) -> CocoDataset | None:
        """The images with their numbers, in the same order, where they have annotations in COCO's format."""
        return self._objects.coco

    def __len__(self) -> int:
        return self._num_images

    def __getitem__(self, index: int) -> NDArray[np.bool_]:
        """Mask (H, W), true on any object; at the image's size but for wsolevaluation's, which are 224 × 224."""
        assert self.has_masks, "this data set has boxes alone"
        return self._objects.mask(index)

    def ignored(self, index: int) -> NDArray[np.bool_] | None:
        """Pixels (H, W) that count neither as object nor as background, at the mask's size; None where all count."""
        return self._objects.ignored(index) if self.has_masks else None

    def boxes(self, index: int) -> NDArray[np.float64]:
        """Boxes (n, 4), x0 y0 x1 y1 relative to the image.

        The published ones, whatever their size. Of annotations in COCO's format, those of the instances of more than 1%
        of the picture, crowds included, as the official code takes them. Where there is a mask alone, they are those
        around its regions of more than 1%. Masks with ignored regions that hold objects, too, give none.
        """
        return self._objects.boxes(index)

    def content_hash(self, verify: bool = False) -> str:
        """Hash the files of masks and boxes: names, sizes and times.

        Args:
            verify: Hash the files' content instead of their times.
        """
        text = "".join(Manifest.of(folder).content_hash(verify) for folder in self.files)
        return hashlib.sha256(text.encode()).hexdigest()
