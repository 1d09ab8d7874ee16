"""Colours of objects and backgrounds, drawn by one law but for their contrast, so that colour tells neither apart."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_NUM_CANDIDATES = 96
# Ranges of the mean of a palette's two colours, a channel. Backgrounds keep away from their objects, which spreads
# them: theirs is drawn from a narrower range, so that both end up equally dark and bright. Brightness that varied much
# more in backgrounds would tell pictures apart better than their objects do.
_MEAN_RANGE = (60.0, 195.0)
_MUTED_MEAN_RANGE = (75.0, 180.0)
# A few pictures are taken at night: the black around the objects of `only_fg` is then nothing that was never seen.
_NIGHT_SHARE = 0.05
_NIGHT_MEAN_RANGE = (8.0, 28.0)
_MAX_GREYING = 0.6
_LUMA = np.array([0.299, 0.587, 0.114])
# Difference between a palette's two colours, in each channel and so in luma too: patterns are seen in grayscale. An
# object's stands out; a background's is a surface's, as of a lawn or a wall. With backgrounds as contrasted as the
# objects the dense CRF follows their patterns and not the outlines of objects.
_CONTRAST = (60.0, 120.0)
_MUTED_CONTRAST = (12.0, 22.0)
# Distances between a background's colours and an object's, so that the object is visible: in RGB, and in luma, since
# most of what a network is trained on are gray views.
_MIN_DISTANCE = 60.0
_MIN_LUMA_DISTANCE = 15.0


def draw_palette(generator: np.random.Generator) -> NDArray[np.float64]:
    """Draws two colours for an object, one clearly brighter than the other.

    Args:
        generator: Source of the draw.

    Returns:
        Two RGB colours, shape (2, 3), 0 to 255.
    """
    palette: NDArray[np.float64] = _candidates(generator, _MEAN_RANGE, _CONTRAST, 1)[0]
    return palette


def draw_muted_palette(generator: np.random.Generator, avoid: NDArray[np.float64]) -> NDArray[np.float64]:
    """Draws two colours for a background: close together, and away from other colours.

    Args:
        generator: Source of the draw.
        avoid: Colours to stay away from, shape (n, 3), 0 to 255; of the candidates drawn the first that is far enough
            from all is taken, or the farthest where none is.

    Returns:
        Two RGB colours, shape (2, 3), 0 to 255.
    """
    mean_range = _NIGHT_MEAN_RANGE if generator.random() < _NIGHT_SHARE else _MUTED_MEAN_RANGE
    candidates = _candidates(generator, mean_range, _MUTED_CONTRAST, _NUM_CANDIDATES)
    difference = candidates[:, :, None] - avoid  # (candidates, 2, n, 3)
    distance = np.linalg.norm(difference, axis=-1).min(axis=(1, 2)) / _MIN_DISTANCE
    luma_distance = np.abs(difference @ _LUMA).min(axis=(1, 2)) / _MIN_LUMA_DISTANCE
    # Acceptable candidates score alike, and argmax takes the first of them.
    score = np.minimum(np.minimum(distance, luma_distance), 1)
    palette: NDArray[np.float64] = candidates[int(np.argmax(score))]
    return palette


def _candidates(
    generator: np.random.Generator, mean_range: tuple[float, float], contrast: tuple[float, float], num_candidates: int
) -> NDArray[np.float64]:
    """Palettes, shape (num_candidates, 2, 3): two colours around a free mean that is more or less gray."""
    mean = generator.uniform(*mean_range, (num_candidates, 3))
    greying = generator.uniform(0, _MAX_GREYING, (num_candidates, 1))
    mean += greying * ((mean @ _LUMA)[:, None] - mean)
    step = generator.uniform(*contrast, (num_candidates, 1)) * generator.uniform(0.8, 1.2, (num_candidates, 3)) / 2
    step *= generator.choice([-1, 1], (num_candidates, 1))
    return np.clip(np.stack([mean - step, mean + step], axis=1), 0, 255)
