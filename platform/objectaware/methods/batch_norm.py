"""Batch norm over the batch of all workers, also for CPU tensors, which torch's own refuses."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from objectaware.methods.gather import num_workers, worker_rank


class _OfAllWorkers(torch.autograd.Function):
    """Differentiable gathering of a tensor from all workers, (…) to (world size, …).

    The gradient is the sum of the gradients on all workers.
    """

    @staticmethod
    def forward(context: Any, values: Tensor) -> Tensor:  # noqa: ANN401 - torch's own
        """Gather the tensors of all workers."""
        parts = [torch.empty_like(values) for _ in range(num_workers())]
        dist.all_gather(parts, values)
        return torch.stack(parts)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> Tensor:  # noqa: ANN401 - torch's own
        """Sum the gradients of all workers, since every worker's loss depends on this worker's values."""
        gradient = gradients[0].clone()
        dist.all_reduce(gradient)
        return gradient[worker_rank()]


class AllReduceBatchNorm(nn.modules.batchnorm._BatchNorm):
    """Batch norm whose training statistics are those of all workers' samples together.

    `torch.nn.SyncBatchNorm` refuses CPU tensors in a process group. This class combines the workers' means and
    variances differentiably, so that outputs and gradients equal those of one process with the whole batch. It takes
    one exchange in the forward pass and one in the backward pass. All workers must hold the same number of samples.

    Shape:
        (N, C, …) to (N, C, …).
    """

    def _check_input_dim(self, input: Tensor) -> None:  # noqa: A002 - torch's name
        assert input.dim() >= 2, f"expected (N, C, …), got {tuple(input.shape)}"

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
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        assert self.momentum is not None
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
    if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
        converted = AllReduceBatchNorm(
            module.num_features, eps=module.eps, momentum=module.momentum or 0.1, affine=module.affine
        )
        converted.load_state_dict(module.state_dict())
        keep_children(module, converted)
        # The parameters of a target network are frozen, and must stay frozen.
        for parameter, original in zip(converted.parameters(), module.parameters(), strict=True):
            parameter.requires_grad_(original.requires_grad)
        assert module.running_mean is not None
        return converted.to(module.running_mean.dtype)
    for name, child in module.named_children():
        setattr(module, name, _convert(child))
    return module


def keep_children(original: nn.Module, replacement: nn.Module) -> None:
    """Move the layers inside a batch norm to the end of its replacement: timm's batch norms hold their activation."""
    for name, child in original.named_children():
        replacement.add_module(name, child)
    if next(replacement.children(), None) is not None:
        replacement.register_forward_hook(_apply_children)


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


@torch.no_grad()
def averaged_statistics(module: nn.Module) -> dict[str, Tensor]:
    """Return the mean of all workers' running statistics, for workers that normalised only with their own samples."""
    statistics = running_statistics(module)
    if num_workers() > 1:
        statistics = {name: values.clone() for name, values in statistics.items()}
        for values in statistics.values():
            dist.all_reduce(values)
            values.div_(num_workers())
    return statistics
