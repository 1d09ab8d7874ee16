"""Seconds a step of the platform's training loop beside one process of plain PyTorch that runs the same step.

Three ways through the same epochs of the same views: a plain loop, the platform's `Trainer` in one process, and the
same under Ray Train. All three load and colour the views ahead in threads, so that what is left is what the platform
adds: sessions, progress, metrics, checkpoints and Ray's own processes. Asked: at most 1.05 times the plain loop.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from harness import Result, compare, exit_status, parser, write_results
from inputs import write_pictures
from objectaware.augment.color import ColorDistribution, ColorParameters, augment_colors
from objectaware.config import DataConfig, MethodConfig, PretrainConfig, PretrainExecution
from objectaware.data.dataset import TrainingImages
from objectaware.data.images import IMAGENET_MEAN, IMAGENET_STD
from objectaware.data.storage import Storage
from objectaware.distributed.cluster import ray_cluster
from objectaware.distributed.train import train_on_ray
from objectaware.recipes import parse_yaml
from objectaware.training.inputs import epoch_batches
from objectaware.training.optimizers.sgd import SGDConfig
from objectaware.training.policies.base import PlainViews
from objectaware.training.pretraining import cosine_learning_rate, run_pretraining, scaled_learning_rate
from objectaware.training.session import LocalSession
from objectaware.training.views import ViewBatch, ViewLoader, blur_kernel_size

_LIMIT = 1.05


@dataclass(frozen=True)
class Epochs:
    """What one way through the data took.

    Attributes:
        seconds_a_step: Median over the epochs, of which the first is left out.
        losses: Mean loss of each epoch.
    """

    seconds_a_step: float
    losses: tuple[float, ...]

    @classmethod
    def of(cls, records: Sequence[Mapping[str, Any]], num_steps: int) -> Epochs:
        """From the metrics that the loop reports after each epoch."""
        seconds = [float(record["epoch_seconds"]) / num_steps for record in records]
        return cls(statistics.median(seconds[1:]), tuple(float(record["loss"]) for record in records))


def main(arguments: Sequence[str]) -> int:
    """Measures and writes the result."""
    given = _arguments(arguments)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="oa") as name:
        results = measure(Path(name), given)
    write_results(given.out, results)
    return exit_status(results)


def _arguments(arguments: Sequence[str]) -> argparse.Namespace:
    options = parser(__doc__, "pretrain_overhead")
    options.add_argument("--backbone", default="resnet18")
    options.add_argument("--method", default="{name: moco, queue_size: 1024}", help="as in a recipe: byol")
    options.add_argument("--image-size", type=int, default=96)
    options.add_argument("--batch-size", type=int, default=24, help="such that a step takes about 0.3 s")
    options.add_argument("--steps", type=int, default=20, help="an epoch")
    options.add_argument("--epochs", type=int, default=4, help="of which the first is left out")
    given = options.parse_args(arguments)
    if given.quick:
        given.backbone, given.image_size, given.batch_size = "resnet10_narrow", 32, 4
        given.steps, given.epochs, given.pairs = 2, 2, 1
    return given


def measure(folder: Path, given: argparse.Namespace) -> list[Result]:
    """All three ways in turn, as often as asked."""
    write_pictures(folder / "pictures", given.steps * given.batch_size, 2 * given.image_size)
    config = PretrainConfig(
        data=DataConfig(root=str(folder / "pictures")),
        method=MethodConfig.model_validate(parse_yaml(given.method, field="method", source="--method")),
        backbone=given.backbone,
        image_size=given.image_size,
        batch_size=given.batch_size,
        num_epochs=given.epochs,
        execution=PretrainExecution(num_compute_threads=1, checkpoint_interval=given.epochs),
    )
    ways = {"plain": plain_loop, "trainer": trainer_alone, "ray": under_ray}
    taken: dict[str, list[Epochs]] = {name: [] for name in ways}
    for pair in range(given.pairs):
        for name in sorted(ways, reverse=bool(pair % 2)):
            taken[name].append(ways[name](config, folder / f"{name}-{pair}"))
        for name in ways:
            assert taken[name][-1].losses == taken["plain"][-1].losses, (name, taken[name][-1], taken["plain"][-1])
    seconds = {name: [epochs.seconds_a_step for epochs in taken[name]] for name in ways}
    step = f"{config.method.title}, {given.backbone}, batch {given.batch_size} at {given.image_size}, one thread"
    return [
        compare(f"a step of {step}: {title}", seconds[name], seconds["plain"], unit="s", at_most=_LIMIT)
        for name, title in (("trainer", "Trainer in one process"), ("ray", "under Ray Train"))
    ]


def trainer_alone(config: PretrainConfig, folder: Path) -> Epochs:
    """The platform's loop in this process."""
    session = LocalSession(folder)
    run_pretraining(config, session)
    return Epochs.of(session.history, _num_steps(config))


