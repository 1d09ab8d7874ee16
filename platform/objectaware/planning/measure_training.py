"""What a step of training takes: the loop as a stage runs it, in this process."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from objectaware.config import DataConfig, MeasureConfig, PretrainConfig, PretrainExecution
from objectaware.data.storage import Storage
from objectaware.methods.checkpoint import copy_checkpoint
from objectaware.planning.clock import core_seconds
from objectaware.planning.hardware import num_cores
from objectaware.planning.rates import TrainingRates, Work
from objectaware.training.inputs import build_loader, open_inputs
from objectaware.training.loop import run_pretraining
from objectaware.training.session import LocalSession
from objectaware.training.views import ViewLoader

NUM_STEPS = 8
"""Steps of an epoch of what is measured."""

# All pictures are decoded in the first epoch, so that the second one shows the steps alone.
_CACHE_MIB = 8192
_NUM_VIEWED = 64


class _WatchedSession(LocalSession):
    """A session that notes when steps end, and stores checkpoints as Ray Train does.

    Args:
        folder: Where checkpoints go.
        device: Device to train on.

    Attributes:
        ends: When each step of each epoch ended, in seconds.
        waits: How long the epoch had waited for views until then.
    """

    def __init__(self, folder: Path, device: torch.device) -> None:
        super().__init__(folder, device)
        self.ends: tuple[list[float], list[float]] = ([], [])
        self.waits: tuple[list[float], list[float]] = ([], [])
        self._stored = Storage.from_uri(folder / "stored")

    def progress(self, state: Mapping[str, float]) -> None:
        """Notes the end of a step."""
        epoch = int(state["epoch"])
        self.ends[epoch].append(time.perf_counter())
        self.waits[epoch].append(state["data_wait_share"] * state["epoch_seconds"])

    def report(self, metrics: Mapping[str, float], *, epoch: int, checkpoint: Path | None) -> None:
        """Copies the checkpoint to a storage before it is kept."""
        assert checkpoint is not None, "every epoch makes one"
        copy_checkpoint(checkpoint, self._stored.child(str(epoch)))
        super().report(metrics, epoch=epoch, checkpoint=checkpoint)


class MeasuredTrainings:
    """Trainings of two short epochs.

    Args:
        config: What is measured.
        data: Pictures for `NUM_STEPS` steps.
        num_files: How many of them differ: after so many they begin again.
    """

    def __init__(self, config: MeasureConfig, data: DataConfig, *, num_files: int) -> None:
        self._config, self._data, self._num_files = config, data, num_files
        self._on_gpu = config.device == "cuda"

    @cached_property
    def views(self) -> float:
        """Core-seconds to cut a picture's two views, its file decoded."""
        indices = np.arange(min(_NUM_VIEWED, NUM_STEPS * self._config.batch_size))
        return core_seconds(lambda: self._loader.load(0, indices)) / len(indices)

    def crops(self, num_classes: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """Both views of all pictures, (2N, S, S, 3), and a class for each, (2N,), the same for the same file."""
        indices = np.arange(NUM_STEPS * self._config.batch_size)
        classes = indices % self._num_files % num_classes
        views = self._loader.load(0, indices).pixels[:2]
        return np.concatenate(views), np.concatenate([classes] * len(views))

    @cached_property
    def _loader(self) -> ViewLoader:
        config = self._training_config(self._config.backbones[0], self._config.methods[0])
        return build_loader(config, open_inputs(config).images, Path(self._data.root))

    def training(self, backbone: str, method: str, folder: Path) -> TrainingRates:
        """What a training takes, by the times of its second epoch.

        Args:
            backbone: The network.
            method: How it is trained.
            folder: For its checkpoints.
        """
        session = _WatchedSession(folder, torch.device(self._config.device))
        config, kept = self._training_config(backbone, method), Storage.from_uri(folder / "kept")
        begun = time.perf_counter()
        run_pretraining(config, session, cache_folder=folder / "cache", kept_folder=kept)
        (first_ends, ends), (_, waits) = session.ends, session.waits
        step = (ends[-1] - ends[0]) / (len(ends) - 1)
        waiting = (waits[-1] - waits[0]) / (len(waits) - 1)
        return TrainingRates(
            step=self._work(step, waiting),
            start_seconds=max(first_ends[0] - begun - step, 0.0),
            epoch_seconds=max(ends[0] - first_ends[-1] - step, 0.0),
        )

    def _work(self, step: float, waiting: float) -> Work:
        """What an image's share of a step takes, without cutting its views."""
        if self._on_gpu:
            # What the GPU waits for is the cores' work, which is counted apart.
            return Work(gpu_seconds=(step - waiting) / self._config.batch_size)
        return Work(core_seconds=max(step * num_cores() / self._config.batch_size - self.views, 0.0))

    def _training_config(self, backbone: str, method: str) -> PretrainConfig:
        execution = PretrainExecution(
            use_gpu=self._on_gpu, num_loader_threads=max(num_cores(), 2), cache_mib=_CACHE_MIB
        )
        sizes = {"image_size": self._config.image_size, "batch_size": self._config.batch_size, "num_epochs": 2}
        fields = {"data": self._data, "method": method, "backbone": backbone, **sizes, "execution": execution}
        return PretrainConfig.model_validate(fields)
