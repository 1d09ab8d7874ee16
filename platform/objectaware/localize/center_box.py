"""Localizer `center_box`: a box in the middle of every picture, a baseline that does not look at the picture."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from objectaware.config.localize import Localizer
from objectaware.errors import InputError
from objectaware.localize.localizer import Group, Network, SoftMaps


class CenterBox(Localizer):
    """A centred box.

    Attributes:
        side_fraction: Sides of the box as a fraction of the picture's sides.
    """

    name: Literal["center_box"] = "center_box"
    needs_network: ClassVar[bool] = False

    side_fraction: Annotated[float, Field(gt=0, le=1)]

    def build(self, network: Network) -> SoftMaps:
        """Return the function that finds soft maps; the network is not used."""

        def find(group: Group) -> NDArray[np.float32]:
            num_images, height, width = group.images.shape[:3]
            return np.tile(center_box(height, width, self.side_fraction).astype(np.float32), (num_images, 1, 1))

        return find


def center_box_edges(height: int, width: int, side_fraction: float) -> tuple[int, int, int, int]:
    """Return the edges of a centred box whose sides are a fraction of the picture's sides.

    Args:
        height: Height of the picture in pixels.
        width: Width of the picture in pixels.
        side_fraction: Fraction in (0, 1]. The box has whole pixels, at least one per side.

    Returns:
        Top, left, bottom and right edge in pixels, the last two exclusive.

    Raises:
        InputError: The fraction lies outside (0, 1].
    """
    if not 0 < side_fraction <= 1:
        raise InputError("side_fraction", side_fraction, "must lie in (0, 1]", "Give a fraction of the sides.")
    box_height, box_width = max(1, round(height * side_fraction)), max(1, round(width * side_fraction))
    top, left = (height - box_height) // 2, (width - box_width) // 2
    return top, left, top + box_height, left + box_width


def center_box(height: int, width: int, side_fraction: float) -> NDArray[np.bool_]:
    """Return the boolean mask (height, width) of a centred box; arguments and errors are as in `center_box_edges`."""
    top, left, bottom, right = center_box_edges(height, width, side_fraction)
    mask = np.zeros((height, width), dtype=np.bool_)
    mask[top:bottom, left:right] = True
    return mask
