"""The pictures of `scenes`: outlines of objects, what each picture shows, its composition, and its variants.

A plan is drawn before any pixel: classes of objects, family of background, donors of the mixed variants. The variants
show which part of a picture a classifier looks at, as those of the Backgrounds Challenge do.

Source:
    Xiao et al. 2021, "Noise or Signal: The Role of Image Backgrounds in Object Recognition", section 3 and table 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal, TypeVar, get_args

import cv2
import numpy as np
from numpy.typing import NDArray

from objectaware.data.scenes.textures import draw_background, draw_fill, draw_muted_palette, draw_palette

CLASS_NAMES = ("disk", "triangle", "square", "star", "plus sign", "ring", "crescent", "heart", "arrow")
CLASS_FOLDERS = tuple(f"{index:02d}_{name}" for index, name in enumerate(CLASS_NAMES))

_MAX_ROTATION = np.deg2rad(25.0)
_MAX_LOG_ELONGATION = 0.22
_MAX_BULGE = 0.05
_SUPERSAMPLING = 4
_FIXED_POINT_BITS = 4

Contours = list[NDArray[np.float64]]
Pixels = TypeVar("Pixels", bound=np.generic)


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


def rasterise(contours: Contours, image_size: int) -> NDArray[np.float32]:
    """Return the coverage of every pixel by an outline, antialiased by supersampling.

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


NUM_CLASSES = len(CLASS_NAMES)
SceneVariant = Literal["single-object", "multi-object"]
Split = Literal["train", "val"]
SPLITS: tuple[Split, ...] = get_args(Split)
StreamName = Literal["plan", "objects", "background", "mixed_same", "mixed_rand", "mixed_next"]
_STREAMS: tuple[StreamName, ...] = get_args(StreamName)
# Class c is usually seen with class PARTNERS[c], and so each class has two usual companions.
PARTNERS = tuple((index + 1) % NUM_CLASSES for index in range(NUM_CLASSES))


@dataclass(frozen=True)
class ScenePlan:
    """The content of one picture.

    Attributes:
        seed: Seed of the data set.
        split: The picture's split.
        index: The picture's number in its split.
        classes: Classes of its objects, 0 to 8; the first is the picture's own.
        family: Family of its background, 0 to 8.
        same_family: Family of the background of another picture of the same class.
        random_class: A class drawn uniformly from all nine.
        random_family: Family of the background of a picture of that class.
        next_family: Family of the background of a picture of the next class.
    """

    seed: int
    split: Split
    index: int
    classes: tuple[int, ...]
    family: int
    same_family: int
    random_class: int
    random_family: int
    next_family: int

    def stream(self, name: StreamName) -> np.random.Generator:
        """Return the random stream for one part of the picture."""
        return random_stream(self.seed, self.split, self.index, name)


def random_stream(seed: int, split: Split, index: int, stream: StreamName) -> np.random.Generator:
    """Return the random stream for one part of one picture. Streams of other arguments are independent of it.

    Args:
        seed: Seed of the data set, at least 0.
        split: The picture's split.
        index: The picture's number in its split.
        stream: The part of the picture that is drawn.
    """
    key = [seed, SPLITS.index(split), index, _STREAMS.index(stream)]
    return np.random.default_rng(np.random.SeedSequence(key))


def _draw_companion(usual: int, correlation: float, generator: np.random.Generator) -> int:
    """Return `usual` with probability `correlation`, else uniformly one of the other eight."""
    if generator.random() < correlation:
        return usual
    return (usual + int(generator.integers(1, NUM_CLASSES))) % NUM_CLASSES


