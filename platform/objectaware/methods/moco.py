"""MoCo v2: momentum contrast with a queue of negatives."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from objectaware.config.variants import MethodConfig
from objectaware.errors import InputError
from objectaware.methods.backbones import build_backbone
from objectaware.methods.method import Mixing, MomentumMethod, MomentumSchedule, normalised, projection_head
from objectaware.methods.workers import embed_shuffled, gather_batch, num_workers, split_batch_norm, worker_rank
from objectaware.model import Fraction, Positive

if TYPE_CHECKING:
    from objectaware.config import PretrainConfig


class MoCoConfig(MethodConfig):
    """MoCo v2 (Chen et al. 2020): InfoNCE against a queue of keys of a slowly moving network.

    Attributes:
        queue_size: Number K of negatives in the queue.
        momentum: m of the key encoder's moving average.
        momentum_schedule: `constant`, or `cosine` up to 1 at the end, as in BYOL's paper.
        temperature: τ of InfoNCE.
        num_batch_norm_splits: Number of parts of all workers' batch that batch norm normalises separately. 1:
            statistics of the whole batch, as in the paper's code. More: keys are put into other parts than their
            queries, as in MoCo's shuffled batch norm, which has 8 parts on 8 GPUs.
    """

    title: ClassVar = "MoCo v2"
    takes_mixtures: ClassVar = True
    mix_probability: ClassVar = 0.4  # paper, section 3.3
    averages_official_mixtures: ClassVar = True
    smoke_fields: ClassVar = {"queue_size": 60}
    former_names: ClassVar = {"batch_norm": "num_batch_norm_splits"}

    name: Literal["moco"] = "moco"
    queue_size: Positive = 65536
    momentum: Fraction = 0.999
    momentum_schedule: MomentumSchedule = "constant"
    temperature: Annotated[float, Field(gt=0)] = 0.2
    num_batch_norm_splits: Positive = 1

    def build(self, backbone: str, *, num_classes: int) -> MoCo:
        """Build the method; it does not use classes."""
        return MoCo(backbone, **self.model_dump(exclude={"name"}))

    def problem(self, config: PretrainConfig) -> str | None:
        """Return what is wrong with the number of parts, or None.

        Every worker must hold whole parts of the batch, with at least two images in each part for batch norm.
        """
        splits, passes = self.num_batch_norm_splits, config.num_accumulation_steps
        if splits == 1:
            return None
        for workers in config.execution.worker_counts():
            if splits % workers:
                return f"method.num_batch_norm_splits = {splits} is not a multiple of {config.execution.named(workers)}"
        if config.batch_size % (passes * splits) or config.batch_size // (passes * splits) < 2:
            return (
                f"batch_size = {config.batch_size} in {passes} × {splits} parts (num_accumulation_steps × "
                "method.num_batch_norm_splits) is not two or more images in each"
            )
        return None


class MoCo(MomentumMethod):
    """MoCo v2 (He et al. 2020; Chen et al. 2020) as in the paper's code.

    Args:
        backbone: Name of the backbone.
        projection_size: Width of the embedding.
        queue_size: Number K of negatives.
        momentum: m of the key encoder's moving average.
        momentum_schedule: Schedule of m.
        temperature: τ.
        num_batch_norm_splits: Number of parts of all workers' batch that batch norm normalises separately, a multiple
            of the number of workers. Keys are put into other parts than their queries (shuffled batch norm of He et
            al. 2020). With 1, as in the paper's code, nothing is shuffled and statistics are those of the whole batch.

    Shape:
        Two views (N, 3, H, W) each to the loss, a scalar.

    Source:
        official-implementation §2 (batch norm in the projector, no shuffled batch norm, the moving average
        before the forward pass).
    """

    queue: Tensor
    queue_pointer: Tensor

    def __init__(
        self,
        backbone: str,
        *,
        projection_size: int = 128,
        queue_size: int = 65536,
        momentum: float = 0.999,
        momentum_schedule: MomentumSchedule = "constant",
        temperature: float = 0.2,
        num_batch_norm_splits: int = 1,
    ) -> None:
        super().__init__(momentum, momentum_schedule)
        if queue_size < 1:
            raise InputError("queue_size", queue_size, "must be at least 1", "Give a number such as 65536.")
        self.temperature = temperature
        self.backbone = build_backbone(backbone)
        width = self.backbone.num_features
        self.projector = projection_head(width, width, projection_size)
        self.build_target(width, projection_size)
        self._num_splits = num_batch_norm_splits
        self._num_batch_candidates = 1
        self.keeps_batch_norm_local = num_batch_norm_splits > 1
        if self.keeps_batch_norm_local:
            assert num_batch_norm_splits % num_workers() == 0, "each worker normalises whole parts"
            for network in (self.backbone, self.projector, self.target_backbone, self.target_projector):
                split_batch_norm(network, num_batch_norm_splits // num_workers())
        # The queue holds random unit vectors until real keys have filled it. The pointer is a buffer, because a queue
        # that is resumed without it would overwrite its newest keys first.
        self.register_buffer("queue", F.normalize(torch.randn(queue_size, projection_size), dim=1))
        self.register_buffer("queue_pointer", torch.zeros((), dtype=torch.int64))

    @property
    def chance_loss(self) -> float:
        """Return the loss of a network that cannot distinguish the candidates.

        It is log(K + 1), or log(K + N) for mixed views.
        """
        return math.log(len(self.queue) + self._num_batch_candidates)

    def forward(self, views: Sequence[Tensor], *, labels: Tensor | None = None, mixing: Mixing | None = None) -> Tensor:
        """Compute the InfoNCE loss of the queries of view 1 against the keys of view 2 and the queue (paper eq. 1).

        Args:
            views: View 1, of the queries, and view 2, of the keys, (N, 3, H, W) each.
            labels: Not used.
            mixing: The mixture in view 1, if there is one; see `mixed_infonce`.
        """
        view1, view2 = views
        query = normalised(self.projector(self.backbone(view1)))  # (N, D)
        key = self._keys(view2)
        self.embeddings = query.detach(), key
        keys = gather_batch(key)
        # A query of a mixed view is compared with all keys of the batch, any other query only with its own key.
        self._num_batch_candidates = 1 if mixing is None else len(keys)
        if mixing is None:
            loss = self._infonce(query, key)
        else:
            first_place = worker_rank() * len(query)
            loss = mixed_infonce(query, keys, self.queue, mixing, first_place=first_place, temperature=self.temperature)
        self._enqueue(keys)
        return loss

    def _infonce(self, query: Tensor, key: Tensor) -> Tensor:
        positive = (query * key).sum(dim=1, keepdim=True)  # (N, 1)
        # Autocast would round both factors to bfloat16, an error that 1 / τ magnifies.
        with torch.autocast(query.device.type, enabled=False):
            negative = query @ self.queue.to(query.dtype).T  # (N, K)
        logits = torch.cat([positive, negative], dim=1) / self.temperature
        target = torch.zeros(len(logits), dtype=torch.int64, device=logits.device)
        return F.cross_entropy(logits, target)

    @torch.no_grad()
    def _keys(self, view: Tensor) -> Tensor:
        self.move_target()
        if self.keeps_batch_norm_local:
            return embed_shuffled(self.target, view, self._num_splits)
        return self.target(view)

    @torch.no_grad()
    def _enqueue(self, keys: Tensor) -> None:
        """Overwrite the oldest keys. The queue is a ring, so that a batch of any size fits."""
        size = len(self.queue)
        keys = keys[-size:]
        slots = (self.queue_pointer + torch.arange(len(keys), device=keys.device)) % size
        # Make a new tensor instead of writing in place: the backward pass still needs the old negatives.
        self.queue = self.queue.index_copy(0, slots, keys.to(self.queue.dtype))
        self.queue_pointer.copy_((self.queue_pointer + len(keys)) % size)


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
