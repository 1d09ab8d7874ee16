"""The pictures of `scenes`: what each picture shows, its composition, and its variants.

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

from objectaware.data.scenes.outlines import (
    NUM_CLASSES,
    Contours,
    draw_fragment_outlines,
    draw_outline,
    fill_outline,
    rasterise,
    shrink,
)
from objectaware.data.scenes.surfaces import (
    Atmosphere,
    draw_atmosphere,
    draw_light,
    draw_palettes,
    draw_tone,
    paint,
    standardise,
)
from objectaware.data.scenes.textures import FAMILIES, draw_fill_pattern

Pixels = TypeVar("Pixels", bound=np.generic)
SceneVariant = Literal["single-object", "multi-object"]
Split = Literal["train", "val"]
SPLITS: tuple[Split, ...] = get_args(Split)
StreamName = Literal["plan", "objects", "background", "mixed_same", "mixed_rand", "mixed_next", "atmosphere"]
_STREAMS: tuple[StreamName, ...] = get_args(StreamName)
# Class c is usually seen with class PARTNERS[c], and so each class has two usual companions.
PARTNERS = tuple((index + 1) % NUM_CLASSES for index in range(NUM_CLASSES))
# Clutter: sizes are relative to the picture's.
_NUM_FRAGMENTS = (4, 7)
_FRAGMENT_AREA = (0.012, 0.06)
_NUM_LINES = (2, 5)
_LINE_WIDTH = (0.012, 0.03)
_LINE_REACH = (0.15, 0.5)
_SUPERSAMPLING = 2


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
        colours: Surface, shape (3, H, H), around 0 to 255.
        coverage: Coverage of every pixel, shape (H, H), in [0, 1].
    """

    colours: NDArray[np.float32]
    coverage: NDArray[np.float32]


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


def draw_objects(
    classes: Sequence[int], tone: NDArray[np.float64], image_size: int, generator: np.random.Generator
) -> list[ObjectLayer]:
    """Draw a picture's objects: one covers 10 to 40% of it, of several each 4 to 16% and all 10 to 40%.

    An object's centre is uniform over the positions where at least three quarters of it lie in the picture.

    Args:
        classes: Classes of the objects, 0 to 8, the lowest first.
        tone: The tone of the picture, shape (3,).
        image_size: Side of the picture in pixels.
        generator: Source of every draw.

    Returns:
        One layer per object, in the same order.
    """
    layers = []
    for class_index, outline in zip(classes, _place_outlines(classes, image_size, generator), strict=True):
        middle = (outline.box[:2] + outline.box[2:]) / 2
        pattern = draw_fill_pattern(class_index, middle, image_size, generator)
        palettes = draw_palettes(tone, 1, generator)
        light = draw_light(outline.coverage, outline.box[None], generator)
        colours = paint(standardise(pattern, outline.coverage), palettes) * light
        layers.append(ObjectLayer(colours, outline.coverage))
    return layers


def draw_backdrop(
    family: int, tone: NDArray[np.float64], image_size: int, generator: np.random.Generator
) -> NDArray[np.float32]:
    """Draw a background of a family, with clutter on it.

    Args:
        family: 0 to 8, an index of `FAMILIES` in `textures.py`.
        tone: The tone of the picture, shape (3,).
        image_size: Side of the picture in pixels.
        generator: Source of every draw.

    Returns:
        Shape (3, image_size, image_size), around 0 to 255.
    """
    pattern = FAMILIES[family](generator, image_size)
    background = paint(standardise(pattern), draw_palettes(tone, 1, generator))
    return _add_clutter(background, family, tone, generator)


def _add_clutter(
    background: NDArray[np.float32], family: int, tone: NDArray[np.float64], generator: np.random.Generator
) -> NDArray[np.float32]:
    """Lay clutter over a background: lines, and fragments of another family, which belong to no object.

    Fragments are lit like an object. So neither an edge nor a change of texture says that there is an object.

    Args:
        background: Shape (3, H, H), around 0 to 255.
        family: Its family, 0 to 8.
        tone: The tone of the picture, shape (3,).
        generator: Source of every draw.

    Returns:
        A new background of the same shape.
    """
    size = background.shape[1]
    outlines = [*_draw_lines(generator), *_draw_fragments(generator)]
    canvas = np.zeros((size * _SUPERSAMPLING,) * 2, np.uint8)
    for place, outline in enumerate(outlines, start=1):
        fill_outline(canvas, [outline], place)
    # A pixel at an edge takes its number from beside it where its own corner is free.
    dilated = cv2.dilate(canvas[::_SUPERSAMPLING, ::_SUPERSAMPLING], np.ones((3, 3), np.uint8))
    number = np.maximum(dilated, 1).astype(np.intp) - 1
    coverage = shrink(cv2.threshold(canvas, 0, 255, cv2.THRESH_BINARY)[1].astype(np.uint8, copy=False), size)
    other = (family + int(generator.integers(1, len(FAMILIES)))) % len(FAMILIES)
    pattern = standardise(FAMILIES[other](generator, size))
    # Every second one shows it turned by a right angle.
    pattern = np.where(number % 2 == 0, pattern, pattern.T)
    palettes = draw_palettes(tone, len(outlines), generator)
    boxes = np.array([[*outline.min(axis=0), *outline.max(axis=0)] for outline in outlines])
    colours = paint(pattern, palettes, number) * draw_light(coverage, boxes, generator, number)
    return background + coverage * (colours - background)


