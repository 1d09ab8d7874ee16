"""How long a stage takes: the rates of one machine, a stage's work, and its time on a number of GPUs and cores.

Rates are measured (`objectaware.planning.measure`) or stated, and kept as JSON. A stage's work is a list of parts that
follow one another. The estimate assumes that `execution` gives a stage the whole machine. That means one worker per
GPU, with the cores shared out among the workers for decoding and the CRF. Without a GPU, it means one process with as
many threads as cores.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import Field, ValidationError

from objectaware.config import LocalizeConfig, PretrainExecution
from objectaware.config.localize import Cost
from objectaware.errors import InputError
from objectaware.evaluate.features import PART_SIZE
from objectaware.model import Model, Positive
from objectaware.report.gallery import NUM_GALLERY_IMAGES
from objectaware.report.tables import aligned

Resource = Literal["GPU", "CPU cores", "one process", "start-up"]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
StageName = Literal["pretrain", "localize", "linear"]
Key = TypeVar("Key")
Rate = TypeVar("Rate")


class Work(Model):
    """Hold the time that a piece of work takes.

    Attributes:
        core_seconds: Seconds of one core, while all cores of the machine work.
        gpu_seconds: Seconds of one GPU; 0 if the cores do that work.
    """

    core_seconds: NonNegative = 0.0
    gpu_seconds: NonNegative = 0.0

    def times(self, number: float) -> Work:
        """Return the work of `number` such pieces."""
        return Work(core_seconds=number * self.core_seconds, gpu_seconds=number * self.gpu_seconds)

    def and_cores(self, core_seconds: float) -> Work:
        """Return this work with further work of the cores."""
        return Work(core_seconds=self.core_seconds + core_seconds, gpu_seconds=self.gpu_seconds)


NOTHING = Work()


class TrainingRates(Model):
    """Hold the rates of training a network by one method.

    Attributes:
        step: Work per image: colour its two views, forward and backward pass.
        start_seconds: Seconds before the first step, for weights and the first batch's views.
        epoch_seconds: Seconds between two epochs, to write and store a checkpoint and restart the loader.
    """

    step: Work
    start_seconds: NonNegative = 0.0
    epoch_seconds: NonNegative = 0.0


class NetworkRates(Model):
    """Hold the rates of one network.

    Attributes:
        backbone: Name of the network.
        num_features: Length of its pooled features.
        training: Rates of its training by method.
        forward: Work per image to compute its features.
        iteration: Work per image and iteration of ContraCAM, by expansion.
    """

    backbone: str
    num_features: Positive
    training: dict[str, TrainingRates]
    forward: Work
    iteration: dict[int, Work]


class LinearRates(Model):
    """Hold the rates of fitting the linear classifier, in one process.

    Attributes:
        seconds: Seconds for any number of samples.
        seconds_per_product: Further seconds, times samples × features × classes.
    """

    seconds: NonNegative = 0.0
    seconds_per_product: NonNegative = 0.0


class Rates(Model):
    """Hold the rates of one machine, measured or stated.

    Attributes:
        source: Origin of the numbers, such as `as measured on … on …`.
        date: Time of the measurement; empty if the rates are stated.
        device: Device that networks compute on.
        num_cores: CPU cores of the machine.
        num_gpus: GPUs of the machine.
        image_size: Side of the networks' input, in pixels.
        picture_bytes: Bytes of a decoded picture in memory.
        decoding: Core-seconds to read a picture's file.
        views: Core-seconds to cut a picture's two views.
        reading: Core-seconds to read a picture's file and bring it to the network's size.
        storing: Core-seconds for a picture's mask, boxes and row of the mask store.
        crf: Core-seconds for a picture's dense CRF.
        row_seconds: Seconds of the driver to read a row back and export it.
        shown_seconds: Seconds of the driver per picture of the gallery.
        linear: Rates of the linear classifier.
        networks: Rates of the networks.
        start_seconds: Seconds by stage to start its processes and to end them.
    """

    source: str
    date: str = ""
    device: Literal["cpu", "cuda"]
    num_cores: Positive
    num_gpus: Annotated[int, Field(ge=0)]
    image_size: Annotated[int, Field(ge=32)]
    picture_bytes: Annotated[float, Field(gt=0)]
    decoding: NonNegative = 0.0
    views: NonNegative = 0.0
    reading: NonNegative = 0.0
    storing: NonNegative = 0.0
    crf: NonNegative = 0.0
    row_seconds: NonNegative = 0.0
    shown_seconds: NonNegative = 0.0
    linear: LinearRates = LinearRates()
    networks: Annotated[tuple[NetworkRates, ...], Field(min_length=1)]
    start_seconds: dict[StageName, NonNegative]

    def network(self, backbone: str) -> NetworkRates:
        """Return the rates of a network.

        Raises:
            InputError: The network was not measured.
        """
        return _measured("backbone", backbone, {network.backbone: network for network in self.networks})

    def training(self, backbone: str, method: str) -> TrainingRates:
        """Return the rates of a network's training.

        Raises:
            InputError: The network or the method was not measured.
        """
        return _measured("method", method, self.network(backbone).training, of=f" of {backbone}")

    def iteration(self, backbone: str, expansion: int) -> Work:
        """Return the work per image of one iteration of ContraCAM.

        Raises:
            InputError: The network or the expansion was not measured.
        """
        return _measured("expansion", expansion, self.network(backbone).iteration, of=f" of {backbone}")


def _measured(name: str, value: Key, known: Mapping[Key, Rate], *, of: str = "") -> Rate:
    if value not in known:
        problem = f"is not among the rates{of}, which are of {', '.join(map(str, known))}"
        raise InputError(name, value, problem, f"Measure it as well: `objectaware plan measure --{name}s …`.")
    return known[value]


def num_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0))


def read_rates(path: Path) -> Rates:
    """Read rates that `write_rates` wrote.

    Raises:
        InputError: There is no such file, or it does not hold rates.
    """
    remedy = "Write one with `objectaware plan measure --out FILE`."
    if not path.is_file():
        raise InputError("rates", path, "is not a file", remedy)
    try:
        return Rates.model_validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        raise InputError("rates", path, f"does not hold rates ({where}: {first['msg']})", remedy) from error


def write_rates(path: Path, rates: Rates) -> None:
    """Write rates as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(rates.model_dump_json(indent=2) + "\n")


