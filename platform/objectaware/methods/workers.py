"""The batch of all workers: exchange between them, and batch norm over the whole batch or over parts of it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn


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
    return _gathered(values).flatten(0, 1)


def _gathered(values: Tensor) -> Tensor:
    """Stack the tensors of all workers in rank order, (…) to (world size, …), in one exchange and without a copy."""
    values = values.contiguous()  # images may be in channels-last order
    gathered = values.new_empty((num_workers(), *values.shape))
    dist.all_gather(list(gathered.unbind()), values)
    return gathered


@torch.no_grad()
def mean_over_workers(values: Tensor) -> Tensor:
    """Return the mean of each value over all workers, in one exchange; without a process group, the same values."""
    if num_workers() == 1:
        return values
    total = values.clone()
    dist.all_reduce(total)
    return total / num_workers()


class _BatchNorm(nn.modules.batchnorm._BatchNorm):
    """Batch norm of (N, C, …) with running statistics."""

    running_mean: Tensor
    running_var: Tensor
    num_batches_tracked: Tensor
    momentum: float

    def _check_input_dim(self, input: Tensor) -> None:  # noqa: A002 - torch's name
        assert input.dim() >= 2, f"expected (N, C, …), got {tuple(input.shape)}"


class _OfAllWorkers(torch.autograd.Function):
    """Differentiable gathering of a tensor from all workers, (…) to (world size, …).

    The gradient is the sum of the gradients on all workers.
    """

    @staticmethod
    def forward(context: Any, values: Tensor) -> Tensor:  # noqa: ANN401 - torch's own
        """Gather the tensors of all workers."""
        return _gathered(values)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> Tensor:  # noqa: ANN401 - torch's own
        """Sum the gradients of all workers, since every worker's loss depends on this worker's values."""
        gradient = gradients[0].clone()
        dist.all_reduce(gradient)
        return gradient[worker_rank()]


class AllReduceBatchNorm(_BatchNorm):
    """Batch norm whose training statistics are those of all workers' samples together.

    `torch.nn.SyncBatchNorm` refuses CPU tensors in a process group. This class combines the workers' means and
    variances differentiably, so that outputs and gradients equal those of one process with the whole batch. It takes
    one exchange in the forward pass and one in the backward pass. All workers must hold the same number of samples.

    Shape:
        (N, C, …) to (N, C, …).
    """

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - torch's name
        """Normalise with the statistics of all workers in training, and with the running statistics otherwise."""
        if not self.training:
            return super().forward(input)
        values = input.float() if input.dtype in (torch.bfloat16, torch.float16) else input
        axes = [axis for axis in range(values.dim()) if axis != 1]
        shape = [1, -1] + [1] * (values.dim() - 2)
        own_mean = values.mean(dim=axes)
        centred = values - own_mean.view(shape)
        # Use means and variances: sums of squares would lose half the digits (Chan et al. 1979).
        statistics = _OfAllWorkers.apply(torch.stack((own_mean, centred.square().mean(dim=axes))))
        means, variances = statistics.unbind(dim=1)  # (world size, C) each
        mean = means.mean(dim=0)
        variance = (variances + (means - mean).square()).mean(dim=0)
        self._update_running(mean, variance, values.numel() // values.shape[1] * len(means))
        scale = torch.rsqrt(variance + self.eps)
        if self.affine:
            scale = self.weight * scale
        offset = (own_mean - mean) * scale
        if self.affine:
            offset = self.bias + offset
        output = centred * scale.view(shape) + offset.view(shape)
        return output.to(input.dtype)

    @torch.no_grad()
    def _update_running(self, mean: Tensor, variance: Tensor, count: int) -> None:
        self.num_batches_tracked += 1
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), self.momentum)
        unbiased = variance * (count / max(count - 1, 1))
        self.running_var.lerp_(unbiased.to(self.running_var.dtype), self.momentum)


def synchronise_batch_norm(module: nn.Module, device: torch.device) -> nn.Module:
    """Make every batch norm of a module use the statistics of all workers.

    Args:
        module: Network. Its batch norms are replaced; their parameters and buffers are kept.
        device: Device on which the network will run.

    Returns:
        The converted module, or the same module if there is only one worker.
    """
    if num_workers() == 1:
        return module
    if device.type == "cuda":
        synchronised: nn.Module = nn.SyncBatchNorm.convert_sync_batchnorm(module)  # type: ignore[no-untyped-call]
        for layer in synchronised.modules():
            if isinstance(layer, nn.SyncBatchNorm) and next(layer.children(), None) is not None:
                layer.register_forward_hook(_apply_children)
        return synchronised
    return _convert(module)


def _convert(module: nn.Module) -> nn.Module:
    return _replace(module, lambda layer: AllReduceBatchNorm(layer.num_features, affine=layer.affine))


def _replace(module: nn.Module, build: Callable[[nn.BatchNorm1d | nn.BatchNorm2d], _BatchNorm]) -> nn.Module:
    """Replace every batch norm of a module. Its state, and layers inside it such as timm's activations, are kept."""
    if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
        replacement = build(module)
        replacement.eps, replacement.momentum = module.eps, module.momentum or 0.1
        replacement.load_state_dict(module.state_dict())
        for name, child in module.named_children():
            replacement.add_module(name, child)
        if next(replacement.children(), None) is not None:
            replacement.register_forward_hook(_apply_children)
        # The parameters of a target network are frozen, and must stay frozen.
        for parameter, original in zip(replacement.parameters(), module.parameters(), strict=True):
            parameter.requires_grad_(original.requires_grad)
        assert module.running_mean is not None
        return replacement.to(module.running_mean.dtype)
    for name, child in module.named_children():
        setattr(module, name, _replace(child, build))
    return module


