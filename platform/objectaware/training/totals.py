"""What an epoch adds up to, and where in it training stands."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass
class EpochTotals:
    """Sums over an epoch's steps; saved with a checkpoint inside an epoch, of which `num_steps` is the position.

    Attributes:
        seconds_before: What the steps took that were made before a restart.
        started: When this process began with the epoch.
        observed: Sums of what was watched in each step, by name.
    """

    loss: float = 0.0
    num_steps: int = 0
    num_images: int = 0
    waiting_seconds: float = 0.0
    seconds_before: float = 0.0
    started: float = field(default_factory=time.perf_counter)
    observed: dict[str, float] = field(default_factory=dict)

    def observe(self, values: Mapping[str, float]) -> None:
        """Adds what was watched in one step."""
        for name, value in values.items():
            self.observed[name] = self.observed.get(name, 0.0) + value

    @property
    def seconds(self) -> float:
        """What the epoch has taken so far."""
        return self.seconds_before + time.perf_counter() - self.started

    def state(self) -> dict[str, Any]:
        """Plain values; `EpochTotals(**state)` goes on from them."""
        values = {**asdict(self), "seconds_before": self.seconds}
        del values["started"]
        return values

    def metrics(self) -> dict[str, float]:
        """Means of loss and what was watched, images a second and the share of the time spent waiting for data."""
        seconds = self.seconds
        return {
            "loss": self.loss / self.num_steps,
            **{name: value / self.num_steps for name, value in self.observed.items()},
            "images_per_second": self.num_images / seconds,
            "data_wait_share": self.waiting_seconds / seconds,
            "epoch_seconds": seconds,
        }