def draw_plan(seed: int, split: Split, index: int, *, variant: SceneVariant, correlation: float) -> ScenePlan:
    """Draw what picture `index` of a split shows.

    Classes take turns, so that they are balanced. The donors of the mixed variants (Xiao et al. 2021, "Noise
    or Signal", section 3) are backgrounds drawn again by the law of their class, not those of other
    pictures. So a picture depends only on its own number, and not on how many pictures there are.

    Args:
        seed: Seed of the data set, at least 0.
        split: The picture's split.
        index: The picture's number in its split.
        variant: One object, or two to three of classes that go together.
        correlation: Probability that a class goes with its own family and its own partner, in [0, 1].

    Returns:
        The picture's plan.
    """
    generator = random_stream(seed, split, index, "plan")
    own_class = index % NUM_CLASSES
    family = _draw_companion(own_class, correlation, generator)
    random_class = int(generator.integers(NUM_CLASSES))
    same_family = _draw_companion(own_class, correlation, generator)
    random_family = _draw_companion(random_class, correlation, generator)
    next_family = _draw_companion((own_class + 1) % NUM_CLASSES, correlation, generator)
    classes: tuple[int, ...] = (own_class,)
    if variant == "multi-object":
        partner = _draw_companion(PARTNERS[own_class], correlation, generator)
        third = (own_class, partner)[int(generator.integers(2))]
        classes = (own_class, partner, third)[: int(generator.integers(2, 4))]
    return ScenePlan(seed, split, index, classes, family, same_family, random_class, random_family, next_family)


AREA_RANGE = (0.10, 0.40)
PART_AREA_RANGE = (0.04, 0.16)
MAX_OVERLAP = 0.10
# Photographs cut objects off, too. Were every object whole, large ones would all lie in the middle of the
# picture, and a fixed box there would find them: mean IoU 0.44 instead of 0.31.
MIN_VISIBLE_PART = 0.75
# A mask of whole pixels misses the drawn area by a few of them; drawn areas keep this far inside their range.
_AREA_TOLERANCE = 0.003
_MAX_SCALINGS = 10
# Every picture keeps a strip of background beside its object, for the variant that tiles it.
_MAX_EXTENT = 0.9


@dataclass(frozen=True)
class ObjectLayer:
    """One object, ready to be laid over any background.

    Attributes:
        colours: Surface, shape (H, H, 3), 0 to 255.
        coverage: Coverage of every pixel, shape (H, H), in [0, 1].
        palette: The two colours it was painted with, shape (2, 3), 0 to 255.
    """

    colours: NDArray[np.float32]
    coverage: NDArray[np.float32]
    palette: NDArray[np.float64]


@dataclass(frozen=True)
class _PlacedOutline:
    box: NDArray[np.float64]
    coverage: NDArray[np.float32]


def _scale_to_area(
    outline: Contours, centre: NDArray[np.float64], fraction: float, image_size: int
) -> _PlacedOutline | None:
    """Scale an outline of area 1 until its part in the picture covers a fraction. Return None if that fails."""
    scale = np.sqrt(fraction)
    for _ in range(_MAX_SCALINGS):
        contours = [scale * contour + centre for contour in outline]
        coverage = rasterise(contours, image_size)
        mask = coverage > 0.5
        measured = float(mask.mean())
        if measured < MIN_VISIBLE_PART * scale**2:
            return None
        if abs(measured - fraction) <= _AREA_TOLERANCE:
            extent = min(mask.any(axis=0).mean(), mask.any(axis=1).mean())
            box = np.concatenate([contours[0].min(axis=0), contours[0].max(axis=0)])
            return _PlacedOutline(box, coverage) if extent <= _MAX_EXTENT else None
        scale *= np.sqrt(fraction / measured)
    return None


def _place_outline(
    class_index: int, fraction: float, image_size: int, generator: np.random.Generator
) -> _PlacedOutline:
    """Draw an outline that covers a fraction of the picture, its centre uniform over where it fits."""
    while True:
        outline = draw_outline(class_index, generator)
        placed = _scale_to_area(outline, generator.uniform(0, 1, 2), fraction, image_size)
        if placed is not None:
            return placed


def visible_masks(coverages: Sequence[NDArray[np.float32]]) -> NDArray[np.bool_]:
    """Return the masks of objects laid over each other, the last on top.

    Args:
        coverages: Coverage of every pixel by each object, each of shape (H, H), in [0, 1].

    Returns:
        Shape (num_objects, H, H): the pixels of which more than half show the object. They do not overlap.
    """
    masks = np.zeros((len(coverages), *coverages[0].shape), bool)
    unobstructed = np.ones_like(coverages[0])
    for number in reversed(range(len(coverages))):
        masks[number] = coverages[number] * unobstructed > 0.5
        unobstructed = unobstructed * (1 - coverages[number])
    return masks