@dataclass(frozen=True)
class Machine:
    """Describe the hardware that stages run on, one machine or a cluster.

    Attributes:
        num_gpus: Number of GPUs.
        num_cores: Number of CPU cores.
    """

    num_gpus: int
    num_cores: int

    @classmethod
    def of(cls, rates: Rates, *, num_gpus: int | None = None, num_cores: int | None = None) -> Machine:
        """Check a machine against the rates. Numbers that are None are those of the measured machine.

        Raises:
            InputError: One of the two has GPUs and the other has none, or a number is too small.
        """
        gpus = rates.num_gpus if num_gpus is None else num_gpus
        cores = rates.num_cores if num_cores is None else num_cores
        if cores < 1:
            raise InputError("cpus", cores, "is too few", "Give at least one core.")
        if gpus < 0 or (gpus == 0) != (rates.device == "cpu"):
            problem = f"does not fit rates of the device {rates.device}"
            other = "cuda" if rates.device == "cpu" else "cpu"
            remedy = f"Measure on such a machine: `objectaware plan measure --device {other}`."
            raise InputError("gpus", gpus, problem, remedy)
        return cls(gpus, cores)


@dataclass(frozen=True)
class Part:
    """Hold a part of a stage's work. Parts follow one another; inside a part, GPUs and cores work side by side.

    Attributes:
        num_units: Number of units, such as images.
        work: Work per unit.
        alone_seconds: Seconds per unit of a single process, on any machine.
        piece_size: Units that one GPU takes at a time, if they cannot be divided further.
    """

    num_units: float
    work: Work = NOTHING
    alone_seconds: float = 0.0
    piece_size: int | None = None

    def seconds(self, machine: Machine) -> dict[Resource, float]:
        """Return the working time of each resource. The part takes as long as the longest of them."""
        gpu = self._units_per_gpu(machine.num_gpus) * self.work.gpu_seconds if self.work.gpu_seconds else 0.0
        return {
            "GPU": gpu,
            "CPU cores": self.num_units * self.work.core_seconds / machine.num_cores,
            "one process": self.num_units * self.alone_seconds,
        }

    def _units_per_gpu(self, num_gpus: int) -> float:
        if self.piece_size is None:
            return self.num_units / num_gpus
        num_pieces = math.ceil(self.num_units / self.piece_size)
        return min(self.num_units, math.ceil(num_pieces / num_gpus) * self.piece_size)


