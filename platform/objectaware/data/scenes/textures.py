"""The surfaces of `scenes`: textures of backgrounds and of objects, and their colours.

The nine families of background differ in texture, not in colour. A family is a function that draws a scale, a phase
and a small rotation, and returns a pattern in [0, 1]. No pattern distinguishes left from right, so that families
survive a horizontal flip. Elements repeat every 5 to 15 pixels of a picture of 96 pixels, so that a small patch shows
the family.

Objects are filled with the texture of their class at the object's own scale, lit from one side, and have a rim.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import cv2
import numpy as np
from numpy.typing import NDArray

Pattern = NDArray[np.float32]
_REFERENCE_SIZE = 96


@lru_cache(maxsize=4)
def _pixel_grid(size: int) -> tuple[Pattern, Pattern]:
    # In pixels of the reference size, so that a family looks the same at any picture size.
    axis = ((np.arange(size) + 0.5) * (_REFERENCE_SIZE / size)).astype(np.float32)
    x, y = np.meshgrid(axis, axis)
    return x, y


def smooth_noise(generator: np.random.Generator, num_cells: int, size: int) -> Pattern:
    """Return noise that varies over `1 / num_cells` of the picture: a coarse random grid, enlarged.

    Args:
        generator: Source of the draw.
        num_cells: Cells of the grid along a side.
        size: Side of the result in pixels.

    Returns:
        Shape (size, size), mostly within [-1, 1].
    """
    grid = generator.uniform(-1, 1, (num_cells + 2, num_cells + 2)).astype(np.float32)
    margin = size // num_cells
    enlarged = cv2.resize(grid, (size + 2 * margin, size + 2 * margin), interpolation=cv2.INTER_CUBIC)
    return enlarged[margin : margin + size, margin : margin + size].astype(np.float32, copy=False)


def _step(value: Pattern, softness: float) -> Pattern:
    """Apply a soft threshold at 0: rise from 0 to 1 while `value` runs over `softness`."""
    return np.clip(value / np.float32(softness) + np.float32(0.5), 0, 1)


def _coordinates(generator: np.random.Generator, size: int, max_degrees: float) -> tuple[Pattern, Pattern]:
    """Return coordinates in reference pixels, shifted at random, rotated by up to `max_degrees`, gently warped."""
    x, y = _pixel_grid(size)
    angle = np.deg2rad(generator.uniform(-max_degrees, max_degrees))
    cosine, sine = np.float32(np.cos(angle)), np.float32(np.sin(angle))
    shift = generator.uniform(0, 100, 2).astype(np.float32)
    warp = np.float32(generator.uniform(0.3, 1.2))
    bent_x = x + warp * smooth_noise(generator, 4, size)
    bent_y = y + warp * smooth_noise(generator, 4, size)
    return cosine * bent_x - sine * bent_y + shift[0], sine * bent_x + cosine * bent_y + shift[1]


def _wave(coordinate: Pattern, period: float) -> Pattern:
    return np.sin(coordinate * np.float32(2 * np.pi / period))


def _line(coordinate: Pattern, period: float, width: float) -> Pattern:
    """Return soft lines of `width` reference pixels, one every `period`."""
    distance = np.abs(np.mod(coordinate, np.float32(period)) - np.float32(period / 2))
    return _step(np.float32(width / 2) - distance, 1.2)


def _stripes(generator: np.random.Generator, size: int) -> Pattern:
    _, y = _coordinates(generator, size, 18)
    return _step(_wave(y, generator.uniform(5, 10)) + np.float32(generator.uniform(-0.3, 0.3)), 1.2)


def _checks(generator: np.random.Generator, size: int) -> Pattern:
    x, y = _coordinates(generator, size, 10)
    period = generator.uniform(9, 15)
    return _step(_wave(x, period) * _wave(y, period), 0.5)


def _bricks(generator: np.random.Generator, size: int) -> Pattern:
    x, y = _coordinates(generator, size, 4)
    height = generator.uniform(5, 8)
    width = height * generator.uniform(1.9, 2.4)
    row = np.floor(y / np.float32(height))
    x = x + np.mod(row, 2) * np.float32(width / 2)
    column = np.floor(x / np.float32(width))
    shades = generator.uniform(0, 0.45, (32, 32)).astype(np.float32)
    shade = shades[row.astype(np.int32) % 32, column.astype(np.int32) % 32]
    # `_line` is centred on half a period, a joint on the border of a brick.
    joint = np.maximum(_line(y + np.float32(height / 2), height, 1.3), _line(x + np.float32(width / 2), width, 1.3))
    return np.maximum(shade, joint)


def _dots(generator: np.random.Generator, size: int) -> Pattern:
    x, y = _coordinates(generator, size, 15)
    spacing = generator.uniform(7, 12)
    row_height = spacing * 0.866
    distance = np.full((size, size), np.inf, np.float32)
    # A hexagonal lattice is two rectangular ones, half a cell apart.
    for offset in (0.0, 0.5):
        dx = np.mod(x + np.float32(offset * spacing), np.float32(spacing)) - np.float32(spacing / 2)
        row = np.mod(y + np.float32(2 * offset * row_height), np.float32(2 * row_height))
        dy = row - np.float32(row_height)
        distance = np.minimum(distance, dx * dx + dy * dy)
    return _step(np.float32(spacing * generator.uniform(0.24, 0.32)) - np.sqrt(distance), 1.2)


def _waves(generator: np.random.Generator, size: int) -> Pattern:
    x, y = _coordinates(generator, size, 8)
    period = generator.uniform(6, 10)
    bend = np.float32(period * generator.uniform(0.28, 0.4)) * _wave(y, period * generator.uniform(1.7, 2.3))
    return _step(_wave(x + bend, period), 1.0)


def _cells(generator: np.random.Generator, size: int) -> Pattern:
    fine = 2 * size
    num_rows = round(_REFERENCE_SIZE / generator.uniform(9, 14))
    corners = np.stack(np.meshgrid(np.arange(num_rows), np.arange(num_rows)), axis=-1).reshape(-1, 2)
    seeds = (corners + generator.uniform(0.05, 0.95, corners.shape)) * (fine / num_rows)
    source = np.full((fine, fine), 255, np.uint8)
    column, row = np.minimum(seeds.astype(np.int32), fine - 1).T
    source[row, column] = 0
    _, label = cv2.distanceTransformWithLabels(source, cv2.DIST_L2, 5, labelType=cv2.DIST_LABEL_PIXEL)
    border = np.zeros((fine, fine), np.uint8)
    border[1:] = label[1:] != label[:-1]
    border[:, 1:] |= label[:, 1:] != label[:, :-1]
    thickness = max(2, round(2.6 * fine / (2 * _REFERENCE_SIZE)))
    thick_border = cv2.dilate(border, np.ones((thickness, thickness), np.uint8))
    shades = generator.uniform(0, 0.45, len(seeds) + 1).astype(np.float32)
    pattern = np.maximum(shades[np.minimum(label, len(seeds))], thick_border.astype(np.float32))
    return cv2.resize(pattern, (size, size), interpolation=cv2.INTER_AREA).astype(np.float32, copy=False)


def _clouds(generator: np.random.Generator, size: int) -> Pattern:
    num_cells = int(generator.integers(7, 12))
    noise = smooth_noise(generator, num_cells, size)
    for octave in (1, 2):
        noise = noise + np.float32(0.6**octave) * smooth_noise(generator, num_cells * 2**octave, size)
    return _step(noise, 2.0)


def _hatching(generator: np.random.Generator, size: int) -> Pattern:
    x, y = _coordinates(generator, size, 6)
    period = generator.uniform(7, 11)
    steepness = np.float32(generator.uniform(0.85, 1.2))
    width = generator.uniform(1.5, 2.2)
    half = np.float32(np.sqrt(0.5))
    return np.maximum(
        _line((x + steepness * y) * half, period, width), _line((x - steepness * y) * half, period, width)
    )


def _scales(generator: np.random.Generator, size: int) -> Pattern:
    x, y = _coordinates(generator, size, 6)
    width = generator.uniform(10, 15)
    radius = np.float32(width / 2)
    row = np.floor(y / radius)

    def distance(of_row: Pattern) -> Pattern:
        across = np.mod(x + np.mod(of_row, 2) * radius, np.float32(width)) - radius
        down = y - of_row * radius
        return np.sqrt(across * across + down * down) / radius

    # A scale hangs from its row over the rows below; where it does not reach, the next row's scale shows.
    upper = distance(row)
    nearest = np.where(upper <= 1, upper, distance(row + 1))
    return np.clip(nearest, 0, 1) ** np.float32(generator.uniform(1.4, 2.4))


Family = Callable[[np.random.Generator, int], Pattern]
FAMILIES: tuple[Family, ...] = (_stripes, _checks, _bricks, _dots, _waves, _cells, _clouds, _hatching, _scales)
"""The families of backgrounds: from a generator and the side of a picture in pixels to a pattern in [0, 1]."""


def draw_background(
    family: int, palette: NDArray[np.float64], image_size: int, generator: np.random.Generator
) -> NDArray[np.float32]:
    """Draw a background of a family: its pattern in two colours, under light that falls off slowly.

    Args:
        family: 0 to 8, an index of `FAMILIES`.
        palette: Two RGB colours, shape (2, 3), 0 to 255.
        image_size: Side of the picture in pixels.
        generator: Source of every draw.

    Returns:
        Shape (image_size, image_size, 3), 0 to 255.
    """
    pattern = FAMILIES[family](generator, image_size)[:, :, None]
    first, second = palette.astype(np.float32)
    light = 1 + np.float32(0.12) * smooth_noise(generator, 2, image_size)[:, :, None]
    return np.clip((first + pattern * (second - first)) * light, 0, 255)


def _turned(x: Pattern, y: Pattern, generator: np.random.Generator) -> tuple[Pattern, Pattern]:
    """Return coordinates turned by any angle, each with a phase of its own."""
    angle, *phases = generator.uniform(0, 2 * np.pi, 3)
    cosine, sine = np.float32(np.cos(angle)), np.float32(np.sin(angle))
    return cosine * x + sine * y + np.float32(phases[0]), cosine * y - sine * x + np.float32(phases[1])


def _sine(coordinate: Pattern, frequency: float, sharpness: float = 1.0) -> Pattern:
    """Return a clipped sine in [0, 1]."""
    return np.clip(0.5 + np.float32(sharpness) * np.sin(np.float32(frequency) * coordinate), 0, 1)


def _bands(x: Pattern, y: Pattern, generator: np.random.Generator) -> Pattern:
    return _sine(_turned(x, y, generator)[0], generator.uniform(6, 10))


def _spots(x: Pattern, y: Pattern, generator: np.random.Generator) -> Pattern:
    centres = generator.uniform(-1, 1, (9, 2)).astype(np.float32)
    radius = generator.uniform(0.12, 0.3, 9).astype(np.float32)
    squared = (x - centres[:, :1, None]) ** 2 + (y - centres[:, 1:, None]) ** 2
    strongest: Pattern = np.max(radius[:, None, None] ** 2 - squared, axis=0)
    return np.clip(0.5 + 12 * strongest, 0, 1)


def _circles(x: Pattern, y: Pattern, generator: np.random.Generator) -> Pattern:
    centre = generator.uniform(-0.3, 0.3, 2).astype(np.float32)
    radius = np.hypot(x - centre[0], y - centre[1]) + np.float32(generator.uniform(0, 1))
    return _sine(radius, generator.uniform(8, 13))


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
    return _sine(angle, int(generator.integers(4, 8)), 1.5)


def _shade(x: Pattern, y: Pattern, generator: np.random.Generator) -> Pattern:
    angle = generator.uniform(0, 2 * np.pi)
    along = np.float32(np.cos(angle)) * x + np.float32(np.sin(angle)) * y
    return np.clip(0.5 + np.float32(generator.uniform(0.4, 0.6)) * along, 0, 1)


def _ripples(x: Pattern, y: Pattern, generator: np.random.Generator) -> Pattern:
    u, v = _turned(x, y, generator)
    return _sine(u + np.float32(0.18) * np.sin(np.float32(generator.uniform(5, 8)) * v), generator.uniform(7, 11))


def _lattice(x: Pattern, y: Pattern, generator: np.random.Generator) -> Pattern:
    u, v = _turned(x, y, generator)
    frequency = np.float32(generator.uniform(5, 8))
    return np.clip(2.2 * np.maximum(np.abs(np.sin(frequency * u)), np.abs(np.sin(frequency * v))) - 1.4, 0, 1)


Fill = Callable[[Pattern, Pattern, np.random.Generator], Pattern]
FILLS: tuple[Fill, ...] = (_bands, _spots, _circles, _squares, _marble, _rays, _shade, _ripples, _lattice)
"""Texture of each class: from coordinates that run from -1 to 1 over the object's box to a pattern in [0, 1]."""


