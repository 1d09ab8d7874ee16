"""Batch norm over parts of a batch, so that batch statistics cannot give the positive away."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class SplitBatchNorm(nn.modules.batchnorm._BatchNorm):
    """Batch norm whose training statistics are those of each of several parts of the batch.

    With statistics of the whole batch, query and key carry the same signature of the batch they were in, which
    the queue's older keys lack: the loss falls without anything being learnt (He et al. 2020, §3.3; moco#46 on
    why synchronised batch norm does not help). MoCo shuffles keys between GPUs; this gives one process the
    same means, with `interleave`.

    Args:
        num_features: Channels C.
        num_splits: Parts; the batch must be a multiple of it.

    Shape:
        (N, C, …) to (N, C, …).

    Source:
        MoCo's CIFAR demo notebook, which simulates eight GPUs this way.
    """

    def __init__(self, num_features: int, num_splits: int) -> None:
        super().__init__(num_features)
        self.num_splits = num_splits

    def _check_input_dim(self, input: Tensor) -> None:  # noqa: A002 - torch's name
        assert input.dim() >= 2, f"expected (N, C, …), got {tuple(input.shape)}"

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - torch's name
        """Normalises each part with its own statistics in training, all with the running ones otherwise."""
        if not self.training:
            return super().forward(input)
        # Each part moves the running statistics by its share, so that a step moves them as one batch would.
        parts = [self._normalise_part(part) for part in input.chunk(self.num_splits)]
        return torch.cat(parts)

    def _normalise_part(self, part: Tensor) -> Tensor:
        assert self.momentum is not None
        return F.batch_norm(
            part,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            training=True,
            momentum=self.momentum / self.num_splits,
            eps=self.eps,
        )


def split_batch_norm(module: nn.Module, num_splits: int) -> nn.Module:
    """Replaces every batch norm of a module by `SplitBatchNorm`, in place.

    Args:
        module: Network, freshly initialised.
        num_splits: Parts of the batch; 1 leaves the module as it is.
    """
    if num_splits > 1:
        for parent in module.modules():
            for name, child in parent.named_children():
                if isinstance(child, nn.BatchNorm1d | nn.BatchNorm2d):
                    split = SplitBatchNorm(child.num_features, num_splits)
                    split.load_state_dict(child.state_dict())
                    setattr(parent, name, split)
    return module


def interleave(batch: Tensor, num_splits: int) -> Tensor:
    """Reorders a batch so that each part takes equally from all parts of the order before.

    The batch is in random order already, so a fixed interleaving serves as well as a random shuffle and needs
    no state to resume.

    Shape:
        (N, …) to (N, …); row p · N/S + i of the result is row i · S + p of the batch, S the number of parts.
    """
    return batch.reshape(-1, num_splits, *batch.shape[1:]).transpose(0, 1).flatten(0, 1)


def undo_interleave(batch: Tensor, num_splits: int) -> Tensor:
    """Inverse of `interleave`."""
    return batch.reshape(num_splits, -1, *batch.shape[1:]).transpose(0, 1).flatten(0, 1)
