"""Time, cost and bottleneck of work on so many GPUs and cores."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from objectaware.errors import InputError
from objectaware.planning.rates import NOTHING, Rates, Work

Resource = Literal["GPU", "CPU cores", "one process", "start-up"]


@dataclass(frozen=True)
class Machine:
    """What the stages run on, one machine or a cluster.

    Attributes:
        num_gpus: GPUs.
        num_cores: CPU cores.
    """

    num_gpus: int
    num_cores: int

    @classmethod
    def of(cls, rates: Rates, *, num_gpus: int | None = None, num_cores: int | None = None) -> Machine:
        """Checks a machine against the rates; what is left open is as where they were measured.

        Raises:
            InputError: Rates of GPUs say nothing of a machine without, and the other way round; or a number is none.
        """
        gpus = rates.num_gpus if num_gpus is None else num_gpus
        cores = rates.num_cores if num_cores is None else num_cores
        if cores < 1:
            raise InputError("cpus", cores, "is too few", "Give at least one core.")
        if gpus < 0 or (gpus == 0) != (rates.device == "cpu"):
            problem = f"does not go with rates of the device {rates.device}"
            other = "cuda" if rates.device == "cpu" else "cpu"
            remedy = f"Measure on one of the kind: `objectaware plan measure --device {other}`."
            raise InputError("gpus", gpus, problem, remedy)
        return cls(gpus, cores)


@dataclass(frozen=True)
class Part:
    """A part of a stage's work. Its parts follow one another; inside a part, GPUs and cores work side by side.

    Attributes:
        num_units: How many units it has, such as images.
        work: What one of them takes.
        alone_seconds: What one process takes for one of them, whatever else there is.
        piece_size: Units that one GPU takes at a time, where it takes no fewer.
    """

    num_units: float
    work: Work = NOTHING
    alone_seconds: float = 0.0
    piece_size: int | None = None

    def seconds(self, machine: Machine) -> dict[Resource, float]:
        """How long each resource is at work on it: the part takes as long as the one that is longest."""
        gpu = self._units_a_gpu(machine.num_gpus) * self.work.gpu_seconds if self.work.gpu_seconds else 0.0
        return {
            "GPU": gpu,
            "CPU cores": self.num_units * self.work.core_seconds / machine.num_cores,
            "one process": self.num_units * self.alone_seconds,
        }

    def _units_a_gpu(self, num_gpus: int) -> float:
        if self.piece_size is None:
            return self.num_units / num_gpus
        num_pieces = math.ceil(self.num_units / self.piece_size)
        return min(self.num_units, math.ceil(num_pieces / num_gpus) * self.piece_size)


@dataclass(frozen=True)
class Prices:
    """What a machine costs, in any currency.

    Attributes:
        gpu_hour: A GPU for an hour.
        core_hour: A core for an hour.
    """

    gpu_hour: float = 0.0
    core_hour: float = 0.0

    def __post_init__(self) -> None:
        """Refuses what is no price."""
        for name, price in (("gpu-hour-price", self.gpu_hour), ("cpu-hour-price", self.core_hour)):
            if not 0 <= price < math.inf:
                raise InputError(name, price, "is no price", "Give a number of at least 0.")


FREE = Prices()


@dataclass(frozen=True)
class StageTime:
    """What a stage takes on a machine.

    Attributes:
        stage: Its name.
        seconds: From its begin to its end.
        bottleneck: The resource that its parts wait for longest.
        gpu_hours: Hours of all the machine's GPUs meanwhile, busy or not.
        core_hours: Hours of all its cores.
        cost: At the prices given.
    """

    stage: str
    seconds: float
    bottleneck: Resource
    gpu_hours: float
    core_hours: float
    cost: float


@dataclass(frozen=True)
class StageWork:
    """All of a stage's work.

    Attributes:
        stage: Its name.
        start_seconds: Of processes that start and end, whatever the work.
        parts: One after the other.
    """

    stage: str
    start_seconds: float
    parts: Sequence[Part]

    def total(self) -> Work:
        """All that GPUs and cores do, but for the start-up."""
        return Work(
            core_seconds=sum(part.num_units * (part.work.core_seconds + part.alone_seconds) for part in self.parts),
            gpu_seconds=sum(part.num_units * part.work.gpu_seconds for part in self.parts),
        )

    def on(self, machine: Machine, prices: Prices = FREE) -> StageTime:
        """How long it takes on a machine, what that costs, and what it waits for."""
        waits: dict[Resource, float] = {"start-up": self.start_seconds}
        for part in self.parts:
            seconds = part.seconds(machine)
            slowest = max(seconds, key=seconds.__getitem__)
            waits[slowest] = waits.get(slowest, 0.0) + seconds[slowest]
        total = sum(waits.values())
        gpu_hours, core_hours = machine.num_gpus * total / 3600, machine.num_cores * total / 3600
        cost = gpu_hours * prices.gpu_hour + core_hours * prices.core_hour
        return StageTime(self.stage, total, max(waits, key=waits.__getitem__), gpu_hours, core_hours, cost)
