"""Colours of objects and backgrounds, drawn by one law, so that colour tells neither apart."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_NUM_CANDIDATES = 48
_RANGE = (25.0, 235.0)
_MAX_GREYING = 0.6
_LUMA = np.array([0.299, 0.587, 0.114])
# Difference in luma between an object's two colours, and in each channel between a background's: seen in grayscale
# too, yet not glaring.
_CONTRAST = (25.0, 55.0)
_MUTED_CONTRAST = (12.0, 24.0)
# Distance in RGB between a background's colours and an object's, so that the object is visible.
_MIN_DISTANCE = 70.0


def draw_palette(generator: np.random.Generator) -> NDArray[np.float64]:
    """Draws two colours for an object: a free one, and one that is clearly brighter or darker.

    Args:
        generator: Source of the draw.

    Returns:
        Two RGB colours, shape (2, 3), 0 to 255.
    """
    palette: NDArray[np.float64] = _candidates(generator, _CONTRAST)[0]
    return palette


def draw_muted_palette(generator: np.random.Generator, avoid: NDArray[np.float64]) -> NDArray[np.float64]:
    """Draws two colours for a background: close together, and away from other colours.

    A background is a surface and not a second object. Its texture is seen, also in grayscale, but its colours hold
    together, as those of a lawn or a wall do.

    Args:
        generator: Source of the draw.
        avoid: Colours to stay away from, shape (n, 3), 0 to 255; of the candidates drawn the first that is far enough
            from all is taken, or the farthest where none is.

    Returns:
        Two RGB colours, shape (2, 3), 0 to 255.
    """
    candidates = _candidates(generator, _MUTED_CONTRAST)
    distance = np.linalg.norm(candidates[:, :, None] - avoid, axis=-1).min(axis=(1, 2))
    # Acceptable candidates score alike, and argmax takes the first of them.
    palette: NDArray[np.float64] = candidates[int(np.argmax(np.minimum(distance, _MIN_DISTANCE)))]
    return palette


def _candidates(generator: np.random.Generator, contrast: tuple[float, float]) -> NDArray[np.float64]:
    """Pairs of a free colour, more or less gray, and one some steps towards the middle, shape (candidates, 2, 3).

    Objects and backgrounds draw by the same law but for the contrast, so that their mean colours spread alike and
    none tells which is which.
    """
    first = generator.uniform(*_RANGE, (_NUM_CANDIDATES, 3))
    greying = generator.uniform(0, _MAX_GREYING, (_NUM_CANDIDATES, 1))
    first += greying * ((first @ _LUMA)[:, None] - first)
    step = generator.uniform(*contrast, (_NUM_CANDIDATES, 1)) * generator.uniform(0.8, 1.2, (_NUM_CANDIDATES, 3))
    towards_middle = np.where(first.mean(axis=1, keepdims=True) < sum(_RANGE) / 2, 1, -1)
    return np.stack([first, first + towards_middle * step], axis=1)
