"""Policy `object_crop`: both views from around one object."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from objectaware.augment.object_crop import object_region
from objectaware.training.policies.base import Boxes, Policy, Region


class ObjectCrop(Policy):
    """Policy `object_crop`: both views from one box, drawn anew at each access (paper §2.3).

    Args:
        boxes: Each image's boxes.
    """

    def __init__(self, boxes: Boxes) -> None:
        self._boxes = boxes

    def region(self, index: int, height: int, width: int, draws: NDArray[np.float64]) -> Region:
        """One of the image's boxes, or the whole image where it has none."""
        return object_region(self._boxes[index], float(draws[0]), height, width)
