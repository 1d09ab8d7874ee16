"""Losses of views that are mixtures of two samples (i-Mix: Lee et al. 2021)."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Mixing(NamedTuple):
    """The mixtures in the first views of a worker's batch: λ of the view's own sample plus 1 − λ of another sample.

    Attributes:
        weight: λ in [0, 1], shape (N,).
        partner: Index of the other sample in this worker's batch, shape (N,) int64.
    """

    weight: Tensor
    partner: Tensor

    def blend(self, own: Tensor, others: Tensor) -> Tensor:
        """Compute λ own + (1 − λ) others, for values (N,) of the two samples."""
        return torch.lerp(others, own, self.weight.to(own))


def mixed_infonce(
    query: Tensor, keys: Tensor, negatives: Tensor, mixing: Mixing, *, first_place: int, temperature: float
) -> Tensor:
    """Compute the InfoNCE of mixed queries, whose candidates are the batch's keys and the queue.

    The loss is −Σᵢ [λᵢ log pᵢ(key of i) + (1 − λᵢ) log pᵢ(key of i's partner)] / N. The other keys of the batch are
    negatives in addition to the queue. With λ = 1 the loss is therefore InfoNCE with M + K candidates, not MoCo's with
    1 + K.

    Args:
        query: Embeddings of the mixed views of this worker, unit length, shape (N, D).
        keys: Keys of all workers' batch, in rank order, shape (M, D).
        negatives: Queue, shape (K, D).
        mixing: Weights and partners of the queries.
        first_place: Index in `keys` of this worker's first sample.
        temperature: τ.

    Returns:
        Loss, a scalar.

    Source:
        official-implementation §2 (Mixup/CutMix: "candidates [batch keys; queue], i.e. N+K").
    """
    # Autocast would round both factors to bfloat16, an error that 1 / τ magnifies.
    with torch.autocast(query.device.type, enabled=False):
        similarities = [query @ candidates.to(query.dtype).T for candidates in (keys, negatives)]
    log_probabilities = torch.log_softmax(torch.cat(similarities, dim=1) / temperature, dim=1)  # (N, M + K)
    own = torch.arange(len(query), device=query.device)
    to_own = log_probabilities[own, first_place + own]
    to_partner = log_probabilities[own, first_place + mixing.partner]
    return -mixing.blend(to_own, to_partner).mean()


def cosines(mixed: Tensor, plain: Tensor, mixing: Mixing | None) -> Tensor:
    """Compute the cosines (N,) of unit vectors of views 1 and 2, (N, D) each; `Mixing.blend` weighs mixtures."""
    own = (mixed * plain).sum(dim=1)
    return own if mixing is None else mixing.blend(own, (mixed * plain[mixing.partner]).sum(dim=1))
