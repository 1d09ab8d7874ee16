"""Seconds that stages really take beside those that the planner says, each at three sizes.

First the rates of this machine are measured, as `objectaware plan measure` does; then the stages run in one local Ray,
so that nothing of what is compared has gone into the plan. Asked: measured / planned within 0.75 to 1.25.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from harness import Result, compare, exit_status, parser, seconds, write_results
from objectaware.commands.common import Common, open_context
from objectaware.config import DataConfig, LocalizeConfig, LocalizeExecution, PretrainConfig, PretrainExecution
from objectaware.distributed.localize import localize_needs
from objectaware.localize.contracam import ContraCAM
from objectaware.planning.measure import MeasureConfig, repeated, source_files
from objectaware.planning.model import (
    Machine,
    Rates,
    StageWork,
    linear_work,
    localize_work,
    num_cores,
    pretrain_work,
    soft_mask_work,
)
from objectaware.stages.features import EvaluateExecution
from objectaware.stages.linear import LinearConfig, linear
from objectaware.stages.localize import localize
from objectaware.stages.pretrain import pretrain
from objectaware.stages.runner import Context
from objectaware.stages.start_ups import measure_all

_LEAST, _MOST = 0.75, 1.25
_NUM_CLASSES = 4
_EXPANSION: Final = 2
_EXECUTION = LocalizeExecution(num_crf_actors=num_cores(), num_compute_threads=num_cores())


def main(arguments: Sequence[str]) -> int:
    """Measures and writes the result."""
    given = _arguments(arguments)
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="oa") as name:
        folder = Path(name)
        with open_context(Common(storage=f"{name}/runs"), localize_needs(_EXECUTION)) as context:
            context.services.start_ray()
            results = list(Runs(context, folder, given).results())
    write_results(given.out, results)
    return exit_status(results)


def _arguments(arguments: Sequence[str]) -> argparse.Namespace:
    options = parser(__doc__, "planner", num_pairs=1)
    options.add_argument("--backbone", default="resnet18")
    options.add_argument("--image-size", type=int, default=128)
    options.add_argument("--batch-size", type=int, default=32)
    options.add_argument("--epochs", type=int, default=3)
    options.add_argument("--iterations", type=int, default=10)
    # Such that the work of the smallest is twice what the stage takes to start.
    options.add_argument("--pretrain", type=int, nargs="+", default=[512, 768, 1280], help="images")
    options.add_argument("--localize", type=int, nargs="+", default=[192, 320, 512], help="images")
    options.add_argument("--linear", type=int, nargs="+", default=[1600, 2800, 4000], help="images, half of them tests")
    given = options.parse_args(arguments)
    if given.quick:
        given.backbone, given.image_size, given.batch_size = "resnet10_narrow", 32, 8
        given.epochs, given.iterations = 1, 1
        given.pretrain, given.localize, given.linear = [16], [16], [40]
    return given


@dataclass(frozen=True)
class Case:
    """A stage at a size.

    Attributes:
        title: What is said of it.
        run: Runs it.
        work: What the planner makes of it.
    """

    title: str
    run: Callable[[], object]
    work: StageWork


class Runs:
    """The stages at all sizes.

    Args:
        context: What the stages share.
        folder: For pictures.
        given: Sizes and settings.
    """

    def __init__(self, context: Context, folder: Path, given: argparse.Namespace) -> None:
        self._context, self._folder, self._given = context, folder, given
        self._files = source_files(None, folder / "photos")
        self._checkpoint = ""

    def results(self) -> Iterator[Result]:
        """Measures the rates, then each stage at each size."""
        given = self._given
        config = MeasureConfig(
            device="cpu",
            backbones=(given.backbone,),
            expansions=(_EXPANSION,),
            image_size=given.image_size,
            batch_size=given.batch_size,
            images=str(self._folder / "photos"),
        )
        rates = measure_all(self._context, config, self._folder / "measured")
        machine = Machine.of(rates)
        stages = ((self._pretrain, given.pretrain), (self._localize, given.localize), (self._linear, given.linear))
        for stage, sizes in stages:
            for size in sizes:
                case = stage(rates, size)
                measured, planned = seconds(case.run), case.work.on(machine).seconds
                yield compare(case.title, [measured], [planned], unit="s", at_least=_LEAST, at_most=_MOST)

    def _pretrain(self, rates: Rates, size: int) -> Case:
        given = self._given
        config = PretrainConfig(
            data=repeated(self._files, size, self._folder / f"pretrain-{size}"),
            backbone=given.backbone,
            image_size=given.image_size,
            batch_size=given.batch_size,
            num_epochs=given.epochs,
            execution=PretrainExecution(num_loader_threads=max(num_cores(), 2)),
        )
        work = pretrain_work(
            rates,
            backbone=given.backbone,
            method=config.method.name,
            num_images=size,
            num_epochs=given.epochs,
            execution=config.execution,
        )

        def run() -> None:
            self._checkpoint = str(pretrain(self._context, config).values["checkpoint"])

        return Case(f"pretrain {size} images, {given.epochs} epochs, {self._network()}", run, work)

    def _localize(self, rates: Rates, size: int) -> Case:
        given = self._given
        localizer = ContraCAM(num_iterations=given.iterations, expansion=_EXPANSION)
        config = LocalizeConfig(
            data=repeated(self._files, size, self._folder / f"localize-{size}"),
            checkpoint=self._checkpoint,
            image_size=given.image_size,
            localizer=localizer,
            execution=_EXECUTION,
        )
        soft_mask = soft_mask_work(rates, backbone=given.backbone, cost=localizer.cost)
        work = localize_work(rates, num_images=size, soft_mask=soft_mask, crf=config.crf, group_size=config.group_size)
        title = f"localize {size} images, {given.iterations} iterations and CRF, {self._network()}"
        return Case(title, partial(localize, self._context, config), work)

    def _linear(self, rates: Rates, size: int) -> Case:
        half = size // 2
        train, test = (self._labelled(half, self._folder / f"linear-{size}" / name) for name in ("train", "test"))
        config = LinearConfig(
            checkpoint=self._checkpoint,
            image_size=self._given.image_size,
            train=train,
            tests={"test": test},
            execution=EvaluateExecution(num_loader_threads=max(num_cores(), 2), num_compute_threads=num_cores()),
        )
        work = linear_work(
            rates, backbone=self._given.backbone, num_train=half, num_tests=half, num_classes=_NUM_CLASSES
        )
        title = f"linear evaluation, {half} and {half} images, {self._network()}"
        return Case(title, partial(linear, self._context, config), work)

    def _labelled(self, number: int, folder: Path) -> DataConfig:
        """Pictures in a folder a class, no picture in two of them."""
        for place in range(_NUM_CLASSES):
            repeated(self._files[place::_NUM_CLASSES], number // _NUM_CLASSES, folder / f"class-{place}")
        return DataConfig(root=str(folder), layout="class-folders")

    def _network(self) -> str:
        return f"{self._given.backbone} at {self._given.image_size}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
