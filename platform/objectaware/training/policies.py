"""What is done to the positives before the other augmentations."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from objectaware.augment.background import BACKGROUND_THRESHOLD, cut_background, mix_background, tile
from objectaware.augment.crop import crop_mask
from objectaware.augment.object_crop import object_region
from objectaware.augment.rectangle import largest_empty_rectangles
from objectaware.data.images import Images

Region = tuple[int, int, int, int]

NUM_POLICY_DRAWS = 2
"""Uniform numbers that a policy takes a call."""


class Masks(Protocol):
    """Each image's soft mask, by index."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> NDArray[np.uint8] | None:
        """Mask in 8 bits of the whole image, (h, w) at any size; None where there is none."""
        ...


class Boxes(Protocol):
    """Each image's boxes, by index."""

    def __getitem__(self, index: int) -> NDArray[np.float32]:
        """Relative x0 y0 x1 y1, (n, 4); n may be 0."""
        ...


class Policy:
    """A change of the positives that knows where the objects are. This base changes nothing."""

    def region(self, index: int, height: int, width: int, draws: NDArray[np.float64]) -> Region:
        """Part of image `index`, (top, left, height, width), that both views are cropped from: here all of it."""
        return 0, 0, height, width

    def change_patch(
        self,
        patch: NDArray[np.uint8],
        index: int,
        crop: Region,
        height: int,
        width: int,
        draws: NDArray[np.float64],
    ) -> NDArray[np.uint8]:
        """Changes one view's pixels, cut out of image `index` of that size at `crop`, before it is resized.

        Here the patch as it is.
        """
        return patch


class PlainViews(Policy):
    """Policy `none`: the whole image, unchanged."""


class ObjectCrop(Policy):
    """Policy `object_crop`: both views from one box, drawn anew at each access (paper §2.3).

    Args:
        boxes: Each image's boxes.
    """

    def __init__(self, boxes: Boxes) -> None:
        self._boxes = boxes

    def region(self, index: int, height: int, width: int, draws: NDArray[np.float64]) -> Region:
        """One of the image's boxes, or the whole image where it has none."""
        return object_region(self._boxes[index], float(draws[0]), height, width)


class BackgroundMixup(Policy):
    """Policy `background_mixup`: each view on its own, with some probability, on another image's background.

    Donors are drawn from the whole data set as a function of seed, epoch and sample, so the same run with more
    workers mixes the same (paper §2.3, eq. 4; the official code draws donors from the batch).

    Args:
        images: The data set, for the donors' pixels.
        masks: Each image's soft mask.
        probability: p_mix, in [0, 1].
        threshold: A soft mask is foreground from here on when a background is cut out.
    """

    def __init__(
        self,
        images: Images,
        masks: Masks,
        *,
        probability: float,
        threshold: float = BACKGROUND_THRESHOLD,
    ) -> None:
        self._images = images
        self._masks = masks
        self._probability = probability
        self._rectangles = _background_rectangles(masks, threshold)
        self.donors = np.flatnonzero(self._rectangles[:, 2] > 0)

    def change_patch(
        self,
        patch: NDArray[np.uint8],
        index: int,
        crop: Region,
        height: int,
        width: int,
        draws: NDArray[np.float64],
    ) -> NDArray[np.uint8]:
        """The patch's object on a donor's background, with probability p; unchanged without a mask or donor."""
        mask = self._masks[index]
        if draws[0] >= self._probability or mask is None or not mask.any() or not len(self.donors):
            return patch
        donor = int(self.donors[int(draws[1] * len(self.donors))])
        donor_mask = self._masks[donor]
        assert donor_mask is not None
        top, left, crop_height, crop_width = crop
        y, x, rows, columns = (int(value) for value in self._rectangles[donor])
        background = tile(
            cut_background(self._images.read(donor), (y, x, rows, columns), *donor_mask.shape),
            slice(top, top + crop_height),
            slice(left, left + crop_width),
        )
        return mix_background(patch, crop_mask(mask, np.array(crop), height, width), background)


def _background_rectangles(masks: Masks, threshold: float) -> NDArray[np.int64]:
    """Largest background rectangle of each mask, (N, 4); zeros where there is none.

    Masks pass through in chunks, each size of mask on its own, so that memory stays flat.
    """
    rectangles = np.zeros((len(masks), 4), dtype=np.int64)
    for start in range(0, len(masks), 1024):
        by_size: dict[tuple[int, ...], list[tuple[int, NDArray[np.bool_]]]] = {}
        for index in range(start, min(start + 1024, len(masks))):
            mask = masks[index]
            if mask is not None:
                by_size.setdefault(mask.shape, []).append((index, mask >= threshold * 255))
        for members in by_size.values():
            indices = [index for index, _ in members]
            rectangles[indices] = largest_empty_rectangles(np.stack([mask for _, mask in members]))
    return rectangles
