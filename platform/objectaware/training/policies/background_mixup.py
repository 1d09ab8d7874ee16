"""Policy `background_mixup`: the object on another image's background, as in the paper or as in the official code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Literal, Self

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from objectaware.augment.background import (
    BACKGROUND_THRESHOLD,
    cut_background,
    foreground_bounds,
    largest_empty_rectangles,
    mix_background,
    strip_background,
    tile,
)
from objectaware.augment.crop import crop_mask
from objectaware.config import MethodConfig, PolicyInputs
from objectaware.data.images import Images
from objectaware.data.masks import in_8_bits
from objectaware.errors import InputError
from objectaware.methods.method import Mixing
from objectaware.model import Fraction
from objectaware.training.policies.base import Draws, Masks, Pixels, Policy, Region
from objectaware.training.policies.masks import LocatedPolicyConfig

if TYPE_CHECKING:
    from objectaware.config import PretrainConfig

# Threshold of true masks, which are 0 and 1 except where resizing has blended their edges.
_BINARY_THRESHOLD = 0.5
_OFFICIAL_MIX_PROBABILITY = 0.4
_MAX_SIDE = 224
_CHUNK = 1024
_NUM_KEPT = 50


class BackgroundMixup(Policy):
    """Policy `background_mixup`: with some probability, each view independently gets another image's background.

    Donors are drawn from the whole data set, as a function of seed, epoch and sample. The number of workers therefore
    does not change the mixtures (paper §2.3, eq. 4; the official code draws donors from the batch).

    Args:
        images: The data set, for the donors' pixels.
        masks: Each image's soft mask.
        probability: p_mix, in [0, 1].
        threshold: Smallest value of a soft mask that is foreground when a background is cut out.

    Attributes:
        binarises: Whether weights are 0 and 1.
        donors: Indices of the images that have a background.
    """

    binarises: ClassVar[bool] = False

    def __init__(
        self, images: Images, masks: Masks, *, probability: float, threshold: float = BACKGROUND_THRESHOLD
    ) -> None:
        self._images, self._masks = images, masks
        self._probability, self._threshold = probability, threshold
        self._rectangles = background_rectangles(masks, len(images), threshold)
        self.donors = np.flatnonzero(self._rectangles[:, 2] > 0)

    def change_patch(self, patch: Pixels, index: int, crop: Region, height: int, width: int, draws: Draws) -> Pixels:
        """Put the patch's object on a donor's background, with probability p.

        Without a mask or a donor the patch stays unchanged.
        """
        mask = self._masks(index)
        if draws[0] >= self._probability or mask is None or not self.weights(mask).any() or not len(self.donors):
            return patch
        donor = int(self.donors[int(draws[1] * len(self.donors))])
        top, left, crop_height, crop_width = crop
        y, x, rows, columns, mask_height, mask_width = (int(value) for value in self._rectangles[donor])
        background = cut_background(self._images.read(donor), (y, x, rows, columns), mask_height, mask_width)
        tiled = tile(background, slice(top, top + crop_height), slice(left, left + crop_width))
        return mix_background(patch, self.weights(crop_mask(mask, crop, height, width)), tiled)

    def weights(self, mask: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Return the weights of the image's own pixels, in 8 bits: the soft mask itself (eq. 4), or 0 and 255."""
        return in_8_bits(mask >= self._threshold * 255) if self.binarises else mask