def under_ray(config: PretrainConfig, folder: Path) -> Epochs:
    """The platform's loop in one worker of Ray Train."""
    records: list[Mapping[str, Any]] = []
    with ray_cluster():
        train_on_ray(run_pretraining, config, storage=Storage.from_uri(folder), on_record=records.append)
    return Epochs.of([record for record in records if record["kind"] == "epoch"], _num_steps(config))


def plain_loop(config: PretrainConfig, folder: Path) -> Epochs:
    """The same steps without the platform's loop; nothing is written to the folder."""
    images = TrainingImages(config.data.open(), max_bytes=config.execution.cache_mib * 2**20)
    torch.manual_seed(config.seed)
    method = config.method.build(config.backbone, num_classes=0).to(memory_format=torch.channels_last).train()
    fitted = config.optimizer
    assert isinstance(fitted, SGDConfig)
    optimizer = torch.optim.SGD(
        [parameter for parameter in method.parameters() if parameter.requires_grad],
        momentum=fitted.momentum,
        weight_decay=fitted.weight_decay,
    )
    initial = scaled_learning_rate(config)
    loader = ViewLoader(
        images,
        PlainViews(),
        views=config.method.views(config),
        colors=ColorDistribution(),
        seed=config.seed,
        num_threads=config.execution.num_loader_threads,
    )
    records = []
    for epoch in range(config.num_epochs):
        for group in optimizer.param_groups:
            group["lr"] = cosine_learning_rate(
                epoch, config.num_epochs, initial=initial, final=fitted.final_learning_rate
            )
        batches = epoch_batches(len(images), config.batch_size, seed=config.seed, epoch=epoch)
        started = time.perf_counter()
        losses = [_plain_step(method, optimizer, *pair) for pair in _ahead(loader.epoch(epoch, list(batches)))]
        records.append({"epoch_seconds": time.perf_counter() - started, "loss": sum(losses) / len(losses)})
    return Epochs.of(records, _num_steps(config))


def _plain_step(method: nn.Module, optimizer: torch.optim.Optimizer, view1: Tensor, view2: Tensor) -> float:
    optimizer.zero_grad(set_to_none=True)
    loss: Tensor = method([view1, view2])
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    return loss.item()


def _ahead(batches: Iterator[ViewBatch]) -> Iterator[tuple[Tensor, Tensor]]:
    """Colours one batch ahead of its use, in a thread, as the platform does."""
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(_colored, next(batches))
        for batch in batches:
            upcoming = pool.submit(_colored, batch)
            yield waiting.result()
            waiting = upcoming
        yield waiting.result()


def _colored(batch: ViewBatch) -> tuple[Tensor, Tensor]:
    mean, std = (torch.tensor(values).view(1, 3, 1, 1) for values in (IMAGENET_MEAN, IMAGENET_STD))

    def colored(view: Tensor, colors: ColorParameters) -> Tensor:
        images = view.float().div(255).contiguous()
        images = augment_colors(images, colors, blur_kernel_size=blur_kernel_size(images.shape[-1]))
        return images.sub_(mean).div_(std).contiguous(memory_format=torch.channels_last)

    return colored(batch.views[0], batch.colors[0]), colored(batch.views[1], batch.colors[1])


def _num_steps(config: PretrainConfig) -> int:
    return len(config.data.open()) // config.batch_size


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
