"""The work of networks whose floor is known, on any device: training steps and features."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from objectaware.methods.backbones import build_backbone, channels_last
from objectaware.methods.byol import BYOL
from objectaware.methods.moco import MoCo
from objectaware.training.pretraining import compile_networks
from roof import Work, bytes_of, bytes_of_weights, counted_operations
from training_step import trained


@dataclass(frozen=True)
class Setup:
    """How networks are run.

    Attributes:
        device: Where.
        precision: `fp32`, or `bf16` under autocast, as training has it.
        is_compiled: Whether by torch.compile.
        batch_size: Images a step.
        image_size: Their side in pixels.
        queue_size: Of MoCo.
    """

    device: torch.device
    precision: str
    is_compiled: bool
    batch_size: int
    image_size: int
    queue_size: int

    def __str__(self) -> str:
        compiled = ", compiled" if self.is_compiled else ""
        return f"batch {self.batch_size} at {self.image_size}, {self.precision}, channels_last{compiled}"

    def images(self) -> Tensor:
        """A batch of noise (N, 3, S, S)."""
        shape = (self.batch_size, 3, self.image_size, self.image_size)
        return torch.randn(shape, device=self.device).contiguous(memory_format=torch.channels_last)

    def autocast(self) -> torch.autocast:
        """The context of a forward pass."""
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.precision == "bf16")


def network_works(backbone: str, setup: Setup) -> Iterator[Work]:
    """A step of MoCo and of BYOL, and the forward pass of the backbone in evaluation.

    Each is counted when it is asked for, which is the warm-up, too; a compiled one is counted before it is compiled.
    """
    yield from step_works(backbone, setup)
    yield _features(backbone, setup)


def step_works(backbone: str, setup: Setup) -> Iterator[Work]:
    """A step of MoCo v2 and of BYOL."""
    builders: dict[str, Callable[[], nn.Module]] = {
        "MoCo v2": lambda: MoCo(backbone, queue_size=setup.queue_size),
        "BYOL": lambda: BYOL(backbone),
    }
    for name, build in builders.items():
        torch.manual_seed(0)
        method = channels_last(build(), setup.device).train()
        yield _step(f"a step of {name}, {backbone}, {setup}", method, setup)


def _step(case: str, method: nn.Module, setup: Setup) -> Work:
    def loss_of(view1: Tensor, view2: Tensor) -> Tensor:
        with setup.autocast():
            loss: Tensor = method([view1, view2])
        return loss

    views = [setup.images(), setup.images()]
    step = trained(method, loss_of, views)
    operations = counted_operations(step)
    if setup.is_compiled:
        compile_networks(method)
    return Work(case, setup.batch_size, operations, step_bytes(method, views), step, setup.precision)


def step_bytes(method: nn.Module, views: Sequence[Tensor]) -> int:
    """Bytes that a step with SGD moves at least.

    Views are read; weights that are trained are read and written, and so is their momentum (the gradient may stay in
    a cache); those of a moving average are read and written; buffers, such as MoCo's queue, are read. What lies
    between the layers, which PyTorch keeps for the backward pass, is no part of it.
    """
    weights = list(method.parameters())
    trained_bytes = bytes_of(*(weight for weight in weights if weight.requires_grad))
    return 4 * trained_bytes + 2 * (bytes_of(*weights) - trained_bytes) + bytes_of(*method.buffers(), *views)


def _features(backbone: str, setup: Setup) -> Work:
    torch.manual_seed(0)
    network = channels_last(build_backbone(backbone), setup.device).eval()
    images = setup.images()

    @torch.no_grad()
    def run() -> Tensor:
        with setup.autocast():
            features: Tensor = network(images)
        return features

    operations = counted_operations(run)
    num_bytes = bytes_of_weights(network) + bytes_of(images, run())
    if setup.is_compiled:
        network.compile()
    return Work(f"features, {backbone}, {setup}", setup.batch_size, operations, num_bytes, run, setup.precision)