def _fits_together(coverages: Sequence[NDArray[np.float32]]) -> bool:
    """Tell whether objects overlap little, and each and all of them cover an allowed share of the picture."""
    whole = np.stack(coverages) > 0.5
    for first, second in combinations(whole, 2):
        if (first & second).sum() >= MAX_OVERLAP * min(first.sum(), second.sum()):
            return False
    fractions = visible_masks(coverages).mean(axis=(1, 2))
    in_range = (fractions >= PART_AREA_RANGE[0]) & (fractions <= PART_AREA_RANGE[1])
    return bool(in_range.all() and AREA_RANGE[0] <= fractions.sum() <= AREA_RANGE[1])


def _place_outlines(classes: Sequence[int], image_size: int, generator: np.random.Generator) -> list[_PlacedOutline]:
    if len(classes) == 1:
        low, high = AREA_RANGE[0] + _AREA_TOLERANCE, AREA_RANGE[1] - _AREA_TOLERANCE
        return [_place_outline(classes[0], generator.uniform(low, high), image_size, generator)]
    low, high = PART_AREA_RANGE[0] + _AREA_TOLERANCE, PART_AREA_RANGE[1] - _AREA_TOLERANCE
    while True:
        fractions = generator.uniform(low, high, len(classes))
        if not AREA_RANGE[0] <= fractions.sum() <= AREA_RANGE[1]:
            continue
        placed = [
            _place_outline(class_index, fraction, image_size, generator)
            for class_index, fraction in zip(classes, fractions, strict=True)
        ]
        if _fits_together([outline.coverage for outline in placed]):
            return placed


def draw_objects(classes: Sequence[int], image_size: int, generator: np.random.Generator) -> list[ObjectLayer]:
    """Draw a picture's objects: one covers 10 to 40% of it, of several each 4 to 16% and all 10 to 40%.

    An object's centre is uniform over the positions where at least three quarters of it lie in the picture.

    Args:
        classes: Classes of the objects, 0 to 8, the lowest first.
        image_size: Side of the picture in pixels.
        generator: Source of every draw.

    Returns:
        One layer per object, in the same order.
    """
    layers = []
    for class_index, outline in zip(classes, _place_outlines(classes, image_size, generator), strict=True):
        palette = draw_palette(generator)
        colours = draw_fill(class_index, outline.coverage, outline.box, palette, generator)
        layers.append(ObjectLayer(colours, outline.coverage, palette))
    return layers


def draw_backdrop(
    family: int, layers: Sequence[ObjectLayer], image_size: int, generator: np.random.Generator
) -> NDArray[np.float32]:
    """Draw a background of a family in colours on which the objects are visible.

    Args:
        family: 0 to 8, an index of `FAMILIES` in `textures.py`.
        layers: The objects that will lie on it.
        image_size: Side of the picture in pixels.
        generator: Source of every draw.

    Returns:
        Shape (image_size, image_size, 3), 0 to 255.
    """
    palettes = np.stack([layer.palette for layer in layers])  # (objects, 2, 3)
    # A background between an object's two colours would have the object's colour as a whole.
    avoid = np.concatenate([palettes, palettes.mean(axis=1, keepdims=True)], axis=1).reshape(-1, 3)
    palette = draw_muted_palette(generator, avoid)
    return draw_background(family, palette, image_size, generator)


def composite(background: NDArray[np.float32], layers: Sequence[ObjectLayer]) -> NDArray[np.uint8]:
    """Lay objects over a background, the last on top, with antialiased edges.

    Args:
        background: Shape (H, H, 3), 0 to 255.
        layers: The objects.

    Returns:
        The picture, shape (H, H, 3).
    """
    picture = background
    for layer in layers:
        picture = picture + layer.coverage[:, :, None] * (layer.colours - picture)
    return np.round(picture).astype(np.uint8)


