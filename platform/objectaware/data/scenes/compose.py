"""Puts a picture together: places its objects, paints them and lays them over a background."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from objectaware.data.scenes.colours import draw_muted_palette, draw_palette
from objectaware.data.scenes.fills import draw_fill
from objectaware.data.scenes.shapes import Contours, draw_outline, rasterise
from objectaware.data.scenes.textures import draw_background

AREA_RANGE = (0.10, 0.40)
PART_AREA_RANGE = (0.04, 0.16)
MAX_OVERLAP = 0.10
# Photographs cut objects off, too. Were every object whole, large ones would all lie in the middle of the
# picture, and a fixed box there would find them: mean IoU 0.44 instead of 0.31.
MIN_VISIBLE_PART = 0.75
# A mask of whole pixels misses the drawn area by a few of them; drawn areas keep this far inside their range.
_AREA_TOLERANCE = 0.003
_MAX_SCALINGS = 10
# Every picture keeps a strip of background beside its object, for the variant that tiles it.
_MAX_EXTENT = 0.9


@dataclass(frozen=True)
class ObjectLayer:
    """One object, ready to be laid over any background.

    Attributes:
        colours: Surface, shape (H, H, 3), 0 to 255.
        coverage: Coverage of every pixel, shape (H, H), in [0, 1].
        palette: The two colours it was painted with, shape (2, 3), 0 to 255.
    """

    colours: NDArray[np.float32]
    coverage: NDArray[np.float32]
    palette: NDArray[np.float64]


@dataclass(frozen=True)
class _PlacedOutline:
    contours: Contours
    coverage: NDArray[np.float32]

    @property
    def box(self) -> NDArray[np.float64]:
        return np.concatenate([self.contours[0].min(axis=0), self.contours[0].max(axis=0)])


def _scale_to_area(
    outline: Contours, centre: NDArray[np.float64], fraction: float, image_size: int
) -> _PlacedOutline | None:
    """Scales an outline of area 1 until its part in the picture covers a fraction; None if that fails."""
    scale = np.sqrt(fraction)
    for _ in range(_MAX_SCALINGS):
        contours = [scale * contour + centre for contour in outline]
        coverage = rasterise(contours, image_size)
        mask = coverage > 0.5
        measured = float(mask.mean())
        if measured < MIN_VISIBLE_PART * scale**2:
            return None
        if abs(measured - fraction) <= _AREA_TOLERANCE:
            extent = min(mask.any(axis=0).mean(), mask.any(axis=1).mean())
            return _PlacedOutline(contours, coverage) if extent <= _MAX_EXTENT else None
        scale *= np.sqrt(fraction / measured)
    return None


def _place_outline(
    class_index: int, fraction: float, image_size: int, generator: np.random.Generator
) -> _PlacedOutline:
    """Draws an outline that covers a fraction of the picture, its centre uniform over where it fits."""
    while True:
        outline = draw_outline(class_index, generator)
        placed = _scale_to_area(outline, generator.uniform(0, 1, 2), fraction, image_size)
        if placed is not None:
            return placed


def visible_masks(coverages: Sequence[NDArray[np.float32]]) -> NDArray[np.bool_]:
    """Masks of objects laid over each other, the last on top.

    Args:
        coverages: Coverage of every pixel by each object, each of shape (H, H), in [0, 1].

    Returns:
        Shape (num_objects, H, H): the pixels of which more than half show the object. They do not overlap.
    """
    masks = np.zeros((len(coverages), *coverages[0].shape), bool)
    unobstructed = np.ones_like(coverages[0])
    for number in reversed(range(len(coverages))):
        masks[number] = coverages[number] * unobstructed > 0.5
        unobstructed = unobstructed * (1 - coverages[number])
    return masks


def _fits_together(coverages: Sequence[NDArray[np.float32]]) -> bool:
    """Whether several objects overlap little and show enough, but not too much, of each and of all."""
    whole = np.stack(coverages) > 0.5
    for first in range(len(whole)):
        for second in range(first):
            overlap = (whole[first] & whole[second]).sum()
            if overlap >= MAX_OVERLAP * min(whole[first].sum(), whole[second].sum()):
                return False
    fractions = visible_masks(coverages).mean(axis=(1, 2))
    in_range = (fractions >= PART_AREA_RANGE[0]) & (fractions <= PART_AREA_RANGE[1])
    return bool(in_range.all() and AREA_RANGE[0] <= fractions.sum() <= AREA_RANGE[1])


def _place_outlines(classes: Sequence[int], image_size: int, generator: np.random.Generator) -> list[_PlacedOutline]:
    if len(classes) == 1:
        low, high = AREA_RANGE[0] + _AREA_TOLERANCE, AREA_RANGE[1] - _AREA_TOLERANCE
        return [_place_outline(classes[0], generator.uniform(low, high), image_size, generator)]
    low, high = PART_AREA_RANGE[0] + _AREA_TOLERANCE, PART_AREA_RANGE[1] - _AREA_TOLERANCE
    while True:
        fractions = generator.uniform(low, high, len(classes))
        if not AREA_RANGE[0] <= fractions.sum() <= AREA_RANGE[1]:
            continue
        placed = [
            _place_outline(class_index, fraction, image_size, generator)
            for class_index, fraction in zip(classes, fractions, strict=True)
        ]
        if _fits_together([outline.coverage for outline in placed]):
            return placed


def draw_objects(classes: Sequence[int], image_size: int, generator: np.random.Generator) -> list[ObjectLayer]:
    """Draws a picture's objects: one covers 10 to 40% of it, of several each 4 to 16% and all 10 to 40%.

    An object's centre is uniform over the positions where at least three quarters of it lie in the picture.

    Args:
        classes: Classes of the objects, 0 to 8, the lowest first.
        image_size: Side of the picture in pixels.
        generator: Source of every draw.

    Returns:
        One layer an object, in the same order.
    """
    layers = []
    for class_index, outline in zip(classes, _place_outlines(classes, image_size, generator), strict=True):
        palette = draw_palette(generator)
        colours = draw_fill(class_index, outline.coverage, outline.box, palette, generator)
        layers.append(ObjectLayer(colours, outline.coverage, palette))
    return layers


def draw_backdrop(
    family: int, layers: Sequence[ObjectLayer], image_size: int, generator: np.random.Generator
) -> NDArray[np.float32]:
    """Draws a background of a family in colours on which the objects are visible.

    Args:
        family: 0 to 8, an index of `textures.FAMILY_NAMES`.
        layers: The objects that will lie on it.
        image_size: Side of the picture in pixels.
        generator: Source of every draw.

    Returns:
        Shape (image_size, image_size, 3), 0 to 255.
    """
    palettes = np.stack([layer.palette for layer in layers])  # (objects, 2, 3)
    # A background between an object's two colours would have the object's colour as a whole.
    avoid = np.concatenate([palettes, palettes.mean(axis=1, keepdims=True)], axis=1).reshape(-1, 3)
    palette = draw_muted_palette(generator, avoid)
    return draw_background(family, palette, image_size, generator)


def composite(background: NDArray[np.float32], layers: Sequence[ObjectLayer]) -> NDArray[np.uint8]:
    """Lays objects over a background, the last on top, with antialiased edges.

    Args:
        background: Shape (H, H, 3), 0 to 255.
        layers: The objects.

    Returns:
        The picture, shape (H, H, 3).
    """
    picture = background
    for layer in layers:
        picture = picture + layer.coverage[:, :, None] * (layer.colours - picture)
    return np.round(picture).astype(np.uint8)
