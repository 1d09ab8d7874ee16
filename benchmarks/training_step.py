"""One training step of MoCo v2 and BYOL beside a plain PyTorch loop and beside lightly's parts.

All sides train the same network (same weights, same views, SGD) in one process and thread. The plain loop is what the
papers' pseudo-code says, written out with PyTorch alone; lightly's side takes its loss, memory bank and
moving average, in the memory format of its examples. First losses are checked to be equal. Asked: no slower than the
plain loop (at most 1.02 of it, the scatter of the measurement), MoCo at most 1 / 1.1 of lightly's.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from lightly.loss import NegativeCosineSimilarity, NTXentLoss
from lightly.models.utils import update_momentum
from torch import Tensor, nn

from harness import Result, compare, computing_in_turn, exit_status, parser, write_results
from objectaware.methods.byol import BYOL
from objectaware.methods.moco import MoCo

_PLAIN_LIMIT, _LIGHTLY_LIMIT = 1.02, 1 / 1.1
_TOLERANCE = 1e-4

Step = Callable[[Tensor, Tensor], Tensor]


def main(arguments: Sequence[str]) -> int:
    """Measures and writes the result."""
    options = parser(__doc__, "training_step", num_pairs=7)
    options.add_argument("--backbone", default="resnet18")
    options.add_argument("--image-size", type=int, default=96)
    options.add_argument("--batch-size", type=int, default=32)
    options.add_argument("--queue-size", type=int, default=65536)
    given = options.parse_args(arguments)
    if given.quick:
        given.backbone, given.image_size, given.batch_size, given.pairs = "resnet10_narrow", 32, 4, 1
        given.queue_size = 64
    torch.set_num_threads(1)
    torch.manual_seed(0)
    methods: dict[str, nn.Module] = {
        "MoCo v2": MoCo(given.backbone, queue_size=given.queue_size),
        "BYOL": BYOL(given.backbone),
    }
    views = [torch.randn(given.batch_size, 3, given.image_size, given.image_size) for _ in range(2)]
    sizes = f"{given.backbone}, batch {given.batch_size} at {given.image_size}"
    results = [
        result for name, method in methods.items() for result in measure(f"{name}, {sizes}", method, views, given.pairs)
    ]
    write_results(given.out, results)
    return exit_status(results)


def measure(case: str, method: nn.Module, views: Sequence[Tensor], num_pairs: int) -> list[Result]:
    """One method's step beside the plain loop's and lightly's."""
    is_moco = isinstance(method, MoCo)
    results = []
    for name, build, memory_format, limit in (
        ("a plain loop", plain_moco if is_moco else plain_byol, torch.channels_last, _PLAIN_LIMIT),
        (
            "lightly's parts",
            lightly_moco if is_moco else lightly_byol,
            torch.contiguous_format,
            _LIGHTLY_LIMIT if is_moco else None,
        ),
    ):
        ours = copy.deepcopy(method).to(memory_format=torch.channels_last).train()
        theirs = copy.deepcopy(method).to(memory_format=memory_format).train()
        our_views = [view.contiguous(memory_format=torch.channels_last) for view in views]
        our_step = trained(ours, lambda *pair, ours=ours: ours(pair), our_views)
        their_views = [view.contiguous(memory_format=memory_format) for view in views]
        their_step = trained(theirs, build(theirs), their_views)
        first, other = our_step(), their_step()
        assert abs(first - other) < _TOLERANCE, (name, first, other)
        values = computing_in_turn(our_step, their_step, num_pairs)
        results.append(compare(f"a step of {case}, beside {name}", *values, unit="s of one core", at_most=limit))
    return results


def trained(parts: nn.Module, loss_of: Step, views: Sequence[Tensor]) -> Callable[[], float]:
    """A step with its backward pass and update; gives the loss."""
    parameters = [parameter for parameter in parts.parameters() if parameter.requires_grad]
    optimizer = torch.optim.SGD(parameters, lr=0.03, momentum=0.9, weight_decay=1e-4)

    def step() -> float:
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(views[0], views[1])
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return loss.item()

    return step


