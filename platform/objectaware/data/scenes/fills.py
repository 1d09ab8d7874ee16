"""What objects are filled with: their class's texture at the object's own scale, light from one side, and a rim."""

from __future__ import annotations

from collections.abc import Callable

import cv2
import numpy as np
from numpy.typing import NDArray

from objectaware.data.scenes.textures import smooth_noise

Pattern = NDArray[np.float32]


def _turned(x: Pattern, y: Pattern, generator: np.random.Generator) -> tuple[Pattern, Pattern]:
    """Coordinates turned by any angle, each with a phase of its own."""
    angle, *phases = generator.uniform(0, 2 * np.pi, 3)
    cosine, sine = np.float32(np.cos(angle)), np.float32(np.sin(angle))
    return cosine * x + sine * y + np.float32(phases[0]), cosine * y - sine * x + np.float32(phases[1])


def _wave(coordinate: Pattern, frequency: float, sharpness: float = 1.0) -> Pattern:
    """A clipped sine in [0, 1]."""
    return np.clip(0.5 + np.float32(sharpness) * np.sin(np.float32(frequency) * coordinate), 0, 1)


def _bands(x: Pattern, y: Pattern, generator: np.random.Generator) -> Pattern:
    return _wave(_turned(x, y, generator)[0], generator.uniform(6, 10))


def _spots(x: Pattern, y: Pattern, generator: np.random.Generator) -> Pattern:
    centres = generator.uniform(-1, 1, (9, 2)).astype(np.float32)
    radius = generator.uniform(0.12, 0.3, 9).astype(np.float32)
    squared = (x - centres[:, :1, None]) ** 2 + (y - centres[:, 1:, None]) ** 2
    strongest: Pattern = np.max(radius[:, None, None] ** 2 - squared, axis=0)
    return np.clip(0.5 + 12 * strongest, 0, 1)


def _circles(x: Pattern, y: Pattern, generator: np.random.Generator) -> Pattern:
    centre = generator.uniform(-0.3, 0.3, 2).astype(np.float32)
    radius = np.hypot(x - centre[0], y - centre[1]) + np.float32(generator.uniform(0, 1))
    return _wave(radius, generator.uniform(8, 13))


def _squares(x: Pattern, y: Pattern, generator: np.random.Generator) -> Pattern:
    u, v = _turned(x, y, generator)
    frequency = np.float32(generator.uniform(5, 8))
    return np.clip(0.5 + 2 * np.sin(frequency * u) * np.sin(frequency * v), 0, 1)


def _marble(x: Pattern, y: Pattern, generator: np.random.Generator) -> Pattern:
    # Cells of the picture and not of the object: noise has no scale that would have to follow it.
    return np.clip(0.5 + 0.9 * smooth_noise(generator, int(generator.integers(6, 12)), len(x)), 0, 1)


def _rays(x: Pattern, y: Pattern, generator: np.random.Generator) -> Pattern:
    centre = generator.uniform(-0.2, 0.2, 2).astype(np.float32)
    angle = np.arctan2(y - centre[1], x - centre[0]) + np.float32(generator.uniform(0, 2 * np.pi))
    return _wave(angle, int(generator.integers(4, 8)), 1.5)


def _shade(x: Pattern, y: Pattern, generator: np.random.Generator) -> Pattern:
    angle = generator.uniform(0, 2 * np.pi)
    along = np.float32(np.cos(angle)) * x + np.float32(np.sin(angle)) * y
    return np.clip(0.5 + np.float32(generator.uniform(0.4, 0.6)) * along, 0, 1)


def _ripples(x: Pattern, y: Pattern, generator: np.random.Generator) -> Pattern:
    u, v = _turned(x, y, generator)
    return _wave(u + np.float32(0.18) * np.sin(np.float32(generator.uniform(5, 8)) * v), generator.uniform(7, 11))


def _lattice(x: Pattern, y: Pattern, generator: np.random.Generator) -> Pattern:
    u, v = _turned(x, y, generator)
    frequency = np.float32(generator.uniform(5, 8))
    return np.clip(2.2 * np.maximum(np.abs(np.sin(frequency * u)), np.abs(np.sin(frequency * v))) - 1.4, 0, 1)


FILLS: tuple[Callable[[Pattern, Pattern, np.random.Generator], Pattern], ...] = (
    _bands,
    _spots,
    _circles,
    _squares,
    _marble,
    _rays,
    _shade,
    _ripples,
    _lattice,
)
"""Texture of each class: from coordinates that run from -1 to 1 over the object's box to a pattern in [0, 1]."""


def draw_fill(
    class_index: int,
    coverage: NDArray[np.float32],
    box: NDArray[np.float64],
    palette: NDArray[np.float64],
    generator: np.random.Generator,
) -> NDArray[np.float32]:
    """Draws the colours of an object's surface.

    Args:
        class_index: 0 to 8, an index of `FILLS`.
        coverage: Coverage of every pixel by the object, shape (H, H), in [0, 1].
        box: The object's bounding box x0 y0 x1 y1 in sides of the picture.
        palette: Two RGB colours, shape (2, 3), 0 to 255.
        generator: Source of every draw.

    Returns:
        Shape (H, H, 3), 0 to 255; defined on the whole picture, meant to be seen where the object covers it.
    """
    size = len(coverage)
    axis = (np.arange(size) + 0.5) / size
    x = ((2 * axis - box[0] - box[2]) / (box[2] - box[0])).astype(np.float32)[None, :]
    y = ((2 * axis - box[1] - box[3]) / (box[3] - box[1])).astype(np.float32)[:, None]
    x, y = np.broadcast_to(x, (size, size)), np.broadcast_to(y, (size, size))
    pattern = FILLS[class_index](x, y, generator)
    first, second = palette.astype(np.float32)
    angle, strength = generator.uniform(0, 2 * np.pi), generator.uniform(0.08, 0.22)
    light = 1 + np.float32(strength * np.cos(angle)) * x + np.float32(strength * np.sin(angle)) * y
    rim_width = max(3, round(0.05 * size))
    near_edge = np.clip(2 * (1 - cv2.blur(coverage, (rim_width, rim_width))), 0, 1)
    light = light * (1 + np.float32(generator.choice([-1, 1]) * generator.uniform(0.1, 0.35)) * near_edge)
    return np.clip((first + pattern[:, :, None] * (second - first)) * light[:, :, None], 0, 255)
