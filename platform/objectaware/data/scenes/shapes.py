"""Outlines of the nine classes of object."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

CLASS_NAMES = ("disk", "triangle", "square", "star", "plus sign", "ring", "crescent", "heart", "arrow")
CLASS_FOLDERS = tuple(f"{index:02d}_{name}" for index, name in enumerate(CLASS_NAMES))

_MAX_ROTATION = np.deg2rad(25.0)
_MAX_LOG_ELONGATION = 0.22
_MAX_BULGE = 0.05
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
    """Cuts every edge into `pieces`, so that straight edges can bend."""
    steps = np.arange(pieces)[None, :, None] / pieces
    edges = np.roll(contour, -1, axis=0) - contour
    return (contour[:, None] + steps * edges[:, None]).reshape(-1, 2)


_SMOOTH_OUTLINES = tuple([_with_midpoints(contour) for contour in contours] for contours in _OUTLINES)


def outline_area(contours: Contours) -> float:
    """Area inside the outline by the shoelace formula; the second contour of an outline is a hole.

    Args:
        contours: One or two closed polygons of shape (n, 2), x before y, in any unit.

    Returns:
        The area in that unit squared.
    """
    areas = []
    for contour in contours:
        x, y = contour.T
        areas.append(abs(float(np.dot(x, np.roll(y, -1)) - np.dot(y, np.roll(x, -1)))) / 2)
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
    """Draws one outline of a class, rotated, stretched and bent a little.

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


def rasterise(contours: Contours, image_size: int) -> NDArray[np.float32]:
    """Coverage of every pixel by an outline, antialiased by supersampling.

    Args:
        contours: Polygons of shape (n, 2), x before y, in sides of the picture; what lies outside is cut.
        image_size: Side of the picture in pixels.

    Returns:
        Coverage in [0, 1], shape (image_size, image_size).
    """
    fine_size = image_size * _SUPERSAMPLING
    canvas = np.zeros((fine_size, fine_size), np.uint8)
    # OpenCV's coordinates name the middles of pixels, ours their edges.
    points = [np.round((contour * fine_size - 0.5) * (1 << _FIXED_POINT_BITS)).astype(np.int32) for contour in contours]
    cv2.fillPoly(canvas, points, 255, shift=_FIXED_POINT_BITS)
    coverage = cv2.resize(canvas, (image_size, image_size), interpolation=cv2.INTER_AREA)
    return coverage.astype(np.float32) / np.float32(255)
