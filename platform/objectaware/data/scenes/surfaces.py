"""Colours, contrast and light of `scenes`, which are the same for backgrounds, clutter and objects.

Only its shape and the elements on its surface distinguish an object from the rest. For this, each picture has one
tone, and all of its surfaces are painted by the same law. Each has two colours of its own around the tone. Its pattern
is brought to the same contrast, whether its lines are thin or broad. Objects and fragments of clutter are lit from a
side of their own and have a rim. All of the picture lies under one uneven, coloured light.
"""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from objectaware.data.scenes.textures import Pattern, smooth_noise

_LUMA = np.array([0.299, 0.587, 0.114])
# Range of a picture's tone in each channel, and how far it goes towards gray.
_TONE_RANGE = (75.0, 180.0)
_MAX_GREYING = 0.6
# Distance in each channel of a surface's mean colour from the tone of its picture.
_MAX_OFFSET = 14.0
# Difference between a surface's two colours, in every channel and so in luma, too: patterns are seen in grayscale.
_CONTRAST = (40.0, 75.0)
_CHANNEL_CONTRAST = (0.5, 1.5)
# A line that is much rarer than its ground would be painted in a colour far from both.
_MAX_DEVIATION = 2.2
_SIDE_LIGHT = (0.08, 0.22)
_RIM_LIGHT = (0.1, 0.35)
_LIGHT_STRENGTH = 0.22
_CAST_STRENGTH = 0.12
_HAZE = 0.5


def draw_tone(generator: np.random.Generator) -> NDArray[np.float64]:
    """Draw the colour that all surfaces of a picture are painted around.

    Args:
        generator: Source of the draw.

    Returns:
        An RGB colour, shape (3,), 0 to 255.
    """
    tone = generator.uniform(*_TONE_RANGE, 3)
    return tone + generator.uniform(0, _MAX_GREYING) * (tone @ _LUMA - tone)


def draw_palettes(tone: NDArray[np.float64], num_surfaces: int, generator: np.random.Generator) -> NDArray[np.float64]:
    """Draw the two colours of each of some surfaces, one clearly brighter than the other.

    Args:
        tone: The tone of their picture, shape (3,).
        num_surfaces: How many.
        generator: Source of every draw.

    Returns:
        RGB colours, shape (num_surfaces, 2, 3), 0 to 255.
    """
    mean = tone + generator.uniform(-_MAX_OFFSET, _MAX_OFFSET, (num_surfaces, 3))
    contrast = generator.uniform(*_CONTRAST, (num_surfaces, 1)) * generator.choice([-1, 1], (num_surfaces, 1))
    step = contrast * generator.uniform(*_CHANNEL_CONTRAST, (num_surfaces, 3)) / 2
    return np.clip(np.stack([mean - step, mean + step], axis=1), 0, 255)


def standardise(pattern: Pattern, coverage: NDArray[np.float32] | None = None) -> Pattern:
    """Bring a pattern to mean 0 and standard deviation 1, and cut off what is far from the mean.

    Args:
        pattern: Shape (H, H), any range.
        coverage: Where it will be seen, shape (H, H), in [0, 1], by which mean and deviation are taken; by default
            everywhere.

    Returns:
        Shape (H, H).
    """
    weights = np.ones_like(pattern) if coverage is None else coverage
    total = weights.sum()
    centred = pattern - np.vdot(weights, pattern) / total
    deviation = np.sqrt(np.vdot(weights, centred * centred) / total)
    centred /= max(deviation, np.float32(1e-3))
    return np.clip(centred, -_MAX_DEVIATION, _MAX_DEVIATION, out=centred)


def paint(
    standardised: Pattern, palettes: NDArray[np.float64], number: NDArray[np.intp] | None = None
) -> NDArray[np.float32]:
    """Paint a pattern of `standardise` in two colours, which lie one standard deviation to either side of its mean.

    Args:
        standardised: Shape (H, H).
        palettes: Of each surface two RGB colours, shape (n, 2, 3), 0 to 255.
        number: Which surface a pixel shows, shape (H, H), below n; by default the first.

    Returns:
        Shape (3, H, H), around 0 to 255.
    """
    first, second = palettes.astype(np.float32).transpose(1, 2, 0)  # (3, n) each
    middle, half = (first + second) / 2, (second - first) / 2
    return _by_pixel(middle, number) + standardised * _by_pixel(half, number)


