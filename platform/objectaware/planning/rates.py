"""What pieces of work take on one machine: measured or stated, kept as JSON."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from objectaware.errors import InputError
from objectaware.model import Model

NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]
StageName = Literal["pretrain", "localize", "linear"]


class Work(Model):
    """What a piece of work takes.

    Attributes:
        core_seconds: Seconds of one core, while all cores of the machine are at work.
        gpu_seconds: Seconds of one GPU; 0 where the cores do that work.
    """

    core_seconds: NonNegative = 0.0
    gpu_seconds: NonNegative = 0.0

    def times(self, number: float) -> Work:
        """So many of it."""
        return Work(core_seconds=number * self.core_seconds, gpu_seconds=number * self.gpu_seconds)

    def and_cores(self, core_seconds: float) -> Work:
        """It with further work of the cores beside it."""
        return Work(core_seconds=self.core_seconds + core_seconds, gpu_seconds=self.gpu_seconds)


NOTHING = Work()


class TrainingRates(Model):
    """What training a network by one method takes.

    Attributes:
        step: An image's share of a step: its two views coloured, through the network and back.
        start_seconds: Before the first step: weights and the first batch's views.
        epoch_seconds: Between two epochs: a checkpoint is written and stored, and the loader begins anew.
    """

    step: Work
    start_seconds: NonNegative = 0.0
    epoch_seconds: NonNegative = 0.0


class NetworkRates(Model):
    """What one network takes.

    Attributes:
        backbone: The network.
        num_features: Length of its pooled features.
        training: By method.
        forward: An image through the network, for its features.
        iteration: An image's share of an iteration of ContraCAM, by expansion.
    """

    backbone: str
    num_features: Count
    training: dict[str, TrainingRates]
    forward: Work
    iteration: dict[int, Work]


class LinearRates(Model):
    """What fitting the linear classifier takes, in the one process that does it.

    Attributes:
        seconds: However few samples.
        seconds_per_product: For each of samples × features × classes.
    """

    seconds: NonNegative = 0.0
    seconds_per_product: NonNegative = 0.0


class Rates(Model):
    """What was measured on one machine, or is stated of one.

    Attributes:
        source: Where the numbers are from, such as `as measured on … on …`.
        date: When; empty where they are stated.
        device: Whether networks compute on GPUs there.
        num_cores: Cores that it has.
        num_gpus: GPUs that it has.
        image_size: Side in pixels of what the networks see.
        picture_bytes: Of a decoded picture in memory.
        decoding: Core-seconds to read a picture's file.
        views: Core-seconds to cut a picture's two views.
        reading: Core-seconds to read a picture's file and bring it to the network's size.
        storing: Core-seconds for a picture's mask, boxes and row of the mask store.
        crf: Core-seconds for its dense CRF.
        row_seconds: Of the driver, to read a row back and export it.
        shown_seconds: Of the driver, for a picture of the gallery.
        linear: The linear classifier.
        networks: The networks.
        start_seconds: Of a stage, until its processes work and after they have: by stage.
    """

    source: str
    date: str = ""
    device: Literal["cpu", "cuda"]
    num_cores: Count
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
        """The rates of a network.

        Raises:
            InputError: It was not measured.
        """
        for network in self.networks:
            if network.backbone == backbone:
                return network
        known = ", ".join(network.backbone for network in self.networks)
        raise InputError(
            "backbone", backbone, f"is not among the rates, which are of {known}", _measure_anew("backbones")
        )

    def training(self, backbone: str, method: str) -> TrainingRates:
        """The rates of a network's training.

        Raises:
            InputError: It was not measured.
        """
        known = self.network(backbone).training
        if method not in known:
            problem = f"is not among the rates of {backbone}, which are of {', '.join(known)}"
            raise InputError("method", method, problem, _measure_anew("methods"))
        return known[method]

    def iteration(self, backbone: str, expansion: int) -> Work:
        """What an iteration of ContraCAM takes an image.

        Raises:
            InputError: It was not measured.
        """
        known = self.network(backbone).iteration
        if expansion not in known:
            problem = f"is not among the rates of {backbone}, which are of {', '.join(map(str, known))}"
            raise InputError("expansion", expansion, problem, _measure_anew("expansions"))
        return known[expansion]


def _measure_anew(option: str) -> str:
    return f"Measure it as well: `objectaware plan measure --{option} …`."


def num_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


def processor_name() -> str:
    """Name of the processor."""
    information = Path("/proc/cpuinfo")
    lines = information.read_text().splitlines() if information.exists() else []
    names = [line for line in lines if line.startswith("model name")]
    return names[0].partition(":")[2].strip() if names else platform.processor() or platform.machine()


def read_rates(path: Path) -> Rates:
    """Reads rates that `write_rates` wrote.

    Raises:
        InputError: There is no such file, or it holds something else.
    """
    remedy = "Write one with `objectaware plan measure --out FILE`."
    if not path.is_file():
        raise InputError("rates", path, "is no file", remedy)
    try:
        return Rates.model_validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        raise InputError("rates", path, f"holds no rates ({where}: {first['msg']})", remedy) from error


def write_rates(path: Path, rates: Rates) -> None:
    """Writes rates as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(rates.model_dump_json(indent=2) + "\n")