def background_rectangles(masks: Masks, num_images: int, threshold: float) -> NDArray[np.int64]:
    """Find the largest background rectangle of each mask.

    Masks are processed in chunks, and masks of one size together, so that memory use stays constant.

    Args:
        masks: Each image's soft mask.
        num_images: Number of images.
        threshold: Smallest value of a mask that is foreground, in [0, 1].

    Returns:
        (top, left, height, width) of the rectangle and (height, width) of the mask that was searched, in that mask's
        pixels, shape (N, 6); zeros if there is no mask or no background. Masks with sides above 224 pixels, which are
        as large as their photos, are shrunk first. The rectangle then keeps a distance of up to one pixel of the
        shrunk mask from the foreground.
    """
    rectangles = np.zeros((num_images, 6), dtype=np.int64)
    for start in range(0, num_images, _CHUNK):
        by_size: dict[tuple[int, ...], list[tuple[int, NDArray[np.bool_]]]] = {}
        for index in range(start, min(start + _CHUNK, num_images)):
            mask = masks(index)
            if mask is not None:
                foreground = _shrunk(mask >= threshold * 255)
                by_size.setdefault(foreground.shape, []).append((index, foreground))
        for size, members in by_size.items():
            indices = [index for index, _ in members]
            found = largest_empty_rectangles(np.stack([mask for _, mask in members]))
            rectangles[indices, :4] = found
            rectangles[indices, 4:] = np.where(found[:, 2:3] > 0, size, 0)
    return rectangles


