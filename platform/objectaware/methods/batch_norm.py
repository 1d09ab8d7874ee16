"""Batch norm over the batch of all workers, also where torch's own refuses (CPU tensors)."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from objectaware.methods.gather import num_workers


class _SumOverWorkers(torch.autograd.Function):
    """Sum of a tensor over all workers; its gradient is the sum of theirs."""

    @staticmethod
    def forward(context: Any, values: Tensor) -> Tensor:  # noqa: ANN401 - torch's own
        """All-reduces a copy."""
        values = values.clone()
        dist.all_reduce(values)
        return values

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> Tensor:  # noqa: ANN401 - torch's own
        """Every worker's loss depends on this worker's summand."""
        gradient = gradients[0].clone()
        dist.all_reduce(gradient)
        return gradient


class AllReduceBatchNorm(nn.modules.batchnorm._BatchNorm):
    """Batch norm whose training statistics are those of all workers' samples together.

    `torch.nn.SyncBatchNorm` refuses CPU tensors in a process group. This one sums first and second moments
    through a differentiable all-reduce, so outputs and gradients equal those of one process with the whole
    batch. Workers must hold equally many samples.

    Shape:
        (N, C, …) to (N, C, …).
    """

    def _check_input_dim(self, input: Tensor) -> None:  # noqa: A002 - torch's name
        assert input.dim() >= 2, f"expected (N, C, …), got {tuple(input.shape)}"

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - torch's name
        """Normalises with the statistics of all workers in training, with the running ones otherwise."""
        if not self.training:
            return super().forward(input)
        values = input.float() if input.dtype in (torch.bfloat16, torch.float16) else input
        axes = [axis for axis in range(values.dim()) if axis != 1]
        # The mean first, then the variance around it: one pass of squares would lose half the digits.
        world_size = dist.get_world_size()
        mean = _SumOverWorkers.apply(values.mean(dim=axes)) / world_size
        shape = [1, -1] + [1] * (values.dim() - 2)
        centred = values - mean.view(shape)
        variance = _SumOverWorkers.apply(centred.square().mean(dim=axes)) / world_size
        self._update_running(mean, variance, values.numel() // values.shape[1] * world_size)
        scale = self.weight * torch.rsqrt(variance + self.eps)
        output = centred * scale.view(shape) + self.bias.view(shape)
        return output.to(input.dtype)

    @torch.no_grad()
    def _update_running(self, mean: Tensor, variance: Tensor, count: int) -> None:
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        assert self.momentum is not None
        self.num_batches_tracked += 1
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), self.momentum)
        unbiased = variance * (count / max(count - 1, 1))
        self.running_var.lerp_(unbiased.to(self.running_var.dtype), self.momentum)


def synchronise_batch_norm(module: nn.Module, device: torch.device) -> nn.Module:
    """Makes every batch norm of a module use the statistics of all workers.

    Args:
        module: Network; batch norms are replaced, their parameters and buffers kept.
        device: Device that the network will run on.

    Returns:
        The converted module (the same one where there is only one worker).
    """
    if num_workers() == 1:
        return module
    if device.type == "cuda":
        return nn.SyncBatchNorm.convert_sync_batchnorm(module)  # type: ignore[no-untyped-call]
    return _convert(module)


def _convert(module: nn.Module) -> nn.Module:
    if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
        converted = AllReduceBatchNorm(module.num_features, eps=module.eps, momentum=module.momentum or 0.1)
        converted.load_state_dict(module.state_dict())
        # A target network's are frozen, and must stay so.
        for parameter, original in zip(converted.parameters(), module.parameters(), strict=True):
            parameter.requires_grad_(original.requires_grad)
        return converted.to(module.weight.dtype)
    for name, child in module.named_children():
        setattr(module, name, _convert(child))
    return module


def running_statistics(module: nn.Module) -> dict[str, Tensor]:
    """Running means and variances of a module's batch norms, by their names in its state: the buffers themselves."""
    return {
        f"{name}.{statistic}": layer.get_buffer(statistic)
        for name, layer in module.named_modules()
        if isinstance(layer, nn.modules.batchnorm._BatchNorm)
        for statistic in ("running_mean", "running_var")
    }


@torch.no_grad()
def averaged_statistics(module: nn.Module) -> dict[str, Tensor]:
    """Mean of all workers' running statistics, where each has normalised with its own samples' alone."""
    own = running_statistics(module)
    if num_workers() == 1:
        return own
    total = torch.cat(list(own.values()))
    dist.all_reduce(total)
    parts = (total / num_workers()).split([len(statistic) for statistic in own.values()])
    return dict(zip(own, parts, strict=True))