def plain_moco(parts: nn.Module) -> Step:
    """MoCo's pseudo-code with PyTorch alone: a queue that is written in place, the average parameter by parameter."""
    assert isinstance(parts, MoCo)
    queue = parts.queue.clone().T.contiguous()  # (D, K), as in MoCo's code
    pointer = 0

    def step(view1: Tensor, view2: Tensor) -> Tensor:
        nonlocal pointer
        query = F.normalize(parts.projector(parts.backbone(view1)), dim=1)
        with torch.no_grad():
            plain_average(parts.backbone, parts.target_backbone, parts.momentum)
            plain_average(parts.projector, parts.target_projector, parts.momentum)
            key = F.normalize(parts.target_projector(parts.target_backbone(view2)), dim=1)
        positive = torch.einsum("nc,nc->n", query, key).unsqueeze(1)
        negative = torch.einsum("nc,ck->nk", query, queue.clone().detach())
        logits = torch.cat([positive, negative], dim=1) / parts.temperature
        queue[:, pointer : pointer + len(key)] = key.T
        pointer = (pointer + len(key)) % queue.shape[1]
        return F.cross_entropy(logits, torch.zeros(len(logits), dtype=torch.long))

    return step


def lightly_moco(parts: nn.Module) -> Step:
    """Lightly's example of MoCo with its loss, memory bank and moving average."""
    assert isinstance(parts, MoCo)
    size, width = parts.queue.shape
    criterion = NTXentLoss(temperature=parts.temperature, memory_bank_size=(size, width))
    criterion.memory_bank.bank = parts.queue.clone()
    criterion.memory_bank.bank_ptr = torch.zeros(1, dtype=torch.long)

    def step(view1: Tensor, view2: Tensor) -> Tensor:
        update_momentum(parts.backbone, parts.target_backbone, m=parts.momentum)
        update_momentum(parts.projector, parts.target_projector, m=parts.momentum)
        query = parts.projector(parts.backbone(view1))
        with torch.no_grad():
            key = parts.target_projector(parts.target_backbone(view2))
        loss: Tensor = criterion(query, key)
        return loss

    return step


def plain_byol(parts: nn.Module) -> Step:
    """BYOL's pseudo-code with PyTorch alone."""
    assert isinstance(parts, BYOL)

    def step(view1: Tensor, view2: Tensor) -> Tensor:
        predictions = [
            F.normalize(parts.predictor(F.normalize(parts.projector(parts.backbone(view)), dim=1)), dim=1)
            for view in (view1, view2)
        ]
        with torch.no_grad():
            plain_average(parts.backbone, parts.target_backbone, parts.momentum)
            plain_average(parts.projector, parts.target_projector, parts.momentum)
            targets = [
                F.normalize(parts.target_projector(parts.target_backbone(view)), dim=1) for view in (view2, view1)
            ]
        cosines = [(one * other).sum(dim=1).mean() for one, other in zip(predictions, targets, strict=True)]
        return -2 * (cosines[0] + cosines[1])

    return step


def lightly_byol(parts: nn.Module) -> Step:
    """Lightly's example of BYOL with its loss and moving average; four times the loss, as the paper's scale is."""
    assert isinstance(parts, BYOL)
    criterion = NegativeCosineSimilarity()

    def step(view1: Tensor, view2: Tensor) -> Tensor:
        update_momentum(parts.backbone, parts.target_backbone, m=parts.momentum)
        update_momentum(parts.projector, parts.target_projector, m=parts.momentum)
        predictions = [
            parts.predictor(F.normalize(parts.projector(parts.backbone(view)), dim=1)) for view in (view1, view2)
        ]
        with torch.no_grad():
            targets = [parts.target_projector(parts.target_backbone(view)) for view in (view2, view1)]
        losses = [criterion(one, other) for one, other in zip(predictions, targets, strict=True)]
        loss: Tensor = 2 * (losses[0] + losses[1])
        return loss

    return step


def plain_average(online: nn.Module, target: nn.Module, momentum: float) -> None:
    """θ̄ ← m θ̄ + (1 − m) θ, parameter by parameter."""
    for parameter, average in zip(online.parameters(), target.parameters(), strict=True):
        average.data = average.data * momentum + parameter.data * (1 - momentum)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
