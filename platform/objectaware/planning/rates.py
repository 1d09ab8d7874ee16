"""Rates of one machine, measured or stated: the time that pieces of work take on it. Kept as JSON."""

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
    num_features: Count
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
        """Return the rates of a network.

        Raises:
            InputError: The network was not measured.
        """
        for network in self.networks:
            if network.backbone == backbone:
                return network
        known = ", ".join(network.backbone for network in self.networks)
        raise InputError(
            "backbone", backbone, f"is not among the rates, which are of {known}", _measure_also("backbones")
        )

    def training(self, backbone: str, method: str) -> TrainingRates:
        """Return the rates of a network's training.

        Raises:
            InputError: The network or the method was not measured.
        """
        known = self.network(backbone).training
        if method not in known:
            problem = f"is not among the rates of {backbone}, which are of {', '.join(known)}"
            raise InputError("method", method, problem, _measure_also("methods"))
        return known[method]

    def iteration(self, backbone: str, expansion: int) -> Work:
        """Return the work per image of one iteration of ContraCAM.

        Raises:
            InputError: The network or the expansion was not measured.
        """
        known = self.network(backbone).iteration
        if expansion not in known:
            problem = f"is not among the rates of {backbone}, which are of {', '.join(map(str, known))}"
            raise InputError("expansion", expansion, problem, _measure_also("expansions"))
        return known[expansion]


def _measure_also(option: str) -> str:
    return f"Measure it as well: `objectaware plan measure --{option} …`."


def num_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0))


def processor_name() -> str:
    """Return the processor's name."""
    information = Path("/proc/cpuinfo")
    lines = information.read_text().splitlines() if information.exists() else []
    names = [line for line in lines if line.startswith("model name")]
    return names[0].partition(":")[2].strip() if names else platform.processor() or platform.machine()


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
