"""Tasks that run where they are called, and small data, for tests of what stages do around them."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from objectaware.config import DataConfig


class Tasks:
    """What was run in place of `objectaware.distributed.task`.

    Attributes:
        calls: Name of the function and its arguments, by call.
    """

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[Any, ...]]] = []

    def run_tasks(
        self,
        function: Callable[..., Any],
        arguments: Sequence[tuple[Any, ...]],
        *,
        on_result: Callable[[Any], None] | None = None,
        **_: object,
    ) -> list[Any]:
        """Runs all in their order; arguments and results travel as pickles, as they do on a cluster."""
        results = []
        for given in arguments:
            self.calls.append((function.__name__, given))
            results.append(pickle.loads(pickle.dumps(function(*pickle.loads(pickle.dumps(given))))))
            if on_result is not None:
                on_result(results[-1])
        return results

    def run_task(self, function: Callable[..., Any], *arguments: Any, **_: object) -> Any:
        """Runs one."""
        return self.run_tasks(function, [arguments])[0]

    def count(self, name: str) -> int:
        """How often a function was run."""
        return sum(called == name for called, _ in self.calls)


def tasks_in_process(monkeypatch: pytest.MonkeyPatch) -> Tasks:
    """Lets evaluations of features run without a Ray; their configurations must say `use_gpu` themselves."""
    from objectaware.stages import features

    tasks = Tasks()
    monkeypatch.setattr(features, "run_tasks", tasks.run_tasks)
    monkeypatch.setattr(features, "run_task", tasks.run_task)
    return tasks


def write_colours(root: Path, colours: dict[str, str], num_images: int) -> DataConfig:
    """A folder a class, each picture in the colour of its class, with noise."""
    generator = np.random.default_rng(0)
    for name, colour in colours.items():
        (root / name).mkdir(parents=True)
        for number in range(num_images):
            pixels = np.asarray(Image.new("RGB", (32, 32), colour), dtype=np.int64)
            noisy = (pixels + generator.integers(-20, 21, pixels.shape)).clip(0, 255)
            Image.fromarray(noisy.astype(np.uint8)).save(root / name / f"{number}.png")
    return DataConfig(root=str(root), layout="class-folders")
