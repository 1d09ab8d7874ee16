"""Localizer `center_box`: a box in the middle of every picture, a baseline that looks at none."""

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
        side_fraction: Its sides as a share of the picture's.
    """

    name: Literal["center_box"] = "center_box"
    needs_network: ClassVar[bool] = False

    side_fraction: Annotated[float, Field(gt=0, le=1)]

    def build(self, network: Network) -> SoftMaps:
        """Needs nothing."""

        def find(group: Group) -> NDArray[np.float32]:
            num_images, height, width = group.images.shape[:3]
            return np.repeat(center_box(height, width, self.side_fraction).astype(np.float32)[None], num_images, axis=0)

        return find


def center_box_edges(height: int, width: int, side_fraction: float) -> tuple[int, int, int, int]:
    """Edges of a centred box whose sides are a fraction of the picture's.

    Args:
        height: Of the picture in pixels.
        width: Of the picture in pixels.
        side_fraction: In (0, 1]; the box has whole pixels, at least one a side.

    Returns:
        Top, left, bottom and right edge in pixels, the last two exclusive.

    Raises:
        InputError: A fraction outside (0, 1].
    """
    if not 0 < side_fraction <= 1:
        raise InputError("side_fraction", side_fraction, "must lie in (0, 1]", "Give a share of the sides.")
    box_height, box_width = max(1, round(height * side_fraction)), max(1, round(width * side_fraction))
    top, left = (height - box_height) // 2, (width - box_width) // 2
    return top, left, top + box_height, left + box_width


def center_box(height: int, width: int, side_fraction: float) -> NDArray[np.bool_]:
    """Boolean mask (height, width) of the box of `center_box_edges`, whose arguments and errors it shares."""
    top, left, bottom, right = center_box_edges(height, width, side_fraction)
    mask = np.zeros((height, width), dtype=np.bool_)
    mask[top:bottom, left:right] = True
    return mask
