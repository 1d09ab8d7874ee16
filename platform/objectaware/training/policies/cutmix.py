"""Policy `cutmix`: a box of each view 1 is another sample's."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from torch import Tensor

from objectaware.augment.mixup_cutmix import cut_boxes, cutmix, folded_weights
from objectaware.config import DataConfig, MethodConfig
from objectaware.data.dataset import TrainingImages
from objectaware.methods.mixing import Mixing
from objectaware.training.policies.base import Policy
from objectaware.training.policies.mixup import PairingConfig, batch_partners


class CutMixConfig(PairingConfig):
    """A box of each view 1 is cut out of another sample's.

    Attributes:
        compat: `official` for one box for the whole of a worker's batch, and partners by a permutation of it.
    """

    name: Literal["cutmix"] = "cutmix"

    def build(self, *, data: DataConfig, images: TrainingImages, method: MethodConfig, cache_folder: Path) -> CutMix:
        """Build the policy."""
        return CutMix(official=self.compat is not None)


class CutMix(Policy):
    """Policy `cutmix`: box and λ of each sample its own, partners neighbours in the epoch's order.

    Boxes are functions of seed, epoch and sample, and pairs of the epoch's order alone, so the same run with more
    workers mixes the same.

    Args:
        official: One box and λ for the whole of this worker's batch, those of its first sample, and partners by a
            permutation of it, as the official code has it; not the same of one worker or two.

    Source:
        official-implementation §2 ("CutMix one box/λ per batch (area-corrected)"), after i-Mix (Lee et al. 2021).
    """

    def __init__(self, *, official: bool = False) -> None:
        self._official = official

    def mix_batch(self, view: Tensor, draws: Tensor, masks: Tensor | None) -> tuple[Tensor, Mixing | None]:
        """Puts a box of the partner's view into each view; the loss is to weigh both samples by their areas."""
        box_draws = draws[:1].expand_as(draws) if self._official else draws
        height, width = view.shape[2:]
        boxes, weight = cut_boxes(folded_weights(box_draws[:, 0]), box_draws[:, 1:3], height, width)
        partner = batch_partners(draws, official=self._official).to(view.device)
        return cutmix(view, partner, boxes), Mixing(weight.to(view.device), partner)