def mask_box(mask: NDArray[np.bool_]) -> tuple[int, int, int, int]:
    """Return the smallest box around a mask.

    Args:
        mask: Shape (H, W), not empty.

    Returns:
        Left, top, right and bottom in pixels, the last two exclusive.
    """
    left, top, width, height = cv2.boundingRect(mask.astype(np.uint8))
    return left, top, left + width, top + height


def black_out_box(image: NDArray[np.uint8], mask: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """Return the picture with its object's bounding box black (`only_bg_b`).

    Args:
        image: Shape (H, W, 3).
        mask: The object, shape (H, W).

    Returns:
        A new picture of the same shape.
    """
    left, top, right, bottom = mask_box(mask)
    result = image.copy()
    result[top:bottom, left:right] = 0
    return result


def largest_strip(image: NDArray[Pixels], mask: NDArray[np.bool_]) -> NDArray[Pixels]:
    """Return the largest rectangle of a picture that holds nothing of the object's bounding box.

    It spans the picture: it is the largest of the four strips above, below, left and right of the box.

    Args:
        image: Shape (H, W, …).
        mask: The object, shape (H, W).

    Returns:
        A view of the picture. It is empty where the box spans the picture.
    """
    left, top, right, bottom = mask_box(mask)
    return max((image[:top], image[bottom:], image[:, :left], image[:, right:]), key=lambda strip: strip.size)


def tile_over_box(image: NDArray[np.uint8], mask: NDArray[np.bool_], *, from_corner: bool = False) -> NDArray[np.uint8]:
    """Return the picture with its object's bounding box covered by background from beside it (`only_bg_t`).

    The largest strip beside the box is repeated over it.

    Args:
        image: Shape (H, W, 3); the box must leave some of it free.
        mask: The object, shape (H, W).
        from_corner: Whether repetitions begin at the picture's top left corner, as if all of it were tiled, or at the
            box's, as in the scenes.

    Returns:
        A new picture of the same shape.
    """
    left, top, right, bottom = mask_box(mask)
    strip = largest_strip(image, mask)
    first_row, first_column = (0, 0) if from_corner else (top, left)
    rows = (np.arange(top, bottom) - first_row) % strip.shape[0]
    columns = (np.arange(left, right) - first_column) % strip.shape[1]
    result = image.copy()
    result[top:bottom, left:right] = strip[rows[:, None], columns]
    return result


def render_variants(plan: ScenePlan, image_size: int) -> tuple[dict[str, NDArray[np.uint8]], NDArray[np.bool_]]:
    """Render all variants of a picture with one object, which keeps its place, size and surface in all.

    Args:
        plan: What the picture shows, from `draw_plan`.
        image_size: Side of the picture in pixels.

    Returns:
        The pictures by name of the variant, each of shape (image_size, image_size, 3), and the object's mask of shape
        (image_size, image_size).
    """
    layers = draw_objects(plan.classes, image_size, plan.stream("objects"))
    mask = visible_masks([layer.coverage for layer in layers])[0]

    def on_background(family: int, stream: StreamName) -> NDArray[np.uint8]:
        return composite(draw_backdrop(family, layers, image_size, plan.stream(stream)), layers)

    original = on_background(plan.family, "background")
    pictures = {
        "original": original,
        "mixed_same": on_background(plan.same_family, "mixed_same"),
        "mixed_rand": on_background(plan.random_family, "mixed_rand"),
        "mixed_next": on_background(plan.next_family, "mixed_next"),
        "only_fg": original * mask[:, :, None],
        "no_fg": original * ~mask[:, :, None],
        "only_bg_b": black_out_box(original, mask),
        "only_bg_t": tile_over_box(original, mask),
    }
    return pictures, mask


def render_scene(plan: ScenePlan, image_size: int) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
    """Render a picture with one object or several.

    Args:
        plan: What the picture shows, from `draw_plan`.
        image_size: Side of the picture in pixels.

    Returns:
        The picture, shape (image_size, image_size, 3), and the visible part of each object in the order of
        `plan.classes`, shape (num_objects, image_size, image_size).
    """
    layers = draw_objects(plan.classes, image_size, plan.stream("objects"))
    backdrop = draw_backdrop(plan.family, layers, image_size, plan.stream("background"))
    return composite(backdrop, layers), visible_masks([layer.coverage for layer in layers])