def _shrunk(foreground: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Shrink a mask (H, W) to (h, w) with sides of at most 224 pixels; cells that touch any foreground are true."""
    height, width = foreground.shape
    factor = _MAX_SIDE / max(height, width)
    if factor >= 1:
        return foreground
    size = max(round(width * factor), 1), max(round(height * factor), 1)
    # The fraction of each cell that is foreground. A cell counts as foreground if any part of it is.
    share = cv2.resize(foreground.astype(np.float32), size, interpolation=cv2.INTER_AREA)
    return share > 1e-6


class OfficialBackground(Policy):
    """Policies `background_mixup` and `background_hardmix` with `compat="official"`.

    Only view 1 is mixed, after colours and normalisation. With probability p a sample takes part: it is mixed, and
    it provides a background. Its background is the largest strip beside its object, laid over the object's box. A
    permutation of this worker's batch gives the donor, which may be the sample itself. If the donor does not take part,
    the background is drawn from the last 50 backgrounds that this worker made. If there are none yet, the sample stays
    unchanged. A sample without a mask, or whose object's box spans the view, also stays unchanged.

    Donors depend on the batch and the steps before it, and therefore on the number of workers. The draws are functions
    of seed, epoch and sample, and the kept backgrounds are this policy's state. A run therefore resumes as if it had
    not been stopped.

    Args:
        masks: Each image's soft mask.
        probability: p_mix, in [0, 1].
        threshold: Smallest value of a soft mask that is foreground.
        hard: Whether to weigh with the binarised mask instead of the soft one (`background_hardmix`, which the official
            code does not contain).

    Source:
        official-implementation §2 (BG-Mixup). Masks are resized with antialiasing, like the views; the official
        code's are not.
    """

    needs_masks = True

    def __init__(self, masks: Masks, *, probability: float, threshold: float, hard: bool) -> None:
        self._masks, self._hard = masks, hard
        self._probability, self._threshold = probability, threshold
        self._kept: Tensor | None = None
        self._num_made = 0

    def patch_mask(self, index: int, crop: Region, height: int, width: int) -> NDArray[np.uint8] | None:
        """Return the image's soft mask under the crop."""
        mask = self._masks(index)
        return None if mask is None else crop_mask(mask, crop, height, width)

    def mix_batch(self, view: Tensor, draws: Tensor, masks: Tensor | None) -> tuple[Tensor, Mixing | None]:
        """Mix some views with backgrounds; the loss does not change."""
        assert masks is not None
        if self._kept is None:
            self._kept = view.new_zeros((_NUM_KEPT, *view.shape[1:]))
        # The masks are on the host, where looking for boxes in them does not wait for the device.
        foreground = masks >= self._threshold * 255
        moved = (foreground if self._hard else masks).to(view.device, non_blocking=True)
        weights = moved.to(view.dtype)  # (N, 1, H, W)
        if not self._hard:
            weights /= 255
        backgrounds = {
            place: strip_background(view[place], bounds)
            for place, bounds in enumerate(foreground_bounds(foreground.squeeze(1)))
            if bounds is not None and draws[place, 0] < self._probability
        }
        donors = torch.argsort(draws[:, -1]).tolist()
        mixed = view.clone()
        for place, background in backgrounds.items():
            donor = backgrounds.get(donors[place])
            if donor is None and self._num_made:
                donor = self._kept[int(float(draws[place, 1]) * min(self._num_made, _NUM_KEPT))]
            if donor is not None:
                mixed[place] = torch.lerp(donor, view[place], weights[place])
            self._kept[self._num_made % _NUM_KEPT] = background
            self._num_made += 1
        return mixed, None

    def state(self) -> dict[str, Tensor]:
        """Return the kept backgrounds (50, 3, H, W), and the number of backgrounds made so far."""
        if self._kept is None:
            return {}
        return {"backgrounds": self._kept, "num_made": torch.tensor(self._num_made, device=self._kept.device)}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Continue with the kept backgrounds of a `state`."""
        if state:
            self._kept, self._num_made = state["backgrounds"].clone(), int(state["num_made"])


class BackgroundConfig(LocatedPolicyConfig):
    """Base of policies that put the object on another image's background.

    Attributes:
        policy: Class of the policy, as the paper describes it.
        mix_probability: p_mix, the fraction of views that are mixed; by default the paper's value for the method, and
            0.4 for all methods with `compat: official`.
        mask_field: Mask of the store that serves as weight: `cam` for the soft one, `mask` for the one after CRF.
        background_threshold: Smallest value of a soft mask that is foreground when a background is cut out.
        compat: `official` to take donors from the batch, use strips of them as backgrounds, and mix only view 1.
    """

    policy: ClassVar[type[BackgroundMixup]] = BackgroundMixup

    mix_probability: Fraction | None = None
    mask_field: Literal["cam", "mask"] | None = "cam"
    background_threshold: Fraction | None = BACKGROUND_THRESHOLD
    compat: Literal["official"] | None = None

    def completed(self, method: MethodConfig) -> Self:
        """Return the policy with the default p_mix of the method; the official code has one p_mix for all methods."""
        if self.mix_probability is not None:
            return self
        default = method.mix_probability if self.compat is None else _OFFICIAL_MIX_PROBABILITY
        return self.model_copy(update={"mix_probability": default})

    def problem(self, config: PretrainConfig) -> str | None:
        """Return the problem, or None. Some methods have no default p_mix."""
        if self.mix_probability is None:
            return f"policy.mix_probability is missing: the paper has none for the method {config.method.name}"
        return super().problem(config)

    def build(self, inputs: PolicyInputs) -> BackgroundMixup | OfficialBackground:
        """Build the policy on the images' masks."""
        assert self.mix_probability is not None, "a pretraining completes its policy"
        masks = self.open_masks(inputs, binary=self.mask_field == "mask")
        threshold = _BINARY_THRESHOLD if self.background_threshold is None else self.background_threshold
        if self.compat is not None:
            hard = self.policy.binarises
            return OfficialBackground(masks, probability=self.mix_probability, threshold=threshold, hard=hard)
        policy = self.policy(inputs.images, masks, probability=self.mix_probability, threshold=threshold)
        if not len(policy.donors):
            problem = "holds no background for any of the images"
            raise InputError("policy.masks", self.masks, problem, "Localize these images first.")
        return policy


class BackgroundMixupConfig(BackgroundConfig):
    """The object is put on another image's background, independently in each view (paper, section 2.3).

    Attributes:
        masks: Mask store from which the policy takes soft masks.
    """

    name: Literal["background_mixup"] = "background_mixup"
    mask_field: Literal["cam", "mask"] = "cam"
    background_threshold: Fraction = BACKGROUND_THRESHOLD