def _draw_lines(generator: np.random.Generator) -> list[NDArray[np.float64]]:
    """Draw straight bars across a part of the picture, as polygons (4, 2) in sides of the picture."""
    count = int(generator.integers(*_NUM_LINES))
    middle, angle = generator.uniform(0, 1, (count, 2)), generator.uniform(0, np.pi, count)
    along = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    reach = generator.uniform(*_LINE_REACH, (count, 1)) * along
    half_width = generator.uniform(*_LINE_WIDTH, (count, 1)) / 2 * along[:, ::-1] * (-1, 1)
    corners = [reach + half_width, reach - half_width, -reach - half_width, -reach + half_width]
    return list(middle[:, None] + np.stack(corners, axis=1))


def _draw_fragments(generator: np.random.Generator) -> list[NDArray[np.float64]]:
    """Draw fragments anywhere in the picture, as polygons (n, 2) in sides of the picture."""
    count = int(generator.integers(*_NUM_FRAGMENTS))
    scales, middles = np.sqrt(generator.uniform(*_FRAGMENT_AREA, count)), generator.uniform(0, 1, (count, 2))
    outlines = draw_fragment_outlines(count, generator)
    return [scale * outline + middle for scale, outline, middle in zip(scales, outlines, middles, strict=True)]


def composite(
    background: NDArray[np.float32], layers: Sequence[ObjectLayer], atmosphere: Atmosphere
) -> NDArray[np.uint8]:
    """Lay objects over a background, the last on top, with antialiased edges, and the atmosphere over all of it.

    Args:
        background: Shape (3, H, H), around 0 to 255.
        layers: The objects.
        atmosphere: The picture's haze and light.

    Returns:
        The picture, shape (H, H, 3).
    """
    picture = background
    for layer in layers:
        picture = picture + layer.coverage * (layer.colours - picture)
    return atmosphere.over(picture)


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


@dataclass(frozen=True)
class _Stage:
    """All of a picture but its background: what its variants have in common."""

    tone: NDArray[np.float64]
    atmosphere: Atmosphere
    layers: list[ObjectLayer]

    @classmethod
    def of(cls, plan: ScenePlan, image_size: int) -> _Stage:
        generator = plan.stream("atmosphere")
        tone = draw_tone(generator)
        layers = draw_objects(plan.classes, tone, image_size, plan.stream("objects"))
        return cls(tone, draw_atmosphere(tone, image_size, generator), layers)

    def masks(self) -> NDArray[np.bool_]:
        return visible_masks([layer.coverage for layer in self.layers])

    def on_background(self, family: int, generator: np.random.Generator) -> NDArray[np.uint8]:
        size = len(self.layers[0].coverage)
        return composite(draw_backdrop(family, self.tone, size, generator), self.layers, self.atmosphere)


def render_variants(plan: ScenePlan, image_size: int) -> tuple[dict[str, NDArray[np.uint8]], NDArray[np.bool_]]:
    """Render all variants of a picture with one object, which keeps its place, size and surface in all.

    Args:
        plan: What the picture shows, from `draw_plan`.
        image_size: Side of the picture in pixels.

    Returns:
        The pictures by name of the variant, each of shape (image_size, image_size, 3), and the object's mask of shape
        (image_size, image_size).
    """
    stage = _Stage.of(plan, image_size)
    mask = stage.masks()[0]
    original = stage.on_background(plan.family, plan.stream("background"))
    pictures = {
        "original": original,
        "mixed_same": stage.on_background(plan.same_family, plan.stream("mixed_same")),
        "mixed_rand": stage.on_background(plan.random_family, plan.stream("mixed_rand")),
        "mixed_next": stage.on_background(plan.next_family, plan.stream("mixed_next")),
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
    stage = _Stage.of(plan, image_size)
    return stage.on_background(plan.family, plan.stream("background")), stage.masks()
