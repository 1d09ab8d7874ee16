"""The textures of `scenes`: nine families of background, and the nine surfaces of objects.

A texture is a function that draws a scale, a phase and a rotation, and returns a pattern. Backgrounds and objects
differ in what repeats, not in how often: elements repeat every 7 to 17 pixels of a picture of 96 pixels, so that a
small patch shows the texture, and a picture of 64 pixels its elements. No texture distinguishes left from right, so
that it survives a horizontal flip. Colours and contrast are those of `surfaces.py`, which every pattern goes through.
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


@lru_cache(maxsize=128)
def _enlargement(num_cells: int, size: int) -> Pattern:
    """Return the cubic weights (size, num_cells + 2) of a grid's lines in each of a picture's lines."""
    margin = size // num_cells
    identity = np.eye(num_cells + 2, dtype=np.float32)
    enlarged = cv2.resize(identity, (num_cells + 2, size + 2 * margin), interpolation=cv2.INTER_CUBIC)
    return enlarged[margin : margin + size].astype(np.float32)


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
    weights = _enlargement(num_cells, size)
    return np.asarray(weights @ grid @ weights.T, np.float32)


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


def _wrapped(coordinate: Pattern, period: float) -> Pattern:
    """Return the coordinate modulo a period, in [0, period). `np.mod` takes six times as long."""
    return coordinate - np.float32(period) * np.floor(coordinate * np.float32(1 / period))


def _wave(coordinate: Pattern, period: float) -> Pattern:
    return np.sin(coordinate * np.float32(2 * np.pi / period))


def _line(coordinate: Pattern, period: float, width: float, softness: float = 1.2) -> Pattern:
    """Return soft lines of `width` reference pixels, one every `period`."""
    distance = np.abs(_wrapped(coordinate, period) - np.float32(period / 2))
    return _step(np.float32(width / 2) - distance, softness)


def _stripes(generator: np.random.Generator, size: int) -> Pattern:
    _, y = _coordinates(generator, size, 18)
    return _step(_wave(y, generator.uniform(7, 11)) + np.float32(generator.uniform(-0.3, 0.3)), 1.2)


def _checks(generator: np.random.Generator, size: int) -> Pattern:
    x, y = _coordinates(generator, size, 10)
    period = generator.uniform(9, 15)
    return _step(_wave(x, period) * _wave(y, period), 0.5)


def _bricks(generator: np.random.Generator, size: int) -> Pattern:
    x, y = _coordinates(generator, size, 4)
    height = generator.uniform(7, 9)
    width = height * generator.uniform(1.9, 2.4)
    row = np.floor(y / np.float32(height))
    x = x + _wrapped(row, 2) * np.float32(width / 2)
    column = np.floor(x / np.float32(width))
    shades = generator.uniform(0, 0.45, (32, 32)).astype(np.float32)
    shade = shades[row.astype(np.int32) % 32, column.astype(np.int32) % 32]
    # `_line` is centred on half a period, a joint on the border of a brick.
    joint = np.maximum(
        _line(y + np.float32(height / 2), height, 2.0, 2.0), _line(x + np.float32(width / 2), width, 2.0, 2.0)
    )
    return np.maximum(shade, joint)


def _distance_to_lattice(x: Pattern, y: Pattern, spacing: float) -> Pattern:
    """Return the distance to the nearest point of a hexagonal lattice."""
    row_height = spacing * 0.866
    # A hexagonal lattice is two rectangular ones, half a cell apart.
    squares = [
        (_wrapped(x + np.float32(part * spacing), spacing) - np.float32(spacing / 2)) ** 2
        + (_wrapped(y + np.float32(2 * part * row_height), 2 * row_height) - np.float32(row_height)) ** 2
        for part in (0.0, 0.5)
    ]
    return np.sqrt(np.minimum(*squares))


def _dots(generator: np.random.Generator, size: int) -> Pattern:
    x, y = _coordinates(generator, size, 15)
    spacing = generator.uniform(8, 12)
    return _step(np.float32(spacing * generator.uniform(0.24, 0.32)) - _distance_to_lattice(x, y, spacing), 1.2)


def _waves(generator: np.random.Generator, size: int) -> Pattern:
    x, y = _coordinates(generator, size, 8)
    period = generator.uniform(7, 11)
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
    # As soft as the other families' edges.
    soft = cv2.blur(pattern, (thickness, thickness))
    return cv2.resize(soft, (size, size), interpolation=cv2.INTER_AREA).astype(np.float32, copy=False)


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
    width = generator.uniform(1.8, 2.6)
    half = np.float32(np.sqrt(0.5))
    return np.maximum(
        _line((x + steepness * y) * half, period, width, 2.0), _line((x - steepness * y) * half, period, width, 2.0)
    )


def _scales(generator: np.random.Generator, size: int) -> Pattern:
    x, y = _coordinates(generator, size, 6)
    width = generator.uniform(10, 15)
    radius = np.float32(width / 2)
    row = np.floor(y / radius)

    def distance(of_row: Pattern) -> Pattern:
        across = _wrapped(x + _wrapped(of_row, 2) * radius, width) - radius
        down = y - of_row * radius
        return np.sqrt(across * across + down * down) / radius

    # A scale hangs from its row over the rows below; where it does not reach, the next row's scale shows.
    upper = distance(row)
    nearest = np.where(upper <= 1, upper, distance(row + 1))
    return np.clip(nearest, 0, 1) ** np.float32(generator.uniform(1.2, 1.8))


Family = Callable[[np.random.Generator, int], Pattern]
FAMILIES: tuple[Family, ...] = (_stripes, _checks, _bricks, _dots, _waves, _cells, _clouds, _hatching, _scales)
"""The families of backgrounds: from a generator and the side of a picture in pixels to a pattern in [0, 1]."""


def _turned(
    x: Pattern, y: Pattern, generator: np.random.Generator, from_degrees: float, to_degrees: float
) -> tuple[Pattern, Pattern]:
    """Return coordinates turned by an angle of a range to either side, each with a phase of its own."""
    angle = np.deg2rad(generator.uniform(from_degrees, to_degrees)) * generator.choice([-1, 1])
    cosine, sine = np.float32(np.cos(angle)), np.float32(np.sin(angle))
    phases = generator.uniform(0, 100, 2).astype(np.float32)
    return cosine * x + sine * y + phases[0], cosine * y - sine * x + phases[1]


def _bars(x: Pattern, y: Pattern, generator: np.random.Generator) -> Pattern:
    across, _ = _turned(x, y, generator, 0, 40)
    return _step(_wave(across, generator.uniform(8, 12)), 0.35)


def _rings(x: Pattern, y: Pattern, generator: np.random.Generator) -> Pattern:
    u, v = _turned(x, y, generator, 0, 30)
    spacing = generator.uniform(11, 14)
    radius = np.float32(0.31 * spacing)
    return _step(np.float32(1.2) - np.abs(_distance_to_lattice(u, v, spacing) - radius), 1.2)


def _circles(x: Pattern, y: Pattern, generator: np.random.Generator) -> Pattern:
    centre = generator.uniform(-4, 4, 2).astype(np.float32)
    radius = np.hypot(x - centre[0], y - centre[1]) + np.float32(generator.uniform(0, 12))
    return _step(_wave(radius, generator.uniform(8, 12)), 0.35)


def _rhombi(x: Pattern, y: Pattern, generator: np.random.Generator) -> Pattern:
    u, v = _turned(x, y, generator, 0, 20)
    period = generator.uniform(13, 17)
    slope = np.float32(generator.uniform(0.5, 0.6))
    return _step(_wave(u + slope * v, period) * _wave(u - slope * v, period), 0.3)


def _marble(x: Pattern, y: Pattern, generator: np.random.Generator) -> Pattern:
    # Noise has no origin that would have to follow the object.
    noise = smooth_noise(generator, int(generator.integers(5, 8)), len(x))
    return _step(_wave(noise + np.float32(generator.uniform(0, 1)), generator.uniform(0.7, 0.9)), 0.35)


def _rays(x: Pattern, y: Pattern, generator: np.random.Generator) -> Pattern:
    centre = generator.uniform(-3, 3, 2).astype(np.float32)
    angle = np.arctan2(y - centre[1], x - centre[0]) + np.float32(generator.uniform(0, 2 * np.pi))
    return _step(np.sin(np.float32(generator.integers(8, 13)) * angle), 0.2)


def _chevrons(x: Pattern, y: Pattern, generator: np.random.Generator) -> Pattern:
    u, v = _turned(x, y, generator, 0, 180)
    width = generator.uniform(14, 18)
    height = np.abs(_wrapped(u, width) - np.float32(width / 2))
    return _step(_wave(v + height, generator.uniform(8, 11)), 1.2)


def _spots(x: Pattern, y: Pattern, generator: np.random.Generator) -> Pattern:
    u, v = _turned(x, y, generator, 0, 180)
    spacing = np.float32(generator.uniform(9, 12))
    column, row = np.floor(u / spacing), np.floor(v / spacing)
    place = column.astype(np.int32) % 16, row.astype(np.int32) % 16
    # In every cell of a grid a spot of its own radius, so far from the middle as it stays within the cell.
    radius = (spacing * generator.uniform(0.22, 0.42, (16, 16))).astype(np.float32)
    free = spacing / 2 - radius
    across, down = (free * generator.uniform(-1, 1, (16, 16)).astype(np.float32) for _ in range(2))
    from_middle = (u - (column + np.float32(0.5)) * spacing, v - (row + np.float32(0.5)) * spacing)
    distance = np.hypot(from_middle[0] - across[place], from_middle[1] - down[place])
    return _step(radius[place] - distance, 0.8)


def _crosses(x: Pattern, y: Pattern, generator: np.random.Generator) -> Pattern:
    u, v = _turned(x, y, generator, 0, 45)
    spacing = generator.uniform(11, 14)
    middle = np.float32(spacing / 2)
    across, down = np.abs(_wrapped(u, spacing) - middle), np.abs(_wrapped(v, spacing) - middle)
    longer, shorter = np.maximum(across, down), np.minimum(across, down)
    return np.minimum(_step(np.float32(0.36 * spacing) - longer, 1.2), _step(np.float32(1.5) - shorter, 1.2))


Fill = Callable[[Pattern, Pattern, np.random.Generator], Pattern]
FILLS: tuple[Fill, ...] = (_bars, _rings, _circles, _rhombi, _marble, _rays, _chevrons, _spots, _crosses)
"""Texture of each class: from coordinates around the object's middle, in reference pixels, to a pattern in [0, 1]."""


def draw_fill_pattern(
    class_index: int, middle: NDArray[np.float64], size: int, generator: np.random.Generator
) -> Pattern:
    """Draw the texture of a class around the middle of an object.

    Args:
        class_index: 0 to 8, an index of `FILLS`.
        middle: x and y of the middle of the object's box, in sides of the picture.
        size: Side of the picture in pixels.
        generator: Source of every draw.

    Returns:
        Shape (size, size), in [0, 1]; defined on the whole picture, meant to be seen where the object covers it.
    """
    x, y = _pixel_grid(size)
    left, top = (middle * _REFERENCE_SIZE).astype(np.float32)
    return FILLS[class_index](x - left, y - top, generator)
