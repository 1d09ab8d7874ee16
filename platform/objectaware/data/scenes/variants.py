"""The variants of a picture that tell what a classifier looks at, as in the Backgrounds Challenge.

Source: Xiao et al. 2021, "Noise or Signal: The Role of Image Backgrounds in Object Recognition", section 3
and table 1.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from objectaware.data.scenes.compose import composite, draw_backdrop, draw_objects, visible_masks
from objectaware.data.scenes.plan import ScenePlan, Split, StreamName, random_stream

VARIANT_NAMES = (
    "original",
    "mixed_same",
    "mixed_rand",
    "mixed_next",
    "only_fg",
    "no_fg",
    "only_bg_b",
    "only_bg_t",
)


def mask_box(mask: NDArray[np.bool_]) -> tuple[int, int, int, int]:
    """The smallest box around a mask.

    Args:
        mask: Shape (H, W), not empty.

    Returns:
        Left, top, right and bottom in pixels, the last two exclusive.
    """
    columns = np.flatnonzero(mask.any(axis=0))
    rows = np.flatnonzero(mask.any(axis=1))
    return int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1


def black_out_box(image: NDArray[np.uint8], mask: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """The picture with its object's bounding box black (`only_bg_b`).

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


def tile_over_box(image: NDArray[np.uint8], mask: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """The picture with its object's bounding box covered by background from beside it (`only_bg_t`).

    The largest of the four strips above, below, left and right of the box is repeated over it.

    Args:
        image: Shape (H, W, 3); the box must leave some of it free.
        mask: The object, shape (H, W).

    Returns:
        A new picture of the same shape.
    """
    left, top, right, bottom = mask_box(mask)
    strips = [image[:top], image[bottom:], image[:, :left], image[:, right:]]
    strip = max(strips, key=lambda candidate: candidate.size)
    height, width = bottom - top, right - left
    repeats = (-(-height // strip.shape[0]), -(-width // strip.shape[1]), 1)
    result = image.copy()
    result[top:bottom, left:right] = np.tile(strip, repeats)[:height, :width]
    return result


def render_variants(
    plan: ScenePlan, seed: int, split: Split, index: int, image_size: int
) -> tuple[dict[str, NDArray[np.uint8]], NDArray[np.bool_]]:
    """Renders all variants of a picture with one object, which keeps its place, size and surface in all.

    Args:
        plan: What the picture shows, from `draw_plan`.
        seed: Seed of the data set.
        split: The picture's split.
        index: The picture's number in its split.
        image_size: Side of the picture in pixels.

    Returns:
        The pictures by the names in `VARIANT_NAMES`, each of shape (image_size, image_size, 3), and the
        object's mask of shape (image_size, image_size).
    """
    layers = draw_objects(plan.classes, image_size, random_stream(seed, split, index, "objects"))
    mask = visible_masks([layer.coverage for layer in layers])[0]

    def on_background(family: int, stream: StreamName) -> NDArray[np.uint8]:
        generator = random_stream(seed, split, index, stream)
        return composite(draw_backdrop(family, layers, image_size, generator), layers)

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


def render_scene(
    plan: ScenePlan, seed: int, split: Split, index: int, image_size: int
) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
    """Renders a picture with one object or several.

    Args:
        plan: What the picture shows, from `draw_plan`.
        seed: Seed of the data set.
        split: The picture's split.
        index: The picture's number in its split.
        image_size: Side of the picture in pixels.

    Returns:
        The picture, shape (image_size, image_size, 3), and the visible part of each object in the order of
        `plan.classes`, shape (num_objects, image_size, image_size).
    """
    layers = draw_objects(plan.classes, image_size, random_stream(seed, split, index, "objects"))
    backdrop = draw_backdrop(plan.family, layers, image_size, random_stream(seed, split, index, "background"))
    return composite(backdrop, layers), visible_masks([layer.coverage for layer in layers])
