"""The hooks through which a policy can change the positives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from objectaware.config import PolicyConfig, PolicyInputs
from objectaware.methods.method import Mixing

Region = tuple[int, int, int, int]
"""Part of an image in its pixels: top, left, height, width."""
Pixels = NDArray[np.uint8]
"""Pixels of an image or a part of it, (H, W, 3)."""
Masks = Callable[[int], NDArray[np.uint8] | None]
"""Function from an image's index to the mask of the whole image in 8 bits, (h, w) of any size, or None."""
Boxes = Callable[[int], NDArray[np.float32]]
"""Function from an image's index to its relative boxes x0 y0 x1 y1, (n, 4); n may be 0."""
Draws = NDArray[np.float64]
"""Uniform random numbers in [0, 1)."""

NUM_POLICY_DRAWS = 2
"""Number of uniform random numbers that `region` and `change_patch` receive per call."""

NUM_MIX_DRAWS = 4
"""Number of uniform random numbers per sample that `mix_batch` receives."""


class Policy:
    """A change of the positives that knows where the objects are. This base changes nothing.

    Attributes:
        needs_masks: Whether `mix_batch` needs the masks under view 1.
    """

    needs_masks = False

    def region(self, index: int, height: int, width: int, draws: Draws) -> Region:
        """Return the part of image `index`, (top, left, height, width), from which both views are cropped.

        Here it is the whole image.
        """
        return 0, 0, height, width

    def change_patch(self, patch: Pixels, index: int, crop: Region, height: int, width: int, draws: Draws) -> Pixels:
        """Change one view's pixels before the view is resized; the base returns them unchanged.

        The patch was cut out at `crop` of image `index`, which has this height and width.
        """
        return patch

    def patch_mask(self, index: int, crop: Region, height: int, width: int) -> NDArray[np.uint8] | None:
        """Return the mask under `crop` of image `index`, which has this height and width, at the crop's resolution.

        Only policies with `needs_masks` are asked for it. None, as here, counts as a mask without any object.
        """
        return None

    def mix_batch(self, view: Tensor, draws: Tensor, masks: Tensor | None) -> tuple[Tensor, Mixing | None]:
        """Change a worker's whole batch of first views on the training device, after colours and normalisation.

        The loop calls it once per step, in the order of the steps.

        Args:
            view: First views, shape (N, 3, H, W); not changed in place.
            draws: Uniform random numbers of each sample, functions of seed, epoch and sample, (N, NUM_MIX_DRAWS) on
                the CPU.
            masks: Masks under the views in 8 bits, cropped and mirrored with them, (N, 1, H, W) uint8 on the CPU; only
                with `needs_masks`.

        Returns:
            First views, and their mixture for the loss; here the unchanged views, and None.
        """
        return view, None

    def state(self) -> dict[str, Tensor]:
        """Return the state on which the next batches depend besides their samples; here nothing.

        The tensors have the same shapes on every worker.
        """
        return {}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Continue from a `state` of this worker."""
        assert not state, f"{type(self).__name__} has no state"


class PlainViewsConfig(PolicyConfig):
    """No change: both views are cropped from the whole image."""

    name: Literal["none"] = "none"

    def build(self, inputs: PolicyInputs) -> PlainViews:
        """Build the policy."""
        return PlainViews()


class PlainViews(Policy):
    """Policy `none`: the whole image, unchanged."""
