"""Background mixup and hardmix as in the official code: `compat="official"`."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from objectaware.augment.background import foreground_bounds, strip_background
from objectaware.augment.crop import crop_mask
from objectaware.methods.method import Mixing
from objectaware.training.policies.base import Masks, Policy, Region

_NUM_KEPT = 50


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
        self._masks = masks
        self._probability = probability
        self._threshold = threshold
        self._hard = hard
        self._kept: Tensor | None = None
        self._num_made = 0

    def patch_mask(self, index: int, crop: Region, height: int, width: int) -> NDArray[np.uint8] | None:
        """Return the image's soft mask under the crop."""
        mask = self._masks[index]
        return None if mask is None else crop_mask(mask, np.array(crop), height, width)

    def mix_batch(self, view: Tensor, draws: Tensor, masks: Tensor | None) -> tuple[Tensor, Mixing | None]:
        """Mix some views with backgrounds; the loss does not change."""
        assert masks is not None
        if self._kept is None:
            self._kept = view.new_zeros((_NUM_KEPT, *view.shape[1:]))
        masks = masks.to(view.device)
        foreground = masks >= self._threshold * 255
        weights = foreground.to(view.dtype) if self._hard else masks.to(view.dtype) / 255  # (N, 1, H, W)
        backgrounds = {
            place: strip_background(view[place], bounds)
            for place, bounds in enumerate(foreground_bounds(foreground.squeeze(1)))
            if bounds is not None and draws[place, 0] < self._probability
        }
        donors = torch.argsort(draws[:, -1]).tolist()
        mixed = view.clone()
        for place, background in backgrounds.items():
            donor = backgrounds.get(donors[place])
            if donor is None:
                donor = self._pick(float(draws[place, 1]))
            if donor is not None:
                mixed[place] = torch.lerp(donor, view[place], weights[place])
            self._keep(background)
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

    def _pick(self, uniform: float) -> Tensor | None:
        if not self._num_made or self._kept is None:
            return None
        return self._kept[int(uniform * min(self._num_made, _NUM_KEPT))]

    def _keep(self, background: Tensor) -> None:
        assert self._kept is not None
        self._kept[self._num_made % _NUM_KEPT] = background
        self._num_made += 1
