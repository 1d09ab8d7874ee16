"""The hooks through which a policy can change the positives."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from objectaware.config import DataConfig, MethodConfig, PolicyConfig
from objectaware.data.dataset import TrainingImages
from objectaware.methods.method import Mixing

Region = tuple[int, int, int, int]

NUM_POLICY_DRAWS = 2
"""Number of uniform random numbers that `region` and `change_patch` receive per call."""

NUM_MIX_DRAWS = 4
"""Number of uniform random numbers per sample that `mix_batch` receives."""


class Masks(Protocol):
    """Each image's soft mask, by index."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> NDArray[np.uint8] | None:
        """Return the mask of the whole image in 8 bits, (h, w) of any size; None if there is none."""
        ...


class Boxes(Protocol):
    """Each image's boxes, by index."""

    def __getitem__(self, index: int) -> NDArray[np.float32]:
        """Return relative boxes x0 y0 x1 y1, (n, 4); n may be 0."""
        ...


class Policy:
    """A change of the positives that knows where the objects are. This base changes nothing.

    Attributes:
        needs_masks: Whether `mix_batch` needs the masks under view 1.
    """

    needs_masks = False

    def region(self, index: int, height: int, width: int, draws: NDArray[np.float64]) -> Region:
        """Return the part of image `index`, (top, left, height, width), from which both views are cropped.

        Here it is the whole image.
        """
        return 0, 0, height, width

    def change_patch(
        self,
        patch: NDArray[np.uint8],
        index: int,
        crop: Region,
        height: int,
        width: int,
        draws: NDArray[np.float64],
    ) -> NDArray[np.uint8]:
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

    def build(
        self, *, data: DataConfig, images: TrainingImages, method: MethodConfig, cache_folder: Path
    ) -> PlainViews:
        """Build the policy."""
        return PlainViews()


class PlainViews(Policy):
    """Policy `none`: the whole image, unchanged."""
