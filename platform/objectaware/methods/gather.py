"""Collecting the embeddings of all workers."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor


@torch.no_grad()
def gather_batch(values: Tensor) -> Tensor:
    """Concatenates every worker's (n, D) in rank order; without a process group, the values themselves.

    A queue filled with one worker's keys alone would differ between workers and shrink its variety by their
    number, silently.

    Shape:
        (n, D) to (n · world size, D).
    """
    if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
        return values
    parts = [torch.empty_like(values) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, values.contiguous())
    return torch.cat(parts)
