"""Exchange between workers: batches gathered from all workers, and means over them."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor


def num_workers() -> int:
    """Return the number of workers in the process group; 1 without a group."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def worker_rank() -> int:
    """Return this worker's number in the process group, from 0; 0 without a group."""
    return dist.get_rank() if num_workers() > 1 else 0


@torch.no_grad()
def gather_batch(values: Tensor) -> Tensor:
    """Concatenate every worker's (n, …) in rank order; without a process group, return the values themselves.

    If each worker filled its queue only with its own keys, the queues would silently differ between workers, and the
    variety of the keys would shrink by the number of workers.

    Shape:
        (n, …) to (n · world size, …).
    """
    if num_workers() == 1:
        return values
    values = values.contiguous()  # gloo would refuse images in channels-last order
    parts = [torch.empty_like(values) for _ in range(num_workers())]
    dist.all_gather(parts, values)
    return torch.cat(parts)


@torch.no_grad()
def mean_over_workers(values: Tensor) -> Tensor:
    """Return the mean of each value over all workers, in one exchange; without a process group, the same values."""
    if num_workers() == 1:
        return values
    total = values.clone()
    dist.all_reduce(total)
    return total / num_workers()
