"""True masks and boxes of a data set, by its layout."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path, PurePosixPath

import numpy as np
from numpy.typing import NDArray

from objectaware.data import flowers102, wsolevaluation
from objectaware.data.annotations import TrueObjects
from objectaware.data.backgrounds_challenge import (
    foreground_folder,
    foreground_turns,
    has_foreground_masks,
    load_foreground_mask,
)
from objectaware.data.boxes import MIN_BOX_AREA
from objectaware.data.coco import CocoDataset, load_coco
from objectaware.data.coco_json import CocoField
from objectaware.data.cub import CubObjects
from objectaware.data.flowers102 import FlowersObjects
from objectaware.data.folder import ImageFolder
from objectaware.data.layouts import LAYOUTS, layout_named
from objectaware.data.shards import PackedImages
from objectaware.data.voc import VocObjects
from objectaware.data.wsolevaluation import wsolevaluation_objects
from objectaware.errors import InputError


class GroundTruth:
    """True foreground masks and boxes of a data set, by index.

    Args:
        root: The folder, or the address of a pack.
        layout: One of those in `data.layouts` that have masks.
        split: One of the layout's splits; empty or None for `shards`.
        image_ids: The data set's images, or some of them, in order.
        metadata: Folder of wsolevaluation's metadata, for its layout.
        needs_boxes: Whether boxes will be asked for; else what COCO says of them need not be there.

    Raises:
        InputError: The layout has neither masks nor boxes, or its files are missing or malformed.
    """

    def __init__(
        self,
        root: str | Path,
        layout: str,
        split: str | None,
        image_ids: list[str],
        *,
        metadata: str | Path | None = None,
        needs_boxes: bool = True,
    ) -> None:
        self._num_images = len(image_ids)
        if layout == "coco":
            self._objects: TrueObjects = _open_coco(root, split or "", image_ids, needs_boxes=needs_boxes)
        else:
            self._objects = _open(root, layout, split or "", image_ids, metadata)

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
        """The images with their numbers, in the same order, where the layout is COCO's."""
        return self._objects.coco if isinstance(self._objects, CocoObjects) else None

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

        The published ones, whatever their size. COCO's are those of the instances of more than 1% of the picture,
        crowds included, as the official code takes them. Where there is a mask alone, they are those around its
        regions of more than 1%. OpenImages has none: its ignored regions hold objects, too.
        """
        return self._objects.boxes(index)


def has_truth(
    root: str | Path, layout: str, split: str | None, *, variant: str | None = None, metadata: str | Path | None = None
) -> bool:
    """Tells whether a data set has true masks or boxes of whole pictures, and they were downloaded.

    Variants of the Backgrounds Challenge other than `original` have pictures of other names, cut along their masks.
    """
    if layout == "backgrounds-challenge":
        return variant in (None, "", "original") and has_foreground_masks(root, split or "")
    if layout == "flowers102":
        return flowers102.has_masks(root)
    if layout == "wsolevaluation":
        assert metadata is not None
        return wsolevaluation.has_objects(metadata, split or "")
    if layout == "shards":
        return PackedImages.open(str(root)).has_masks
    return bool(layout_named(layout).masks)


def _open_coco(root: str | Path, split: str, image_ids: list[str], *, needs_boxes: bool) -> CocoObjects:
    of_boxes: tuple[CocoField, ...] = ("box", "area") if needs_boxes else ()
    return CocoObjects(load_coco(root, split, "shape", "segmentation", *of_boxes).select(image_ids))


def _open(root: str | Path, layout: str, split: str, image_ids: list[str], metadata: str | Path | None) -> TrueObjects:
    if layout == "backgrounds-challenge":
        return ChallengeObjects(root, split, image_ids)
    if layout == "cub":
        return CubObjects(root, image_ids)
    if layout == "flowers102":
        return FlowersObjects(root, image_ids)
    if layout == "voc":
        return VocObjects(root, split, image_ids)
    if layout == "wsolevaluation":
        assert metadata is not None
        return wsolevaluation_objects(root, metadata, split, image_ids)
    if layout == "shards":
        return PackedObjects(str(root), image_ids)
    remedy = f"Use one of {', '.join(layout.name for layout in LAYOUTS if layout.masks)}."
    raise InputError("layout", layout, "has neither true masks nor true boxes", remedy)


class CocoObjects(TrueObjects):
    """Instances of COCO: their union, and the boxes of those that cover more than 1% of the picture.

    Attributes:
        coco: The images.
    """

    def __init__(self, coco: CocoDataset) -> None:
        self.coco = coco
        self.notice = coco.notice

    def mask(self, index: int) -> NDArray[np.bool_]:
        """Union of the instances, (H, W)."""
        return self.coco.foreground_mask(index)

    def boxes(self, index: int) -> NDArray[np.float64]:
        """The instances' boxes (n, 4)."""
        return self.coco.turn(index).boxes(self.coco.annotated_boxes(index, min_area=MIN_BOX_AREA))


class ChallengeObjects(TrueObjects):
    """Foregrounds of the Backgrounds Challenge, `fg_mask`."""

    def __init__(self, root: str | Path, split: str, image_ids: list[str]) -> None:
        self._root = root
        self._split = split
        self._image_ids = image_ids
        names = [str(PurePosixPath(name).with_suffix(".npy")) for name in image_ids]
        self.files = [ImageFolder(foreground_folder(root, split), names)]
        self._turns = foreground_turns(root, split, image_ids)

    def mask(self, index: int) -> NDArray[np.bool_]:
        """The object's pixels, (H, W), upright."""
        mask = load_foreground_mask(self._root, self._split, self._image_ids[index])
        return self._turns.of(index, mask.shape).pixels(mask)


class PackedObjects(TrueObjects):
    """Masks and boxes that were packed with their images."""

    def __init__(self, address: str, image_ids: list[str]) -> None:
        self._images = PackedImages.open(address)
        if not self._images.has_masks:
            remedy = "Pack a data set that has them."
            raise InputError("root", address, "is a pack without true masks", remedy)
        place = {image_id: index for index, image_id in enumerate(self._images.image_ids)}
        self._places = [place[image_id] for image_id in image_ids]

    def mask(self, index: int) -> NDArray[np.bool_]:
        """Mask at the packed image's size, (H, W)."""
        return self._images.mask(self._places[index])

    def boxes(self, index: int) -> NDArray[np.float64]:
        """The packed boxes (n, 4)."""
        return self._images.boxes(self._places[index])