@dataclass(frozen=True)
class Prices:
    """Hold a machine's prices, in any currency.

    Attributes:
        gpu_hour: Price per GPU and hour.
        core_hour: Price per core and hour.
    """

    gpu_hour: float = 0.0
    core_hour: float = 0.0

    def __post_init__(self) -> None:
        """Refuse negative and infinite prices."""
        for name, price in (("gpu-hour-price", self.gpu_hour), ("cpu-hour-price", self.core_hour)):
            if not 0 <= price < math.inf:
                raise InputError(name, price, "is not a valid price", "Give a number of at least 0.")


FREE = Prices()


@dataclass(frozen=True)
class StageTime:
    """Hold a stage's time and cost on a machine.

    Attributes:
        stage: Name of the stage.
        seconds: Seconds from its start to its end.
        bottleneck: Resource that its parts wait for longest.
        gpu_hours: Hours of all the machine's GPUs during the stage, busy or not.
        core_hours: Hours of all its cores.
        cost: Cost at the given prices.
    """

    stage: str
    seconds: float
    bottleneck: Resource
    gpu_hours: float
    core_hours: float
    cost: float


@dataclass(frozen=True)
class StageWork:
    """Hold all of a stage's work.

    Attributes:
        stage: Name of the stage.
        start_seconds: Seconds to start and end its processes, for any amount of work.
        parts: Parts of the work, in order.
    """

    stage: str
    start_seconds: float
    parts: Sequence[Part]

    def total(self) -> Work:
        """Return the work of all GPUs and cores, without the start-up."""
        return Work(
            core_seconds=sum(part.num_units * (part.work.core_seconds + part.alone_seconds) for part in self.parts),
            gpu_seconds=sum(part.num_units * part.work.gpu_seconds for part in self.parts),
        )

    def on(self, machine: Machine, prices: Prices = FREE) -> StageTime:
        """Return the stage's time, cost and bottleneck on a machine."""
        waits: dict[Resource, float] = {"start-up": self.start_seconds}
        for part in self.parts:
            seconds = part.seconds(machine)
            slowest = max(seconds, key=seconds.__getitem__)
            waits[slowest] = waits.get(slowest, 0.0) + seconds[slowest]
        total = sum(waits.values())
        gpu_hours, core_hours = machine.num_gpus * total / 3600, machine.num_cores * total / 3600
        cost = gpu_hours * prices.gpu_hour + core_hours * prices.core_hour
        return StageTime(self.stage, total, max(waits, key=waits.__getitem__), gpu_hours, core_hours, cost)


