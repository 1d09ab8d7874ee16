"""The places in which a policy can change the positives."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from objectaware.config import DataConfig, MethodConfig, PolicyConfig
from objectaware.data.dataset import TrainingImages
from objectaware.methods.mixing import Mixing

Region = tuple[int, int, int, int]

NUM_POLICY_DRAWS = 2
"""Uniform numbers that `region` and `change_patch` are given a call."""

NUM_MIX_DRAWS = 4
"""Uniform numbers a sample that `mix_batch` is given."""


class Masks(Protocol):
    """Each image's soft mask, by index."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> NDArray[np.uint8] | None:
        """Mask in 8 bits of the whole image, (h, w) at any size; None where there is none."""
        ...


class Boxes(Protocol):
    """Each image's boxes, by index."""

    def __getitem__(self, index: int) -> NDArray[np.float32]:
        """Relative x0 y0 x1 y1, (n, 4); n may be 0."""
        ...


class Policy:
    """A change of the positives that knows where the objects are. This base changes nothing.

    Attributes:
        needs_masks: Whether `mix_batch` is to be given the masks under view 1.
    """

    needs_masks = False

    def region(self, index: int, height: int, width: int, draws: NDArray[np.float64]) -> Region:
        """Part of image `index`, (top, left, height, width), that both views are cropped from: here all of it."""
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
        """Changes one view's pixels, cut out of image `index` of that size at `crop`, before it is resized.

        Here the patch as it is.
        """
        return patch

    def patch_mask(self, index: int, crop: Region, height: int, width: int) -> NDArray[np.uint8] | None:
        """Mask of image `index` of that size under `crop`, at the crop's resolution, where `needs_masks`.

        None counts as a mask without any object, as it does here.
        """
        return None

    def mix_batch(self, view: Tensor, draws: Tensor, masks: Tensor | None) -> tuple[Tensor, Mixing | None]:
        """Changes a worker's whole batch of views 1 on the training device, after colours and normalisation.

        It is called once a step, in the order of the steps.

        Args:
            view: Views 1, shape (N, 3, H, W); not changed in place.
            draws: Uniform numbers of each sample, functions of seed, epoch and sample, (N, NUM_MIX_DRAWS) on the CPU.
            masks: Masks under the views in 8 bits, cropped and mirrored with them, (N, 1, H, W) uint8 on the CPU,
                where `needs_masks`.

        Returns:
            Views 1, and what the loss has to know of their mixture; here the views as they are, and None.
        """
        return view, None

    def state(self) -> dict[str, Tensor]:
        """What the next batches depend on besides their samples, of one shape on every worker; here nothing."""
        return {}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Goes on from a `state` of this worker."""
        assert not state, f"{type(self).__name__} has no state"


class PlainViewsConfig(PolicyConfig):
    """Nothing: both views are cropped from the whole image."""

    name: Literal["none"] = "none"

    def build(
        self, *, data: DataConfig, images: TrainingImages, method: MethodConfig, cache_folder: Path
    ) -> PlainViews:
        """Build the policy."""
        return PlainViews()


class PlainViews(Policy):
    """Policy `none`: the whole image, unchanged."""
