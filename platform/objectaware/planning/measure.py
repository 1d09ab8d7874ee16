"""Measures the rates of this machine by running the stages' own code in this process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from objectaware.config import MeasureConfig
from objectaware.data.images import read_image, resize_image
from objectaware.data.storage import Storage
from objectaware.errors import InputError
from objectaware.evaluate.features import compute_features
from objectaware.evaluate.linear import linear_evaluation
from objectaware.methods.backbones import build_backbone, channels_last
from objectaware.methods.checkpoint import save_checkpoint
from objectaware.methods.moco import MoCo
from objectaware.planning.clock import core_seconds, wall_seconds
from objectaware.planning.hardware import describe, num_cores
from objectaware.planning.measure_localization import GROUP_SIZE, MeasuredGroup
from objectaware.planning.measure_training import NUM_STEPS, MeasuredTrainings
from objectaware.planning.pictures import repeated, source_files
from objectaware.planning.rates import LinearRates, NetworkRates, Rates, StageName, Work

_NUM_CLASSES = 4


def measure_rates(config: MeasureConfig, folder: Path, start_seconds: Mapping[StageName, float]) -> Rates:
    """Measures what pieces of work take on this machine: seconds on a GPU, minutes on a CPU.

    Args:
        config: What is measured.
        folder: An empty folder for pictures and checkpoints.
        start_seconds: What stages take to start and end.

    Raises:
        InputError: There is no GPU to measure on, or the folder of images holds none.
    """
    on_gpu = config.device == "cuda"
    if on_gpu and not torch.cuda.is_available():
        raise InputError("device", "cuda", "is not there: PyTorch finds no GPU", "Give cpu.")
    files = source_files(config.images, folder / "photos")
    with _all_cores():
        checkpoints = {backbone: _checkpoint(folder / "networks" / backbone, backbone) for backbone in config.backbones}
        group_data = repeated(files, GROUP_SIZE, folder / "group")
        store = Storage.from_uri(folder / "store")
        group = MeasuredGroup(config, group_data, checkpoints[config.backbones[0]], store)
        training_data = repeated(files, NUM_STEPS * config.batch_size, folder / "training")
        trainings = MeasuredTrainings(config, training_data, num_files=len(files))
        pictures = [read_image(path) for path in files[:GROUP_SIZE]]
        return Rates(
            source=f"as measured on {describe(config.device)}",
            date=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
            device=config.device,
            num_cores=num_cores(),
            num_gpus=int(on_gpu),
            image_size=config.image_size,
            picture_bytes=float(np.mean([picture.nbytes for picture in pictures])),
            decoding=core_seconds(lambda: [read_image(path) for path in files[:GROUP_SIZE]]) / len(pictures),
            views=trainings.views,
            linear=_linear(config, trainings),
            networks=tuple(
                NetworkRates(
                    backbone=backbone,
                    num_features=build_backbone(backbone).num_features,
                    training={
                        method: trainings.training(backbone, method, folder / f"{backbone}-{method}")
                        for method in config.methods
                    },
                    forward=_forward(config, backbone, pictures),
                    iteration={expansion: group.iteration(checkpoint, expansion) for expansion in config.expansions},
                )
                for backbone, checkpoint in checkpoints.items()
            ),
            start_seconds=dict(start_seconds),
            **group.rates(),
        )


@contextmanager
def _all_cores() -> Iterator[None]:
    """Lets PyTorch compute on all cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(num_cores())
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _checkpoint(folder: Path, backbone: str) -> Path:
    """A checkpoint of an untrained network."""
    folder.mkdir(parents=True)
    torch.manual_seed(0)
    save_checkpoint(folder, MoCo(backbone), {"backbone": backbone}, {"optimizer": {}, "next_epoch": 0})
    return folder


class _Squashed:
    """Pictures in memory at the size that the network sees."""

    def __init__(self, pictures: list[NDArray[np.uint8]], size: int) -> None:
        self._pictures = [resize_image(picture, (size, size)) for picture in pictures]

    def __len__(self) -> int:
        return len(self._pictures)

    def read(self, index: int) -> NDArray[np.uint8]:
        """Pixels (S, S, 3) of one picture."""
        return self._pictures[index]


def _forward(config: MeasureConfig, backbone: str, pictures: list[NDArray[np.uint8]]) -> Work:
    """What an image takes through the network for its features."""
    device, on_gpu = torch.device(config.device), config.device == "cuda"
    network, images = channels_last(build_backbone(backbone), device), _Squashed(pictures, config.image_size)
    indices = [index % len(images) for index in range(config.batch_size)]

    def compute() -> None:
        compute_features(network, images, indices, size=config.image_size, center_crop=False, device=device)

    seconds = wall_seconds(compute, on_gpu=on_gpu) / len(indices)
    return Work(gpu_seconds=seconds) if on_gpu else Work(core_seconds=seconds * num_cores())


def _linear(config: MeasureConfig, trainings: MeasuredTrainings) -> LinearRates:
    """What fitting the linear classifier takes, on features of crops; those of one photo are of one class."""
    device, on_gpu = torch.device(config.device), config.device == "cuda"
    network = channels_last(build_backbone(config.backbones[0]), device)
    crops, classes = trainings.crops(_NUM_CLASSES)
    images = _Squashed(list(crops), config.image_size)
    computed = compute_features(
        network, images, range(len(images)), size=config.image_size, center_crop=False, device=device
    )
    features, labels = computed.values.to(device), torch.from_numpy(classes)
    # Two sizes tell what a fit takes however small it is from what each sample adds.
    numbers = (len(labels) // 2, len(labels))
    seconds = [
        wall_seconds(partial(linear_evaluation, features[:number], labels[:number]), on_gpu=on_gpu)
        for number in numbers
    ]
    products = [number * features.shape[1] * _NUM_CLASSES for number in numbers]
    slope = max((seconds[1] - seconds[0]) / (products[1] - products[0]), 0.0)
    return LinearRates(seconds=max(seconds[0] - slope * products[0], 0.0), seconds_per_product=slope)
