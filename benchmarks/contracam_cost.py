"""What ContraCAM costs beside its own forward passes through the trunk, in one process and thread on one batch.

Asked: 10 iterations cost at most 1.15 times the 10 forwards that they need.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from harness import Result, compare, exit_status, in_turn, parser, processor_seconds, write_results
from objectaware.localize.contracam import contracam
from objectaware.localize.localizer import expand_resolution
from objectaware.methods.backbones import Backbone, build_backbone, channels_last
from objectaware.methods.method import projection_head

_LIMIT = 1.15


def main(arguments: Sequence[str]) -> int:
    """Measures and writes the result."""
    options = parser(__doc__, "contracam_cost")
    options.add_argument("--backbone", default="resnet18")
    options.add_argument("--image-size", type=int, default=224)
    options.add_argument("--batch-size", type=int, default=64)
    options.add_argument("--iterations", type=int, default=10)
    options.add_argument("--expansions", type=int, nargs="+", default=[1, 2])
    given = options.parse_args(arguments)
    if given.quick:
        given.backbone, given.image_size, given.batch_size, given.pairs = "resnet10_narrow", 64, 4, 1
    torch.set_num_threads(1)
    results = [
        measure(given.backbone, given.image_size, given.batch_size, expansion, given.iterations, given.pairs)
        for expansion in given.expansions
    ]
    write_results(given.out, results)
    return exit_status(results)


def measure(
    backbone: str, image_size: int, batch_size: int, expansion: int, num_iterations: int, num_pairs: int
) -> Result:
    """One batch through ContraCAM, and as often through the trunk alone."""
    images, trunk, projector = set_up(backbone, image_size, batch_size, expansion)
    _check_number_of_forwards(images, trunk, projector, num_iterations)

    def features(batch: Tensor) -> Tensor:
        return trunk.forward_features(batch)

    def ours() -> float:
        return processor_seconds(lambda: contracam(images, features, projector, num_iterations=num_iterations))

    @torch.no_grad()
    def forwards() -> None:
        for _ in range(num_iterations):
            features(images)

    values = in_turn(ours, lambda: processor_seconds(forwards), num_pairs)
    case = f"{num_iterations} iterations, {backbone}, batch {batch_size} at {image_size}, expansion {expansion}"
    return compare(case, *values, unit="s of one core", at_most=_LIMIT)


def set_up(backbone: str, image_size: int, batch_size: int, expansion: int) -> tuple[Tensor, Backbone, torch.nn.Module]:
    """Images of noise (N, 3, S, S), an untrained trunk and its projector."""
    torch.manual_seed(0)
    network = build_backbone(backbone).eval()
    projector = projection_head(network.num_features, network.num_features, 128).eval()
    trunk = channels_last(expand_resolution(network, expansion), torch.device("cpu"))
    images = torch.randn(batch_size, 3, image_size, image_size).to(memory_format=torch.channels_last)
    return images, trunk, projector


def _check_number_of_forwards(
    images: Tensor, trunk: Backbone, projector: Callable[[Tensor], Tensor], num_iterations: int
) -> None:
    """Both sides do the same number of forwards; this is the warm-up, too."""
    num_forwards = 0

    def counted(batch: Tensor) -> Tensor:
        nonlocal num_forwards
        num_forwards += 1
        return trunk.forward_features(batch)

    contracam(images[:2], counted, projector, num_iterations=num_iterations)
    assert num_forwards == num_iterations, num_forwards


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