def draw_fill(
    class_index: int,
    coverage: NDArray[np.float32],
    box: NDArray[np.float64],
    palette: NDArray[np.float64],
    generator: np.random.Generator,
) -> NDArray[np.float32]:
    """Draw the colours of an object's surface.

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


_NUM_CANDIDATES = 96
# Ranges of the mean of a palette's two colours, per channel. Backgrounds keep away from their objects, which spreads
# them: theirs is drawn from a narrower range, so that both end up equally dark and bright. Brightness that varied much
# more in backgrounds would distinguish pictures better than their objects do.
_MEAN_RANGE = (60.0, 195.0)
_MUTED_MEAN_RANGE = (75.0, 180.0)
# A few pictures are taken at night: the black around the objects of `only_fg` is then not entirely new.
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
    """Draw two colours for an object, one clearly brighter than the other.

    Args:
        generator: Source of the draw.

    Returns:
        Two RGB colours, shape (2, 3), 0 to 255.
    """
    return _candidates(generator, _MEAN_RANGE, _CONTRAST, 1)[0]


def draw_muted_palette(generator: np.random.Generator, avoid: NDArray[np.float64]) -> NDArray[np.float64]:
    """Draw two colours for a background: close together, and away from other colours.

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
    return candidates[int(np.argmax(score))]


def _candidates(
    generator: np.random.Generator, mean_range: tuple[float, float], contrast: tuple[float, float], num_candidates: int
) -> NDArray[np.float64]:
    """Draw palettes (num_candidates, 2, 3): two colours around a free mean that is more or less gray."""
    mean = generator.uniform(*mean_range, (num_candidates, 3))
    greying = generator.uniform(0, _MAX_GREYING, (num_candidates, 1))
    mean += greying * ((mean @ _LUMA)[:, None] - mean)
    step = generator.uniform(*contrast, (num_candidates, 1)) * generator.uniform(0.8, 1.2, (num_candidates, 3)) / 2
    step *= generator.choice([-1, 1], (num_candidates, 1))
    return np.clip(np.stack([mean - step, mean + step], axis=1), 0, 255)
