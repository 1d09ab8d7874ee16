"""Policy `mixup`: each first view is blended with that of another sample."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from objectaware.augment.mixup_cutmix import folded_weights, mixup, neighbours
from objectaware.config import PolicyConfig, PolicyInputs
from objectaware.methods.method import Mixing
from objectaware.training.policies.base import Policy

if TYPE_CHECKING:
    from objectaware.config import PretrainConfig


class PairingConfig(PolicyConfig):
    """Base of policies that mix each first view with that of another sample, and mix the loss accordingly.

    Attributes:
        compat: `official` to take a permutation of a worker's batch as partners, as in the official code.
    """

    compat: Literal["official"] | None = None

    def problem(self, config: PretrainConfig) -> str | None:
        """Return the problem, or None.

        The loss must be defined for mixtures, and every part of the batch must hold whole pairs.
        """
        if not config.method.takes_mixtures:
            return f"the policy {self.name} needs a loss for mixed views, which {config.method.name} does not have"
        if config.num_accumulation_steps > 1:
            return f"num_accumulation_steps = {config.num_accumulation_steps} would split the pairs of {self.name}"
        for workers in config.execution.worker_counts():
            if self.compat is None and config.batch_size % (2 * workers):
                pairs = f"the policy {self.name} mixes the samples of a worker in pairs"
                return f"batch_size = {config.batch_size} is not a multiple of 2 · {workers} workers: {pairs}"
        return None


class MixupConfig(PairingConfig):
    """Each first view is blended with that of another sample, with a weight of its own.

    Attributes:
        compat: `official` to take a permutation of a worker's batch as partners, and for MoCo the mean weight in all
            losses.
    """

    name: Literal["mixup"] = "mixup"

    def build(self, inputs: PolicyInputs) -> Mixup:
        """Build the policy."""
        return Mixup(
            official=self.compat is not None,
            average_weights=self.compat is not None and inputs.method.averages_official_mixtures,
        )


class Pairing(Policy):
    """Base of policies that mix each first view with its partner's.

    Args:
        official: Whether a permutation of this worker's batch gives the partners instead of neighbours, as in the
            official code. A sample may be its own partner. The permutation sorts the samples by a random number of
            each. It depends on the batch, and therefore on the number of workers.
    """

    def __init__(self, *, official: bool = False) -> None:
        self._official = official

    def partners(self, draws: Tensor) -> Tensor:
        """Return the index (N,) int64 of each sample's partner in a worker's batch, from its draws for `mix_batch`."""
        return torch.argsort(draws[:, -1]) if self._official else neighbours(len(draws))


class Mixup(Pairing):
    """Policy `mixup`: each sample has its own λ, and partners are neighbours in the epoch's order.

    λ is a function of seed, epoch and sample, and pairs depend only on the epoch's order. The number of workers
    therefore does not change the mixtures.

    Args:
        official: As in `Pairing`.
        average_weights: Whether every loss is weighed with the batch's mean λ, as in the official code of MoCo, which
            multiplies its mean loss by each λ. The effective λ is then about 0.75 for all samples.

    Source:
        official-implementation §2 and §3 ("per-sample λ"), after i-Mix (Lee et al. 2021).
    """

    def __init__(self, *, official: bool = False, average_weights: bool = False) -> None:
        super().__init__(official=official)
        self._average_weights = average_weights

    def mix_batch(self, view: Tensor, draws: Tensor, masks: Tensor | None) -> tuple[Tensor, Mixing | None]:
        """Blend each view with its partner's view. The returned mixture weighs both samples in the loss."""
        weight = folded_weights(draws[:, 0]).to(view.device, non_blocking=True)
        partner = self.partners(draws).to(view.device, non_blocking=True)
        mixed = mixup(view, partner, weight)
        if self._average_weights:
            weight = weight.mean().expand(len(view))
        return mixed, Mixing(weight, partner)
