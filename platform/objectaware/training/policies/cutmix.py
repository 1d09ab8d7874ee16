"""Policy `cutmix`: a box of each first view comes from another sample."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from objectaware.augment.mixup_cutmix import cut_boxes, cutmix, folded_weights
from objectaware.config import PolicyInputs
from objectaware.methods.method import Mixing
from objectaware.training.policies.mixup import Pairing, PairingConfig


class CutMixConfig(PairingConfig):
    """A box of each first view is replaced by that of another sample.

    Attributes:
        compat: `official` to use one box for a worker's whole batch, and a permutation of the batch as partners.
    """

    name: Literal["cutmix"] = "cutmix"

    def build(self, inputs: PolicyInputs) -> CutMix:
        """Build the policy."""
        return CutMix(official=self.compat is not None)


class CutMix(Pairing):
    """Policy `cutmix`: each sample has its own box and λ, and partners are neighbours in the epoch's order.

    Boxes are functions of seed, epoch and sample, and pairs depend only on the epoch's order. The number of workers
    therefore does not change the mixtures.

    Args:
        official: As in `Pairing`. Besides, this worker's whole batch has one box and λ, those of its first sample.

    Source:
        official-implementation §2 ("CutMix one box/λ per batch (area-corrected)"), after i-Mix (Lee et al. 2021).
    """

    def mix_batch(self, view: Tensor, draws: Tensor, masks: Tensor | None) -> tuple[Tensor, Mixing | None]:
        """Put a box of the partner's view into each view. The returned mixture weighs both samples by their areas."""
        box_draws = draws[:1].expand_as(draws) if self._official else draws
        height, width = view.shape[2:]
        boxes, weight = cut_boxes(folded_weights(box_draws[:, 0]), box_draws[:, 1:3], height, width)
        partner = self.partners(draws).to(view.device, non_blocking=True)
        return cutmix(view, partner, boxes), Mixing(weight.to(view.device, non_blocking=True), partner)