def _apply_children(layer: nn.Module, _: object, output: Tensor) -> Tensor:
    for child in layer.children():
        output = child(output)
    return output


def running_statistics(module: nn.Module) -> dict[str, Tensor]:
    """Return the running means and variances of a module's batch norms by their names in its state, not copied."""
    return {
        f"{name}.{statistic}": layer.get_buffer(statistic)
        for name, layer in module.named_modules()
        if isinstance(layer, nn.modules.batchnorm._BatchNorm)
        for statistic in ("running_mean", "running_var")
    }


class SplitBatchNorm(_BatchNorm):
    """Batch norm that normalises each of several parts of the batch with the part's own statistics in training.

    With statistics of the whole batch, query and key carry the same signature of their batch. The queue's older keys
    lack it, and the loss falls although nothing is learnt (He et al. 2020, §3.3; moco#46 on why synchronised batch
    norm does not help). MoCo shuffles keys between GPUs. With `embed_shuffled`, this class does the same in one
    process.

    Running statistics move by the mean of the parts' statistics. The average over several workers is therefore equal
    to the statistics of one process with all parts.

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

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - torch's name
        """Normalise each part with its own statistics in training, and all with the running statistics otherwise."""
        if not self.training:
            return super().forward(input)
        means = self.running_mean.repeat(self.num_splits, 1)  # (S, C)
        variances = self.running_var.repeat(self.num_splits, 1)
        # It updates the parts' running statistics in place.
        normalise = partial(F.batch_norm, training=True, momentum=self.momentum, eps=self.eps)
        outputs = [
            normalise(part, mean, variance, self.weight, self.bias)
            for part, mean, variance in zip(input.chunk(self.num_splits), means, variances, strict=True)
        ]
        self.running_mean.copy_(means.mean(dim=0))
        self.running_var.copy_(variances.mean(dim=0))
        self.num_batches_tracked += 1
        return torch.cat(outputs)


def split_batch_norm(module: nn.Module, num_splits: int) -> nn.Module:
    """Replace every batch norm of a module by `SplitBatchNorm`, in place.

    Args:
        module: Network, freshly initialised.
        num_splits: Number of parts of the batch; 1 leaves the module unchanged.
    """
    return _replace(module, lambda layer: SplitBatchNorm(layer.num_features, num_splits)) if num_splits > 1 else module


def embed_shuffled(network: Callable[[Tensor], Tensor], images: Tensor, num_splits: int) -> Tensor:
    """Embed images that are distributed to other parts of all workers' batch while the network normalises them.

    Args:
        network: Function from images (n, 3, H, W) to embeddings (n, D).
        images: Images of this worker, (n, 3, H, W).
        num_splits: Number of parts of all workers' batch, a multiple of the number of workers.

    Returns:
        Embeddings (n, D) of this worker's own images, in their order.

    Source:
        He et al. 2020, §3.3. MoCo's code draws a permutation for each batch; here the permutation is `interleave`.
    """
    shuffled = _own_part(interleave(gather_batch(images), num_splits))
    embeddings = network(shuffled.contiguous(memory_format=torch.channels_last))
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
