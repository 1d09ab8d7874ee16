"""Batch norm over parts of a batch, so that batch statistics cannot reveal the positive."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from objectaware.methods.batch_norm import keep_children
from objectaware.methods.gather import gather_batch, num_workers, worker_rank


class SplitBatchNorm(nn.modules.batchnorm._BatchNorm):
    """Batch norm that normalises each of several parts of the batch with the part's own statistics in training.

    With statistics of the whole batch, query and key carry the same signature of their batch. The queue's older keys
    lack it, and the loss falls although nothing is learnt (He et al. 2020, §3.3; moco#46 on why synchronised batch
    norm does not help). MoCo shuffles keys between GPUs. With `shuffle_batch`, this class does the same in one
    process.

    Running statistics move by the mean of the parts' statistics. The average over several workers is therefore equal
    to the statistics of one process with all parts (`averaged_statistics`).

    Args:
        num_features: Channels C.
        num_splits: Number of parts; the batch size must be a multiple of it.

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
        """Normalise each part with its own statistics in training, and all with the running statistics otherwise."""
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
        """Normalise one part, and update the given running statistics in place."""
        assert self.momentum is not None
        return F.batch_norm(
            part, mean, variance, self.weight, self.bias, training=True, momentum=self.momentum, eps=self.eps
        )


def split_batch_norm(module: nn.Module, num_splits: int) -> nn.Module:
    """Replace every batch norm of a module by `SplitBatchNorm`, in place.

    Args:
        module: Network, freshly initialised.
        num_splits: Number of parts of the batch; 1 leaves the module unchanged.
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
    """Distribute all workers' images to other parts of the batch, and return this worker's parts.

    Args:
        images: Images of this worker, (n, 3, H, W).
        num_splits: Number of parts of all workers' batch, a multiple of the number of workers.

    Returns:
        Images (n, 3, H, W); `unshuffle_batch` puts their embeddings back into the original order.

    Source:
        He et al. 2020, §3.3. MoCo's code draws a permutation for each batch; here the permutation is `interleave`.
    """
    shuffled = _own_part(interleave(gather_batch(images), num_splits))
    return shuffled.contiguous(memory_format=torch.channels_last)


def unshuffle_batch(embeddings: Tensor, num_splits: int) -> Tensor:
    """Return the embeddings (n, D) of this worker's own images after `shuffle_batch`."""
    return _own_part(undo_interleave(gather_batch(embeddings), num_splits))


def _own_part(batch: Tensor) -> Tensor:
    return batch.chunk(num_workers())[worker_rank()]


def interleave(batch: Tensor, num_splits: int) -> Tensor:
    """Reorder a batch so that each new part takes equally from all previous parts.

    The batch is in random order already. A fixed interleaving is therefore as good as a random shuffle, and needs no
    state to resume.

    Shape:
        (N, …) to (N, …); row p · N/S + i of the result is row i · S + p of the batch, where S is the number of parts.
    """
    return batch.reshape(-1, num_splits, *batch.shape[1:]).transpose(0, 1).flatten(0, 1)


def undo_interleave(batch: Tensor, num_splits: int) -> Tensor:
    """Undo `interleave`."""
    return batch.reshape(num_splits, -1, *batch.shape[1:]).transpose(0, 1).flatten(0, 1)
