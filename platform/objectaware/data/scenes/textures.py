"""Nine families of background, told apart by texture and not by colour.

A family is a function that draws scale, phase and a small rotation and returns a pattern in [0, 1]. None
tells left from right, so that families survive a horizontal flip; elements repeat every 5 to 15 pixels of a
96-pixel picture, so that a small patch tells the family.
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
    """Noise that varies over `1 / num_cells` of the picture: a coarse random grid, enlarged.

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
    """A soft threshold at 0: rises from 0 to 1 while `value` runs over `softness`."""
    return np.clip(value / np.float32(softness) + np.float32(0.5), 0, 1)


def _coordinates(generator: np.random.Generator, size: int, max_degrees: float) -> tuple[Pattern, Pattern]:
    """Coordinates in reference pixels, shifted at random, rotated by up to `max_degrees`, gently warped."""
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
    """Soft lines of `width` reference pixels, one every `period`."""
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


FAMILY_PATTERNS: dict[str, Callable[[np.random.Generator, int], Pattern]] = {
    "stripes": _stripes,
    "checks": _checks,
    "bricks": _bricks,
    "dots": _dots,
    "waves": _waves,
    "cells": _cells,
    "clouds": _clouds,
    "hatching": _hatching,
    "scales": _scales,
}
FAMILY_NAMES = tuple(FAMILY_PATTERNS)


def draw_background(
    family: int, palette: NDArray[np.float64], image_size: int, generator: np.random.Generator
) -> NDArray[np.float32]:
    """Draws a background of a family: its pattern in two colours, under light that falls off slowly.

    Args:
        family: 0 to 8, an index of `FAMILY_NAMES`.
        palette: Two RGB colours, shape (2, 3), 0 to 255.
        image_size: Side of the picture in pixels.
        generator: Source of every draw.

    Returns:
        Shape (image_size, image_size, 3), 0 to 255.
    """
    pattern = FAMILY_PATTERNS[FAMILY_NAMES[family]](generator, image_size)[:, :, None]
    first, second = palette.astype(np.float32)
    light = 1 + np.float32(0.12) * smooth_noise(generator, 2, image_size)[:, :, None]
    return np.clip((first + pattern * (second - first)) * light, 0, 255)
