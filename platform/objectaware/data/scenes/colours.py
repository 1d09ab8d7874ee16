"""Colours of objects and backgrounds, drawn by one law, so that colour tells neither apart."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_NUM_CANDIDATES = 48
_RANGE = (25.0, 235.0)
_MAX_GREYING = 0.6
_LUMA = np.array([0.299, 0.587, 0.114])
# Difference in luma between the two colours of a palette: seen in grayscale too, yet not glaring.
_CONTRAST = (38.0, 85.0)
# Distance in RGB between a background's colours and an object's mean colour, so that the object is visible.
_MIN_DISTANCE = 70.0


def draw_palette(generator: np.random.Generator, avoid: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
    """Draws two colours that differ in brightness, and from other colours where these are given.

    Args:
        generator: Source of the draw.
        avoid: Colours to stay away from, shape (n, 3), 0 to 255; of the candidates drawn the first that is
            far enough from all is taken, or the farthest where none is.

    Returns:
        Two RGB colours, shape (2, 3), 0 to 255.
    """
    candidates = generator.uniform(*_RANGE, (_NUM_CANDIDATES, 2, 3))
    greying = generator.uniform(0, _MAX_GREYING, (_NUM_CANDIDATES, 2, 1))
    luma = candidates @ _LUMA
    candidates += greying * (luma[:, :, None] - candidates)
    contrast = np.abs(luma[:, 0] - luma[:, 1])
    distance = np.full(_NUM_CANDIDATES, np.inf)
    if avoid is not None:
        mean = candidates.mean(axis=1, keepdims=True)
        colours = np.concatenate([candidates, mean], axis=1)
        distance = np.linalg.norm(colours[:, :, None] - avoid, axis=-1).min(axis=(1, 2))
    # Acceptable candidates score alike, and argmax takes the first of them.
    score = np.minimum(distance, _MIN_DISTANCE)
    score[(contrast < _CONTRAST[0]) | (contrast > _CONTRAST[1])] -= 1000
    palette: NDArray[np.float64] = candidates[int(np.argmax(score))]
    return palette