def _by_pixel(values: NDArray[np.floating], number: NDArray[np.intp] | None) -> NDArray[np.float32]:
    """Return values of surfaces (…, n) at the pixels (…, H, H) that show them, or those of the first (…, 1, 1)."""
    values = values.astype(np.float32)
    return values[..., :1, None] if number is None else np.take(values, number, axis=-1)


def draw_light(
    coverage: NDArray[np.float32],
    boxes: NDArray[np.float64],
    generator: np.random.Generator,
    number: NDArray[np.intp] | None = None,
) -> NDArray[np.float32]:
    """Draw the light on cut-out surfaces: each is lit from a side of its own, and has a darker or brighter rim.

    Args:
        coverage: Coverage of every pixel by any of them, shape (H, H), in [0, 1].
        boxes: Their bounding boxes x0 y0 x1 y1 in sides of the picture, shape (n, 4).
        generator: Source of every draw.
        number: Which of them a pixel shows, shape (H, H), below n; by default the first.

    Returns:
        What their colours are multiplied by, shape (H, H).
    """
    size = len(coverage)
    angle = generator.uniform(0, 2 * np.pi, len(boxes))
    strength, rim = generator.uniform(*_SIDE_LIGHT, len(boxes)), generator.uniform(*_RIM_LIGHT, len(boxes))
    rim *= generator.choice([-1, 1], len(boxes))
    axis = ((np.arange(size) + 0.5) / size).astype(np.float32)
    # Per surface a + b·x + c·y, which is 1 in the middle of its box.
    half = (boxes[:, 2:] - boxes[:, :2]) / 2
    slope = (strength * np.stack([np.cos(angle), np.sin(angle)])).T / half
    offset = 1 - (slope * (boxes[:, 2:] + boxes[:, :2]) / 2).sum(axis=1)
    side_light = _by_pixel(offset, number) + _by_pixel(slope[:, 0], number) * axis
    side_light = side_light + _by_pixel(slope[:, 1], number) * axis[:, None]
    rim_width = max(3, round(0.05 * size))
    near_edge = np.minimum(2 * (1 - cv2.blur(coverage, (rim_width, rim_width))), 1)
    return side_light * (1 + _by_pixel(rim, number) * near_edge)


@dataclass(frozen=True)
class Atmosphere:
    """The air over a whole picture: haze, under which contrast varies from place to place, and an uneven light.

    Attributes:
        tone: The colour of the haze, shape (3, 1, 1).
        clearness: Share of contrast that is left, shape (H, H).
        light: What every colour is multiplied by, shape (3, H, H).
    """

    tone: NDArray[np.float32]
    clearness: NDArray[np.float32]
    light: NDArray[np.float32]

    def over(self, picture: NDArray[np.float32]) -> NDArray[np.uint8]:
        """Return the picture (3, H, H), whose colours lie around 0 to 255, as it is seen, of shape (H, H, 3)."""
        seen = (self.tone + self.clearness * (picture - self.tone)) * self.light
        return np.ascontiguousarray(np.clip(np.round(seen), 0, 255).astype(np.uint8).transpose(1, 2, 0))


def draw_atmosphere(tone: NDArray[np.float64], size: int, generator: np.random.Generator) -> Atmosphere:
    """Draw the haze and the light of a picture.

    Args:
        tone: The tone of the picture, shape (3,).
        size: Side of the picture in pixels.
        generator: Source of every draw.

    Returns:
        The atmosphere.
    """
    clearness = 1 + np.float32(_HAZE) * smooth_noise(generator, 3, size)
    brightness = 1 + np.float32(_LIGHT_STRENGTH) * smooth_noise(generator, 2, size)
    cast = np.stack([smooth_noise(generator, 3, size) for _ in range(3)])
    light = brightness + np.float32(_CAST_STRENGTH) * cast
    return Atmosphere(tone.astype(np.float32)[:, None, None], clearness, light)
