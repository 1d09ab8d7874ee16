"""Policy `mixup`: each view 1 blended with another sample's."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from objectaware.augment.mixup_cutmix import folded_weights, mixup, neighbours
from objectaware.config import DataConfig, MethodConfig, PolicyConfig
from objectaware.data.dataset import TrainingImages
from objectaware.methods.mixing import Mixing
from objectaware.training.policies.base import Policy

if TYPE_CHECKING:
    from objectaware.config import PretrainConfig


class PairingConfig(PolicyConfig):
    """Base of policies that mix each view 1 with another sample's, and the loss with it.

    Attributes:
        compat: `official` for partners by a permutation of a worker's batch, as the official code has it.
    """

    compat: Literal["official"] | None = None

    def problem(self, config: PretrainConfig) -> str | None:
        """The loss has to take mixtures, and every part of the batch that goes through has to hold whole pairs."""
        if not config.method.takes_mixtures:
            return f"the policy {self.name} mixes embeddings' losses, which the method {config.method.name} has not"
        if config.num_accumulation_steps > 1:
            return f"num_accumulation_steps = {config.num_accumulation_steps} would part the pairs of {self.name}"
        for workers in config.execution.worker_counts():
            if self.compat is None and config.batch_size % (2 * workers):
                return (
                    f"batch_size = {config.batch_size} is not a multiple of 2 · {workers} workers: the policy "
                    f"{self.name} mixes the samples of a worker in pairs"
                )
        return None


class MixupConfig(PairingConfig):
    """Each view 1 is blended with another sample's, by a weight of its own.

    Attributes:
        compat: `official` for partners by a permutation of a worker's batch, and for MoCo the mean weight for all.
    """

    name: Literal["mixup"] = "mixup"

    def build(self, *, data: DataConfig, images: TrainingImages, method: MethodConfig, cache_folder: Path) -> Mixup:
        """Build the policy."""
        return Mixup(
            official=self.compat is not None,
            average_weights=self.compat is not None and method.averages_official_mixtures,
        )


class Mixup(Policy):
    """Policy `mixup`: λ of each sample its own, partners neighbours in the epoch's order.

    λ is a function of seed, epoch and sample, and pairs of the epoch's order alone, so the same run with more
    workers mixes the same.

    Args:
        official: Partners by a permutation of this worker's batch instead, itself possible, as the official code
            has it. The permutation sorts the samples by a number of each: a function of the batch, so not of one
            worker or two.
        average_weights: Every loss with the batch's mean λ, as the official code of MoCo has it (its mean loss
            meets each λ), so that the effective λ is about 0.75 for all.

    Source:
        official-implementation §2 and §3 ("per-sample λ"), after i-Mix (Lee et al. 2021).
    """

    def __init__(self, *, official: bool = False, average_weights: bool = False) -> None:
        self._official = official
        self._average_weights = average_weights

    def mix_batch(self, view: Tensor, draws: Tensor, masks: Tensor | None) -> tuple[Tensor, Mixing | None]:
        """Blends each view with its partner's; the loss is to weigh both samples."""
        weight = folded_weights(draws[:, 0]).to(view.device)
        partner = batch_partners(draws, official=self._official).to(view.device)
        mixed = mixup(view, partner, weight)
        if self._average_weights:
            weight = weight.mean().expand(len(view))
        return mixed, Mixing(weight, partner)


def batch_partners(draws: Tensor, *, official: bool) -> Tensor:
    """Place of each sample's partner in a worker's batch.

    Args:
        draws: Of each sample, shape (N, NUM_MIX_DRAWS); the last one decides the official permutation.
        official: A permutation of the batch instead of neighbours.

    Returns:
        Shape (N,) int64.
    """
    return torch.argsort(draws[:, -1]) if official else neighbours(len(draws))
