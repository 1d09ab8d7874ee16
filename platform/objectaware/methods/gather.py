"""What workers exchange: batches gathered from all of them, and means over them."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor


def num_workers() -> int:
    """Workers of the process group; 1 without one."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def worker_rank() -> int:
    """This worker's number in the process group, from 0; 0 without one."""
    return dist.get_rank() if num_workers() > 1 else 0


@torch.no_grad()
def gather_batch(values: Tensor) -> Tensor:
    """Concatenates every worker's (n, …) in rank order; without a process group, the values themselves.

    A queue filled with one worker's keys alone would differ between workers and shrink its variety by their
    number, silently.

    Shape:
        (n, …) to (n · world size, …).
    """
    if num_workers() == 1:
        return values
    values = values.contiguous()  # also of images in channels-last order, which gloo would refuse
    parts = [torch.empty_like(values) for _ in range(num_workers())]
    dist.all_gather(parts, values)
    return torch.cat(parts)


@torch.no_grad()
def mean_over_workers(values: Tensor) -> Tensor:
    """Return the mean of each value over all workers, in one exchange; without a process group, the values."""
    if num_workers() == 1:
        return values
    total = values.clone()
    dist.all_reduce(total)
    return total / num_workers()
