"""Batch norm over parts of a batch, so that batch statistics cannot give the positive away."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from objectaware.methods.batch_norm import keep_children
from objectaware.methods.gather import gather_batch, num_workers, worker_rank


class SplitBatchNorm(nn.modules.batchnorm._BatchNorm):
    """Batch norm whose training statistics are those of each of several parts of the batch.

    With statistics of the whole batch, query and key carry the same signature of the batch they were in, which
    the queue's older keys lack: the loss falls without anything being learnt (He et al. 2020, §3.3; moco#46 on
    why synchronised batch norm does not help). MoCo shuffles keys between GPUs; this gives one process the
    same means, with `shuffle_batch`.

    Running statistics move by the mean of the parts' statistics, so that those of several workers average to those
    of one process with all parts (`averaged_statistics`).

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
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        means = self.running_mean.repeat(self.num_splits, 1)  # (S, C)
        variances = self.running_var.repeat(self.num_splits, 1)
        parts = input.chunk(self.num_splits)
        outputs = [self._normalise(*part) for part in zip(parts, means, variances, strict=True)]
        self.running_mean.copy_(means.mean(dim=0))
        self.running_var.copy_(variances.mean(dim=0))
        self.num_batches_tracked += 1
        return torch.cat(outputs)

    def _normalise(self, part: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        """Normalises one part, and moves the running statistics that are given."""
        assert self.momentum is not None
        return F.batch_norm(
            part, mean, variance, self.weight, self.bias, training=True, momentum=self.momentum, eps=self.eps
        )


def split_batch_norm(module: nn.Module, num_splits: int) -> nn.Module:
    """Replaces every batch norm of a module by `SplitBatchNorm`, in place.

    Args:
        module: Network, freshly initialised.
        num_splits: Parts of the batch; 1 leaves the module as it is.
    """
    if num_splits > 1:
        for parent in list(module.modules()):
            for name, child in parent.named_children():
                if isinstance(child, nn.BatchNorm1d | nn.BatchNorm2d):
                    split = SplitBatchNorm(child.num_features, num_splits)
                    split.eps, split.momentum = child.eps, child.momentum
                    split.load_state_dict(child.state_dict())
                    keep_children(child, split)
                    setattr(parent, name, split)
    return module


def shuffle_batch(images: Tensor, num_splits: int) -> Tensor:
    """Deals all workers' images to other parts than those they are in, and gives this worker its parts.

    Args:
        images: This worker's, (n, 3, H, W).
        num_splits: Parts of the batch of all workers, a multiple of their number.

    Returns:
        (n, 3, H, W); `unshuffle_batch` puts what is computed of them back into order.

    Source:
        He et al. 2020, §3.3. MoCo's code draws a permutation for each batch; here it is `interleave`.
    """
    shuffled = _own_part(interleave(gather_batch(images), num_splits))
    return shuffled.contiguous(memory_format=torch.channels_last)


def unshuffle_batch(embeddings: Tensor, num_splits: int) -> Tensor:
    """Gives this worker the embeddings (n, D) of its own images back after `shuffle_batch`."""
    return _own_part(undo_interleave(gather_batch(embeddings), num_splits))


def _own_part(batch: Tensor) -> Tensor:
    return batch.chunk(num_workers())[worker_rank()]


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