def pretrain_work(
    rates: Rates, *, backbone: str, method: str, num_images: int, num_epochs: int, execution: PretrainExecution
) -> StageWork:
    """Return the work of a training. The arguments are fields of `PretrainConfig`, but for the number of its images.

    Raises:
        InputError: The network or the method was not measured.
    """
    training = rates.training(backbone, method)
    num_views = num_images * num_epochs
    # The cache keeps the first images that fit, so these are decoded in the first epoch alone.
    kept_share = min(1.0, execution.cache_mib * 2**20 / (rates.picture_bytes * num_images))
    decoded_share = (1 + (num_epochs - 1) * (1 - kept_share)) / num_epochs
    num_checkpoints = -(-num_epochs // execution.checkpoint_interval)
    parts = (
        Part(num_views, training.step.and_cores(rates.views + decoded_share * rates.decoding)),
        Part(num_checkpoints, alone_seconds=training.epoch_seconds),
    )
    return StageWork("pretrain", rates.start_seconds["pretrain"] + training.start_seconds, parts)


def soft_mask_work(rates: Rates, *, backbone: str, cost: Cost) -> Work:
    """Return a localizer's work for one image's soft mask.

    Raises:
        InputError: The network or the expansion was not measured.
    """
    if not cost.num_passes:
        return NOTHING
    one = rates.network(backbone).forward if cost.expansion is None else rates.iteration(backbone, cost.expansion)
    return one.times(cost.num_passes)


def localize_work(rates: Rates, *, num_images: int, soft_mask: Work, crf: bool, group_size: int) -> StageWork:
    """Return the work of a localization.

    Args:
        rates: Rates of the measured machine.
        num_images: Number of images.
        soft_mask: Work for one image's soft mask.
        crf: Whether masks are refined.
        group_size: Images that are read, localized and refined together.
    """
    refining = rates.storing + (rates.crf if crf else 0.0)
    # While the first group is read and while the last one is refined, there is nothing else to do.
    num_alone = min(group_size, num_images)
    share_beside = 1 - num_alone / num_images
    parts = (
        Part(num_alone, alone_seconds=rates.reading),
        Part(num_images, soft_mask.and_cores(share_beside * (rates.reading + refining))),
        Part(num_alone, alone_seconds=refining),
        Part(num_images, alone_seconds=rates.row_seconds),
        Part(min(num_images, NUM_GALLERY_IMAGES), alone_seconds=rates.shown_seconds),
    )
    return StageWork("localize", rates.start_seconds["localize"], parts)


def feature_parts(rates: Rates, *, backbone: str, num_images: int) -> tuple[Part, ...]:
    """Return the work of computing features: a process decodes a batch, then its network computes.

    Raises:
        InputError: The network was not measured.
    """
    forward = rates.network(backbone).forward
    return Part(num_images, Work(core_seconds=rates.reading)), Part(num_images, forward, piece_size=PART_SIZE)


def linear_work(rates: Rates, *, backbone: str, num_train: int, num_tests: int, num_classes: int) -> StageWork:
    """Return the work of a linear evaluation.

    Args:
        rates: Rates of the measured machine.
        backbone: Name of the network.
        num_train: Number of images that the classifier is fitted to.
        num_tests: Number of images that it is measured on.
        num_classes: Number of classes.

    Raises:
        InputError: The network was not measured.
    """
    products = num_train * rates.network(backbone).num_features * num_classes
    fit = rates.linear.seconds + products * rates.linear.seconds_per_product
    features = feature_parts(rates, backbone=backbone, num_images=num_train + num_tests)
    return StageWork("linear", rates.start_seconds["linear"], (*features, Part(1, alone_seconds=fit)))


@dataclass(frozen=True)
class Study:
    """Describe a study: train a network on images, find their objects, fit a linear classifier to its features.

    Attributes:
        num_images: Number of images.
        backbone: Name of the network.
        method: Name of the method.
        num_epochs: Epochs of the training.
        num_iterations: Iterations of ContraCAM.
        expansion: Expansion of ContraCAM.
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
        """Refuse numbers below 1."""
        for name, value in vars(self).items():
            if isinstance(value, int) and not isinstance(value, bool) and value < 1:
                option = name.removeprefix("num_").replace("_", "-")
                raise InputError(option, value, "is too few", "Give a number of at least 1.")

    def times(self, rates: Rates, machine: Machine, prices: Prices) -> list[StageTime]:
        """Return the time and cost of each stage.

        Raises:
            InputError: The rates lack the network, the method or the expansion.
        """
        cost = Cost(self.num_iterations, self.expansion)
        works = (
            pretrain_work(
                rates,
                backbone=self.backbone,
                method=self.method,
                num_images=self.num_images,
                num_epochs=self.num_epochs,
                execution=PretrainExecution(),
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
    """Return a text table with one line per stage and one for all of them."""
    head = ("stage", "time", "GPU hours", "core hours", "cost", "waits for")
    rows = [head, *((one.stage, *_sums([one]), one.bottleneck) for one in times), ("all", *_sums(times), "")]
    return "\n".join(aligned(rows, is_text=[True, *[False] * (len(head) - 2), True]))


def _sums(times: Sequence[StageTime]) -> tuple[str, str, str, str]:
    return (
        format_hours(sum(time.seconds for time in times)),
        f"{sum(time.gpu_hours for time in times):.2f}",
        f"{sum(time.core_hours for time in times):.2f}",
        f"{sum(time.cost for time in times):.2f}",
    )


def format_hours(seconds: float) -> str:
    """Format a time in seconds below two minutes, in minutes below two hours, else in hours."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
