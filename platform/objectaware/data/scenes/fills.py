"""What an object is filled with: a texture at the object's own scale, light from one side, and a rim."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from objectaware.data.scenes.textures import smooth_noise

FILL_NAMES = ("gradient", "stripes", "spots", "noise")


def _fill_pattern(
    fill: str, x: NDArray[np.float32], y: NDArray[np.float32], generator: np.random.Generator
) -> NDArray[np.float32]:
    """A pattern in [0, 1] on coordinates that run from -1 to 1 over the object's bounding box."""
    angle = generator.uniform(0, 2 * np.pi)
    along = np.float32(np.cos(angle)) * x + np.float32(np.sin(angle)) * y
    if fill == "gradient":
        return np.clip(0.5 + np.float32(generator.uniform(0.3, 0.5)) * along, 0, 1)
    if fill == "stripes":
        frequency, phase = generator.uniform(4, 9), generator.uniform(0, 2 * np.pi)
        return np.clip(0.5 + np.sin(np.float32(frequency) * along + np.float32(phase)), 0, 1)
    if fill == "spots":
        centres = generator.uniform(-1, 1, (9, 2)).astype(np.float32)
        radius = generator.uniform(0.12, 0.3, 9).astype(np.float32)
        squared = (x - centres[:, :1, None]) ** 2 + (y - centres[:, 1:, None]) ** 2
        strongest: NDArray[np.float32] = np.max(radius[:, None, None] ** 2 - squared, axis=0)
        return np.clip(0.5 + 12 * strongest, 0, 1)
    num_cells = int(generator.integers(6, 12))
    return np.clip(0.5 + 0.6 * smooth_noise(generator, num_cells, len(x)), 0, 1)


def draw_fill(
    coverage: NDArray[np.float32],
    box: NDArray[np.float64],
    palette: NDArray[np.float64],
    generator: np.random.Generator,
) -> NDArray[np.float32]:
    """Draws the colours of an object's surface.

    Args:
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
    pattern = _fill_pattern(FILL_NAMES[int(generator.integers(len(FILL_NAMES)))], x, y, generator)
    first, second = palette.astype(np.float32)
    angle, strength = generator.uniform(0, 2 * np.pi), generator.uniform(0.08, 0.22)
    light = 1 + np.float32(strength * np.cos(angle)) * x + np.float32(strength * np.sin(angle)) * y
    rim_width = max(3, round(0.05 * size))
    near_edge = np.clip(2 * (1 - cv2.blur(coverage, (rim_width, rim_width))), 0, 1)
    light = light * (1 + np.float32(generator.choice([-1, 1]) * generator.uniform(0.1, 0.35)) * near_edge)
    return np.clip((first + pattern[:, :, None] * (second - first)) * light[:, :, None], 0, 255)
