"""ContraCAM beside the official code's way and beside pytorch-grad-cam, on the same batch, one process and thread.

The official way differentiates the score through the pooled projection back to the whole feature map and averages its
gradient over space; its trunk runs in PyTorch's default memory format. pytorch-grad-cam hooks the trunk and runs its
backward pass, too; it knows no iterations, so that it is compared with one. Maps are checked to agree. Asked: at
most 1 / 1.3 of the official way's time.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from pytorch_grad_cam import GradCAM
from torch import Tensor, nn

from harness import Result, compare, computing_in_turn, exit_status, parser, write_results
from objectaware.localize.contracam import contracam, contrastive_score
from objectaware.localize.localizer import expand_resolution
from objectaware.methods.backbones import Backbone, build_backbone, channels_last
from objectaware.methods.method import projection_head

_LIMIT = 1 / 1.3
_CPU = torch.device("cpu")
_MIN_CORRELATION = 0.97


def main(arguments: Sequence[str]) -> int:
    """Measures and writes the result."""
    options = parser(__doc__, "contracam_peers")
    options.add_argument("--backbone", default="resnet18")
    options.add_argument("--image-size", type=int, default=224)
    options.add_argument("--batch-size", type=int, default=32)
    options.add_argument("--iterations", type=int, default=10)
    given = options.parse_args(arguments)
    if given.quick:
        given.backbone, given.image_size, given.batch_size, given.pairs = "resnet10_narrow", 64, 4, 1
    torch.set_num_threads(1)
    results = measure(given.backbone, given.image_size, given.batch_size, given.iterations, given.pairs)
    write_results(given.out, results)
    return exit_status(results)


def measure(backbone: str, image_size: int, batch_size: int, num_iterations: int, num_pairs: int) -> list[Result]:
    """The batch through each way in turn."""
    torch.manual_seed(0)
    network = expand_resolution(build_backbone(backbone).eval(), 2)
    projector = projection_head(network.num_features, network.num_features, 128).eval()
    images = torch.randn(batch_size, 3, image_size, image_size)
    ordered = images.contiguous(memory_format=torch.channels_last)
    trunk = channels_last(expand_resolution(network, 1), _CPU)

    def ours(iterations: int) -> Tensor:
        return contracam(ordered, trunk.forward_features, projector, num_iterations=iterations, compat="official")

    def official(iterations: int) -> Tensor:
        return official_way(images, network, projector, iterations)

    def hooked(iterations: int) -> Tensor:
        return grad_cam(images, network, projector)

    sizes = f"{backbone}, batch {batch_size} at {image_size}, expansion 2"
    results = []
    for name, theirs, iterations, limit in (
        ("the official way", official, num_iterations, _LIMIT),
        ("pytorch-grad-cam", hooked, 1, None),
    ):
        _check_same(ours(iterations), theirs(iterations))
        values = computing_in_turn(partial(ours, iterations), partial(theirs, iterations), num_pairs)
        case = f"ContraCAM, {iterations} iterations, {sizes}, beside {name}"
        results.append(compare(case, *values, unit="s of one core", at_most=limit))
    return results


def official_way(images: Tensor, network: Backbone, projector: nn.Module, num_iterations: int) -> Tensor:
    """Masks (N, 1, H, W): autograd to the feature map, averaged over space, map by map normalised."""
    color = images.mean(dim=(0, 2, 3), keepdim=True)
    mask = torch.zeros_like(images[:, :1])
    key: Tensor | None = None
    negatives: list[Tensor] = []
    for _ in range(num_iterations):
        with torch.no_grad():
            activation = network.forward_features(images * (1 - mask) + color * mask)
        activation.requires_grad_()
        query = F.normalize(projector(activation.mean(dim=(2, 3))), dim=1)
        key = query.detach() if key is None else key
        negatives.append(query.detach())
        score = contrastive_score(query, key, negatives, compat="official")
        (gradient,) = torch.autograd.grad(score.sum(), activation)
        weights = gradient.mean(dim=(2, 3), keepdim=True).clamp_min(0)
        cam = F.relu((weights * activation.detach()).sum(dim=1, keepdim=True))
        mask = torch.maximum(mask, _enlarged(cam, images))
    return mask


def _enlarged(cam: Tensor, images: Tensor) -> Tensor:
    """Maps at image size, each brought to [0, 1]."""
    cam = F.interpolate(cam, size=images.shape[2:], mode="bicubic", align_corners=False)
    for one in cam:
        one -= one.min()
        one /= one.max() + 1e-20
    return cam


class _PositiveGradCAM(GradCAM):  # type: ignore[misc]
    """Keeps positive weights alone, as ContraCAM does."""

    def get_cam_weights(self, *arguments: object) -> NDArray[np.float32]:
        weights: NDArray[np.float32] = np.maximum(super().get_cam_weights(*arguments), 0)
        return weights


def grad_cam(images: Tensor, network: Backbone, projector: nn.Module) -> Tensor:
    """Masks (N, 1, H, W) of one iteration by pytorch-grad-cam's hooks and backward pass."""
    model = nn.Sequential(network, projector)
    with torch.no_grad():
        embeddings = F.normalize(model(images), dim=1)

    def target(place: int) -> Callable[[Tensor], Tensor]:
        is_self = torch.arange(len(images))[None] == place
        key = embeddings[place][None]

        def score(output: Tensor) -> Tensor:
            return contrastive_score(F.normalize(output[None], dim=1), key, [embeddings], is_self=is_self)[0]

        return score

    with _PositiveGradCAM(model, [network.get_submodule("layer4")]) as cam:
        maps = cam(input_tensor=images, targets=[target(place) for place in range(len(images))])
    return torch.from_numpy(maps).unsqueeze(1)


def _check_same(ours: Tensor, theirs: Tensor) -> None:
    """The same maps, but for rounding and, in pytorch-grad-cam, a bilinear enlargement where others are bicubic."""
    correlation = torch.corrcoef(torch.stack([ours.flatten(), theirs.flatten()]))[0, 1]
    assert correlation > _MIN_CORRELATION, correlation


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
