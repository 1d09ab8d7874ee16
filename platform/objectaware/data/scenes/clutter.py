"""The clutter of `scenes`: fragments and lines in the background that belong to no object.

A fragment is cut out of another family than the background's, and lit like an object. So neither an edge nor a change
of texture says that there is an object.
"""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from objectaware.data.scenes.outlines import draw_fragment_outlines, fill_outline, shrink
from objectaware.data.scenes.surfaces import draw_light, draw_palettes, paint, standardise
from objectaware.data.scenes.textures import FAMILIES

_NUM_FRAGMENTS = (4, 7)
_FRAGMENT_AREA = (0.012, 0.06)
_NUM_LINES = (2, 5)
_LINE_WIDTH = (0.012, 0.03)
_LINE_REACH = (0.15, 0.5)
_SUPERSAMPLING = 2


def add_clutter(
    background: NDArray[np.float32], family: int, tone: NDArray[np.float64], generator: np.random.Generator
) -> NDArray[np.float32]:
    """Lay lines and fragments of another family over a background.

    Args:
        background: Shape (3, H, H), around 0 to 255.
        family: Its family, 0 to 8.
        tone: The tone of the picture, shape (3,).
        generator: Source of every draw.

    Returns:
        A new background of the same shape.
    """
    size = background.shape[1]
    outlines = [*_draw_lines(generator), *_draw_fragments(generator)]
    canvas = np.zeros((size * _SUPERSAMPLING,) * 2, np.uint8)
    for place, outline in enumerate(outlines, start=1):
        fill_outline(canvas, [outline], place)
    # A pixel at an edge takes its number from beside it where its own corner is free.
    dilated = cv2.dilate(canvas[::_SUPERSAMPLING, ::_SUPERSAMPLING], np.ones((3, 3), np.uint8))
    number = np.maximum(dilated, 1).astype(np.intp) - 1
    coverage = shrink(cv2.threshold(canvas, 0, 255, cv2.THRESH_BINARY)[1].astype(np.uint8, copy=False), size)
    other = (family + int(generator.integers(1, len(FAMILIES)))) % len(FAMILIES)
    pattern = standardise(FAMILIES[other](generator, size))
    # Every second one shows it turned by a right angle.
    pattern = np.where(number % 2 == 0, pattern, pattern.T)
    palettes = draw_palettes(tone, len(outlines), generator)
    boxes = np.array([[*outline.min(axis=0), *outline.max(axis=0)] for outline in outlines])
    colours = paint(pattern, palettes, number) * draw_light(coverage, boxes, generator, number)
    return background + coverage * (colours - background)


def _draw_lines(generator: np.random.Generator) -> list[NDArray[np.float64]]:
    """Draw straight bars across a part of the picture, as polygons (4, 2) in sides of the picture."""
    count = int(generator.integers(*_NUM_LINES))
    middle, angle = generator.uniform(0, 1, (count, 2)), generator.uniform(0, np.pi, count)
    along = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    reach = generator.uniform(*_LINE_REACH, (count, 1)) * along
    half_width = generator.uniform(*_LINE_WIDTH, (count, 1)) / 2 * along[:, ::-1] * (-1, 1)
    corners = [reach + half_width, reach - half_width, -reach - half_width, -reach + half_width]
    return list(middle[:, None] + np.stack(corners, axis=1))


def _draw_fragments(generator: np.random.Generator) -> list[NDArray[np.float64]]:
    """Draw fragments anywhere in the picture, as polygons (n, 2) in sides of the picture."""
    count = int(generator.integers(*_NUM_FRAGMENTS))
    scales, middles = np.sqrt(generator.uniform(*_FRAGMENT_AREA, count)), generator.uniform(0, 1, (count, 2))
    outlines = draw_fragment_outlines(count, generator)
    return [scale * outline + middle for scale, outline, middle in zip(scales, outlines, middles, strict=True)]
