"""Which samples' images cannot be read, as far as training has come."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor

from objectaware.methods.gather import num_workers
from objectaware.training.views import ViewBatch


class UnreadableSamples:
    """The samples that other images stand in for, of all workers and since the run began.

    Args:
        num_samples: Size of the data set.
        device: Device that workers exchange on.
    """

    def __init__(self, num_samples: int, device: torch.device) -> None:
        self._is_unreadable = torch.zeros(num_samples, dtype=torch.uint8)
        self._device = device

    def add(self, batch: ViewBatch) -> None:
        """Takes in those of one batch."""
        self._is_unreadable[batch.indices[batch.unreadable]] = 1

    def gather(self) -> Tensor:
        """Indices of those of all workers, in order; all workers call it as often."""
        if num_workers() > 1:
            total = self._is_unreadable.to(self._device)
            dist.all_reduce(total, dist.ReduceOp.MAX)
            self._is_unreadable = total.cpu()
        return self._is_unreadable.nonzero().flatten()

    def load(self, indices: Tensor) -> None:
        """Takes in what `gather` gave before a restart."""
        self._is_unreadable[indices] = 1
