"""Localizer `full_image`: the whole picture is the object, the baseline that every localizer has to beat."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np

from objectaware.config.localize import Localizer
from objectaware.localize.localizer import Network, SoftMaps


class FullImage(Localizer):
    """The whole picture."""

    name: Literal["full_image"] = "full_image"
    needs_network: ClassVar[bool] = False

    def build(self, network: Network) -> SoftMaps:
        """Return the function that finds soft maps; the network is not used."""
        return lambda group: np.ones(group.images.shape[:3], dtype=np.float32)
