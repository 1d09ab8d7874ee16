"""MoCo v2: momentum contrast with a queue of negatives."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from objectaware.errors import InputError
from objectaware.methods.backbones import build_backbone
from objectaware.methods.gather import gather_batch, num_workers, worker_rank
from objectaware.methods.heads import normalised, projection_head, update_moving_average
from objectaware.methods.method import Method
from objectaware.methods.mixing import Mixing, mixed_infonce
from objectaware.methods.split_batch_norm import shuffle_batch, split_batch_norm, unshuffle_batch


class MoCo(Method):
    """MoCo v2 (He et al. 2020; Chen et al. 2020) as the paper's code sets it up.

    Args:
        backbone: Name of the backbone.
        projection_size: Width of the embedding.
        queue_size: Number K of negatives.
        momentum: m of the moving average of the key encoder.
        temperature: τ.
        num_batch_norm_splits: Parts of the batch of all workers that batch norm works on, keys dealt to other parts
            than their queries (shuffled batch norm of He et al. 2020); a multiple of the number of workers. 1 for
            the paper's code, which does without and has the whole batch's statistics.
        num_batch_candidates: Keys of the batch that a query is compared with: 1, its own, but for mixed views the
            whole batch's. Decides the chance level alone.

    Shape:
        Two views (N, 3, H, W) each to the loss, a scalar.

    Source:
        official-implementation §2 (batch norm in the projector, no shuffled batch norm, the moving average
        before the forward pass).
    """

    momentum: float
    queue: Tensor
    queue_pointer: Tensor

    def __init__(
        self,
        backbone: str,
        *,
        projection_size: int = 128,
        queue_size: int = 65536,
        momentum: float = 0.999,
        temperature: float = 0.2,
        num_batch_norm_splits: int = 1,
        num_batch_candidates: int = 1,
    ) -> None:
        super().__init__()
        if queue_size < 1:
            raise InputError("queue_size", queue_size, "must be at least 1", "Give a number such as 65536.")
        self.temperature = temperature
        self.momentum = momentum
        self.backbone = build_backbone(backbone)
        width = self.backbone.num_features
        self.projector = projection_head(width, width, projection_size)
        self.target_backbone = build_backbone(backbone)
        self.target_projector = projection_head(width, width, projection_size)
        self.target_backbone.load_state_dict(self.backbone.state_dict())
        self.target_projector.load_state_dict(self.projector.state_dict())
        self._num_splits = num_batch_norm_splits
        self._num_batch_candidates = num_batch_candidates
        self.keeps_batch_norm_local = num_batch_norm_splits > 1
        if self.keeps_batch_norm_local:
            assert num_batch_norm_splits % num_workers() == 0, "each worker normalises whole parts"
            for network in (self.backbone, self.projector, self.target_backbone, self.target_projector):
                split_batch_norm(network, num_batch_norm_splits // num_workers())
        for parameter in [*self.target_backbone.parameters(), *self.target_projector.parameters()]:
            parameter.requires_grad_(False)
        # Random unit vectors until real keys have filled the queue. The pointer is a buffer: a queue that is
        # resumed without it would overwrite its newest keys first.
        self.register_buffer("queue", F.normalize(torch.randn(queue_size, projection_size), dim=1))
        self.register_buffer("queue_pointer", torch.zeros((), dtype=torch.int64))

    @property
    def chance_loss(self) -> float:
        """Loss of a network that cannot tell the candidates apart: log(K + 1), of mixed views log(K + N)."""
        return math.log(len(self.queue) + self._num_batch_candidates)

    def forward(self, view1: Tensor, view2: Tensor, mixing: Mixing | None = None) -> Tensor:
        """InfoNCE loss of the queries of view 1 against the keys of view 2 and the queue (paper eq. 1).

        Args:
            view1: Views (N, 3, H, W) of the queries.
            view2: Views of the keys.
            mixing: What view 1 is a mixture of, where it is one; see `mixed_infonce`.
        """
        query = normalised(self.projector(self.backbone(view1)))  # (N, D)
        key = self._keys(view2)
        self.embeddings = query.detach(), key
        keys = gather_batch(key)
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
        if self.training:
            update_moving_average(self.backbone, self.target_backbone, self.momentum)
            update_moving_average(self.projector, self.target_projector, self.momentum)
        if not self.keeps_batch_norm_local:
            return normalised(self.target_projector(self.target_backbone(view)))
        keys = self.target_projector(self.target_backbone(shuffle_batch(view, self._num_splits)))
        return unshuffle_batch(normalised(keys), self._num_splits)

    @torch.no_grad()
    def _enqueue(self, keys: Tensor) -> None:
        """Overwrites the oldest keys; a ring, so that a batch of any size fits."""
        size = len(self.queue)
        keys = keys[-size:]
        slots = (self.queue_pointer + torch.arange(len(keys), device=keys.device)) % size
        # A new tensor instead of a write in place: the backward pass still needs the old negatives.
        self.queue = self.queue.index_copy(0, slots, keys.to(self.queue.dtype))
        self.queue_pointer.copy_((self.queue_pointer + len(keys)) % size)
