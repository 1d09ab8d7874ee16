"""The outlines of `scenes`: the shapes of the nine classes and of fragments, and how they become pixels."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

CLASS_NAMES = ("disk", "triangle", "square", "star", "plus sign", "ring", "crescent", "heart", "arrow")
NUM_CLASSES = len(CLASS_NAMES)
CLASS_FOLDERS = tuple(f"{index:02d}_{name}" for index, name in enumerate(CLASS_NAMES))

_MAX_ROTATION = np.deg2rad(25.0)
_MAX_LOG_ELONGATION = 0.22
_MAX_BULGE = 0.05
_MAX_FRAGMENT_STRETCH = 1.0
_FRAGMENT_POINTS = 48
_FRAGMENT_BULGE = 0.2
_SUPERSAMPLING = 4
_FIXED_POINT_BITS = 4

Contours = list[NDArray[np.float64]]


def _circle(radius: float, num_points: int = 64) -> NDArray[np.float64]:
    angle = np.linspace(0.0, 2 * np.pi, num_points, endpoint=False)
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)


def _star(num_points: int = 5, inner_radius: float = 0.56) -> NDArray[np.float64]:
    angle = np.pi * np.arange(2 * num_points) / num_points - np.pi / 2
    radius = np.where(np.arange(2 * num_points) % 2 == 0, 1.0, inner_radius)
    return radius[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)


def _crescent(bite_radius: float = 0.7, bite_offset: float = 0.62) -> NDArray[np.float64]:
    # The unit disk less a second disk to its right: the outer arc between the horns, then the bite's back.
    horn_x = (1 - bite_radius**2 + bite_offset**2) / (2 * bite_offset)
    outer_angle = np.arccos(horn_x)
    inner_angle = np.arccos((horn_x - bite_offset) / bite_radius)
    outer = np.linspace(outer_angle, 2 * np.pi - outer_angle, 48)
    inner = np.linspace(2 * np.pi - inner_angle, inner_angle, 32)
    bite = np.stack([bite_offset + bite_radius * np.cos(inner), bite_radius * np.sin(inner)], axis=1)
    return np.concatenate([np.stack([np.cos(outer), np.sin(outer)], axis=1), bite])


def _heart() -> NDArray[np.float64]:
    t = np.linspace(0.0, 2 * np.pi, 64, endpoint=False)
    height = 13 * np.cos(t) - 5 * np.cos(2 * t) - 2 * np.cos(3 * t) - np.cos(4 * t)
    return np.stack([16 * np.sin(t) ** 3, -height], axis=1) / 16


def _plus_sign(half_width: float = 0.37) -> NDArray[np.float64]:
    w = half_width
    arm = np.array([(-w, -w), (-w, -1), (w, -1)])
    quarter_turn = np.array([(0, -1), (1, 0)])
    return np.concatenate([arm @ np.linalg.matrix_power(quarter_turn, turns).T for turns in range(4)])


_TRIANGLE = np.array([(0, -1.1), (0.95, 0.7), (-0.95, 0.7)])
_SQUARE = np.array([(-1.0, -1.0), (1.0, -1.0), (1.0, 1.0), (-1.0, 1.0)])
_ARROW = np.array([(0, -1), (0.95, 0.05), (0.44, 0.05), (0.44, 1), (-0.44, 1), (-0.44, 0.05), (-0.95, 0.05)])

_OUTLINES: tuple[Contours, ...] = (
    [_circle(1.0)],
    [_TRIANGLE],
    [_SQUARE],
    [_star()],
    [_plus_sign()],
    [_circle(1.0), _circle(0.52)],
    [_crescent()],
    [_heart()],
    [_ARROW],
)


def _with_midpoints(contour: NDArray[np.float64], pieces: int = 6) -> NDArray[np.float64]:
    """Cut every edge into `pieces`, so that straight edges can bend."""
    steps = np.arange(pieces)[None, :, None] / pieces
    edges = np.roll(contour, -1, axis=0) - contour
    return (contour[:, None] + steps * edges[:, None]).reshape(-1, 2)


_SMOOTH_OUTLINES = tuple([_with_midpoints(contour) for contour in contours] for contours in _OUTLINES)


def outline_area(contours: Contours) -> float:
    """Return the area inside an outline by the shoelace formula. The second contour of an outline is a hole.

    Args:
        contours: One or two closed polygons of shape (n, 2), x before y, in any unit.

    Returns:
        The area in that unit squared.
    """
    areas = []
    for contour in contours:
        x, y = contour.T
        inner = np.dot(x[:-1], y[1:]) - np.dot(y[:-1], x[1:])
        areas.append(abs(float(inner + x[-1] * y[0] - y[-1] * x[0])) / 2)
    return areas[0] - sum(areas[1:])


def _deform(contours: Contours, rotation: float, log_elongation: float, bulge: NDArray[np.float64]) -> Contours:
    cosine, sine = np.cos(rotation), np.sin(rotation)
    stretch = np.diag([np.exp(log_elongation / 2), np.exp(-log_elongation / 2)])
    linear = np.array([[cosine, -sine], [sine, cosine]]) @ stretch
    deformed = []
    for contour in contours:
        angle = np.arctan2(contour[:, 1], contour[:, 0])
        radius = 1 + bulge[0] * np.cos(2 * angle + bulge[2]) + bulge[1] * np.cos(3 * angle + bulge[3])
        deformed.append((contour * radius[:, None]) @ linear.T)
    return deformed


def draw_outline(class_index: int, generator: np.random.Generator) -> Contours:
    """Draw one outline of a class, rotated, stretched and bent a little.

    Args:
        class_index: 0 to 8, an index of `CLASS_NAMES`.
        generator: Source of every draw.

    Returns:
        Closed polygons of shape (n, 2), x before y, of area 1, the middle of their box at the origin.
    """
    rotation, log_elongation = generator.uniform(-1, 1, 2) * (_MAX_ROTATION, _MAX_LOG_ELONGATION)
    bulge = generator.uniform(0, 1, 4) * (_MAX_BULGE, _MAX_BULGE, 2 * np.pi, 2 * np.pi)
    contours = _deform(_SMOOTH_OUTLINES[class_index], rotation, log_elongation, bulge)
    middle = (contours[0].min(axis=0) + contours[0].max(axis=0)) / 2
    return [(contour - middle) / np.sqrt(outline_area(contours)) for contour in contours]


def draw_fragment_outlines(num_fragments: int, generator: np.random.Generator) -> list[NDArray[np.float64]]:
    """Draw outlines of fragments that belong to no class: smooth blobs, and splinters with corners.

    Args:
        num_fragments: How many.
        generator: Source of every draw.

    Returns:
        Closed polygons of shape (n, 2), x before y, of area about 1, around the origin.
    """
    angle = np.linspace(0, 2 * np.pi, _FRAGMENT_POINTS, endpoint=False)
    waves = np.arange(2, 6)[:, None]
    height, phase = generator.uniform(0, 1, (2, num_fragments, len(waves), 1))
    radius = 1 + (_FRAGMENT_BULGE * height * np.cos(waves * angle + 2 * np.pi * phase)).sum(axis=1)
    radius /= np.sqrt(np.pi * (radius**2).mean(axis=1, keepdims=True))
    stretch, turn, step = generator.uniform(-1, 1, (3, num_fragments, 1))
    across = radius * np.cos(angle) * np.exp(_MAX_FRAGMENT_STRETCH / 2 * stretch)
    along = radius * np.sin(angle) * np.exp(-_MAX_FRAGMENT_STRETCH / 2 * stretch)
    cosine, sine = np.cos(np.pi * turn), np.sin(np.pi * turn)
    contours = np.stack([cosine * across - sine * along, sine * across + cosine * along], axis=2)
    # Every eighth point of a blob makes a splinter of six corners.
    return [contour[:: 8 if is_splinter else 1] for contour, is_splinter in zip(contours, step > 0, strict=True)]


def rasterise(contours: Contours, image_size: int) -> NDArray[np.float32]:
    """Return the coverage of every pixel by an outline, antialiased by supersampling.

    Args:
        contours: Polygons of shape (n, 2), x before y, in sides of the picture; what lies outside is cut.
        image_size: Side of the picture in pixels.

    Returns:
        Coverage in [0, 1], shape (image_size, image_size).
    """
    canvas = np.zeros((image_size * _SUPERSAMPLING,) * 2, np.uint8)
    fill_outline(canvas, contours, 255)
    return shrink(canvas, image_size)


def fill_outline(canvas: NDArray[np.uint8], contours: Contours, value: int) -> None:
    """Fill an outline.

    Args:
        canvas: A square of any size for the picture; it is changed.
        contours: Polygons of shape (n, 2), x before y, in sides of the picture; what lies outside is cut.
        value: What to fill with.
    """
    # OpenCV's coordinates name the middles of pixels, ours their edges.
    fine = [(contour * len(canvas) - 0.5) * (1 << _FIXED_POINT_BITS) for contour in contours]
    cv2.fillPoly(canvas, [np.round(contour).astype(np.int32) for contour in fine], value, shift=_FIXED_POINT_BITS)


def shrink(canvas: NDArray[np.uint8], image_size: int) -> NDArray[np.float32]:
    """Return a supersampled canvas of 0 and 255 at the picture's size, as coverage in [0, 1]."""
    return cv2.resize(canvas, (image_size, image_size), interpolation=cv2.INTER_AREA).astype(np.float32) / np.float32(
        255
    )
