"""The stages of one study, planned together, as a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

from objectaware.config import LocalizeConfig, PretrainExecution
from objectaware.config.localize import Cost
from objectaware.errors import InputError
from objectaware.planning.model import Machine, Prices, StageTime
from objectaware.planning.rates import Rates
from objectaware.planning.work import linear_work, localize_work, pretrain_work, soft_mask_work
from objectaware.report.tables import aligned


@dataclass(frozen=True)
class Study:
    """A network trained on images, their objects found with it, and a linear classifier fitted to its features.

    Attributes:
        num_images: Images.
        backbone: Network.
        method: How it is trained.
        num_epochs: Epochs of the training.
        num_iterations: Of ContraCAM.
        expansion: Of ContraCAM.
        crf: Whether masks are refined.
        num_classes: Classes of the linear evaluation.
    """

    num_images: int
    backbone: str
    method: str
    num_epochs: int
    num_iterations: int
    expansion: int
    crf: bool
    num_classes: int

    def __post_init__(self) -> None:
        """Refuses what is no number of anything."""
        names = {"num_images": "images", "num_epochs": "epochs", "num_iterations": "iterations"}
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, int) and not isinstance(value, bool) and value < 1:
                name = names.get(field.name, field.name.removeprefix("num_").replace("_", "-"))
                raise InputError(name, value, "is too few", "Give a number of at least 1.")

    def times(self, rates: Rates, machine: Machine, prices: Prices) -> list[StageTime]:
        """What each stage takes.

        Raises:
            InputError: The rates lack the network, the method or the expansion.
        """
        execution = PretrainExecution()
        cost = Cost(self.num_iterations, self.expansion)
        works = (
            pretrain_work(
                rates,
                backbone=self.backbone,
                method=self.method,
                num_images=self.num_images,
                num_epochs=self.num_epochs,
                cache_mib=execution.cache_mib,
                checkpoint_interval=execution.checkpoint_interval,
            ),
            localize_work(
                rates,
                num_images=self.num_images,
                soft_mask=soft_mask_work(rates, backbone=self.backbone, cost=cost),
                crf=self.crf,
                group_size=LocalizeConfig.model_fields["group_size"].default,
            ),
            linear_work(
                rates, backbone=self.backbone, num_train=self.num_images, num_tests=0, num_classes=self.num_classes
            ),
        )
        return [work.on(machine, prices) for work in works]


def format_times(times: Sequence[StageTime]) -> str:
    """A line a stage, and one for all of them."""
    head = ("stage", "time", "GPU hours", "core hours", "cost", "waits for")
    rows = [head, *((one.stage, *_cells(one), one.bottleneck) for one in times), ("all", *_sums(times), "")]
    return "\n".join(aligned(rows, is_text=[True, *[False] * (len(head) - 2), True]))


def _cells(time: StageTime) -> tuple[str, str, str, str]:
    return format_hours(time.seconds), f"{time.gpu_hours:.2f}", f"{time.core_hours:.2f}", f"{time.cost:.2f}"


def _sums(times: Sequence[StageTime]) -> tuple[str, str, str, str]:
    return (
        format_hours(sum(time.seconds for time in times)),
        f"{sum(time.gpu_hours for time in times):.2f}",
        f"{sum(time.core_hours for time in times):.2f}",
        f"{sum(time.cost for time in times):.2f}",
    )


def format_hours(seconds: float) -> str:
    """Seconds below two minutes, minutes below two hours, else hours."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
