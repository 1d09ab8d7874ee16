"""Measure the rates of this machine by running the stages' own code in this process."""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from typing import Annotated, Literal

import cv2
import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from pydantic import AfterValidator, Field, model_validator

from objectaware.config import DataConfig, LocalizeConfig, LocalizeExecution, PretrainConfig, PretrainExecution
from objectaware.config.variants import BackboneName, MethodConfig
from objectaware.data.folder import ImageFolder, Manifest
from objectaware.data.images import read_image, resize_image
from objectaware.data.scenes.pictures import draw_plan, render_scene
from objectaware.data.storage import Storage
from objectaware.distributed.localize_steps import CamActor, CrfActor, GroupPlan, group_table
from objectaware.errors import InputError
from objectaware.evaluate.features import compute_features
from objectaware.evaluate.linear import linear_evaluation
from objectaware.localize.exports import coco_json
from objectaware.localize.mask_store import read_rows
from objectaware.methods.backbones import build_backbone, channels_last
from objectaware.methods.checkpoint import copy_checkpoint, save_checkpoint
from objectaware.methods.moco import MoCo
from objectaware.model import Address, Model, Side, filled
from objectaware.planning import model
from objectaware.planning.model import Rates, StageName, TrainingRates, Work, num_cores
from objectaware.process import processor_name
from objectaware.report.gallery import Look
from objectaware.training.inputs import build_loader, open_inputs
from objectaware.training.pretraining import run_pretraining
from objectaware.training.session import LocalSession

_NUM_SCENES = 64
_SCENE_SIZE = 480

_NUM_TIMES = 3

_NUM_CLASSES = 4

NUM_STEPS = 8
"""Steps per epoch of the measured trainings, which have two epochs."""

# Decode all pictures in the first epoch, so that the second one measures the steps alone.
_CACHE_MIB = 8192
_NUM_VIEWED = 64

GROUP_SIZE = 64
"""Images in the measured group, as many as in a stage's."""

_NUM_ITERATIONS = 2

# On a CPU a step of 256 images takes minutes.
_BATCH_SIZES = {"cpu": 32, "cuda": 256}


def _measurable(name: str) -> str:
    """Refuse a method that needs labels, since the photos for measuring have no classes."""
    names = [name for name, variant in MethodConfig.variants().items() if not variant.needs_labels]
    if name not in names:
        raise ValueError(f"choose {' | '.join(names)}")
    return name


MethodName = Annotated[str, AfterValidator(_measurable)]


class MeasureConfig(Model):
    """Measurements on one machine.

    Attributes:
        device: Device on which networks compute.
        backbones: Networks to measure.
        methods: Methods with which the networks are trained.
        expansions: Expansions of ContraCAM to measure.
        image_size: Side in pixels of the networks' input.
        batch_size: Images per step; by default 32 on a CPU and 256 on a GPU.
        images: Folder of photos; by default scenes of 480 pixels.
    """

    device: Literal["cpu", "cuda"]
    backbones: Annotated[tuple[BackboneName, ...], Field(min_length=1)] = ("resnet18",)
    methods: Annotated[tuple[MethodName, ...], Field(min_length=1)] = (MethodConfig.default_name,)
    expansions: Annotated[tuple[Literal[1, 2, 4], ...], Field(min_length=1)] = (1, 2)
    image_size: Side = 224
    batch_size: Annotated[int, Field(ge=2)]
    images: Address | None = None

    @model_validator(mode="before")
    @classmethod
    def _fill_batch_size(cls, values: object) -> object:
        """Fill in the default that depends on the device."""
        if isinstance(values, dict) and values.get("device") in _BATCH_SIZES:
            return filled(values, {"batch_size": _BATCH_SIZES[str(values["device"])]})
        return values


def source_files(images: str | None, folder: Path) -> list[Path]:
    """Return the user's photos, or draw scenes into a folder as JPEG files.

    Raises:
        InputError: The user's folder holds no image.
    """
    if images is not None:
        return [Path(images, image_id) for image_id in ImageFolder.scan(images).image_ids]
    folder.mkdir(parents=True)
    paths = [folder / f"scene-{index:04d}.jpg" for index in range(_NUM_SCENES)]
    for index, path in enumerate(paths):
        plan = draw_plan(0, "train", index, variant="multi-object", correlation=0.9)
        pixels, *_ = render_scene(plan, _SCENE_SIZE)
        cv2.imwrite(str(path), cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR))
    return paths


def repeated(files: list[Path], number: int, folder: Path) -> DataConfig:
    """Fill a folder with `number` pictures, repeating the files if there are fewer."""
    folder.mkdir(parents=True)
    for index, path in enumerate(islice(cycle(files), number)):
        (folder / f"{index:06d}{path.suffix}").write_bytes(path.read_bytes())
    return DataConfig(root=str(folder))


def soft_masks(number: int, size: int) -> NDArray[np.float32]:
    """Return maps like CAMs: (number, size, size) in [0, 1], enlarged from 7 × 7."""
    coarse = np.random.default_rng(0).random((number, 7, 7), dtype=np.float32)
    maps = [cv2.resize(one, (size, size), interpolation=cv2.INTER_CUBIC) for one in coarse]
    return np.clip(np.stack(maps), 0, 1)


def core_seconds(work: Callable[[], object], num_units: int) -> float:
    """Return the CPU seconds of this process per unit of work. They do not depend on the machine's other processes."""
    return _median(work, time.process_time) / num_units


def wall_seconds(work: Callable[[], object], *, on_gpu: bool) -> float:
    """Return the seconds by the wall clock, until the GPU has finished too."""

    def finished() -> None:
        work()
        if on_gpu:
            torch.cuda.synchronize()

    return _median(finished, time.perf_counter)


def device_work(work: Callable[[], object], num_units: int, *, on_gpu: bool) -> Work:
    """Return the work of the GPU, or of all cores, per unit of work."""
    seconds = wall_seconds(work, on_gpu=on_gpu) / num_units
    return Work(gpu_seconds=seconds) if on_gpu else Work(core_seconds=seconds * num_cores())


def _median(work: Callable[[], object], now: Callable[[], float]) -> float:
    work()
    taken = []
    for _ in range(_NUM_TIMES):
        begun = now()
        work()
        taken.append(now() - begun)
    return statistics.median(taken)


def measure_rates(config: MeasureConfig, folder: Path, start_seconds: Mapping[StageName, float]) -> Rates:
    """Measure the rates of this machine, in seconds on a GPU and in minutes on a CPU.

    Args:
        config: What to measure.
        folder: An empty folder for pictures and checkpoints.
        start_seconds: Seconds that stages take to start and end.

    Raises:
        InputError: There is no GPU to measure on, or the folder holds no image.
    """
    on_gpu = config.device == "cuda"
    if on_gpu and not torch.cuda.is_available():
        raise InputError("device", "cuda", "is not available: PyTorch finds no GPU", "Give cpu.")
    gpu = f", {torch.cuda.get_device_name()}" if on_gpu else ""
    files = source_files(config.images, folder / "photos")
    with _all_cores():
        checkpoints = {backbone: _checkpoint(folder / "networks" / backbone, backbone) for backbone in config.backbones}
        group_data = repeated(files, GROUP_SIZE, folder / "group")
        store = Storage.from_uri(folder / "store")
        group = MeasuredGroup(config, group_data, checkpoints[config.backbones[0]], store)
        data = repeated(files, NUM_STEPS * config.batch_size, folder / "training")
        training = partial(_training_config, config, data)
        one = training(config.backbones[0], config.methods[0])
        loader = build_loader(one, open_inputs(one).images, Path(data.root))
        indices = np.arange(NUM_STEPS * config.batch_size)
        num_viewed = min(_NUM_VIEWED, len(indices))
        views = core_seconds(lambda: loader.load(0, indices[:num_viewed]), num_viewed)
        loaded = loader.load(0, indices)
        crops = [crop for view in ("pixels_0", "pixels_1") for crop in loaded.get(view, ())]
        pictures = [read_image(path) for path in files[:GROUP_SIZE]]
        return Rates(
            source=f"as measured on {processor_name()}, {num_cores()} cores{gpu}",
            date=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
            device=config.device,
            num_cores=num_cores(),
            num_gpus=int(on_gpu),
            image_size=config.image_size,
            picture_bytes=float(np.mean([picture.nbytes for picture in pictures])),
            decoding=core_seconds(lambda: [read_image(path) for path in files[:GROUP_SIZE]], len(pictures)),
            views=views,
            linear=_linear(config, crops, num_files=len(files)),
            networks=tuple(
                model.NetworkRates(
                    backbone=backbone,
                    num_features=build_backbone(backbone).num_features,
                    training={
                        method: _training_rates(training(backbone, method), folder / f"{backbone}-{method}", views)
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
    """Let PyTorch compute on all cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(num_cores())
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _checkpoint(folder: Path, backbone: str) -> Path:
    """Write a checkpoint of an untrained network and return its folder."""
    folder.mkdir(parents=True)
    torch.manual_seed(0)
    save_checkpoint(folder, MoCo(backbone), {"backbone": backbone}, {"optimizer": {}, "next_epoch": 0})
    return folder


class _Squashed:
    """Hold pictures in memory at the network's input size."""

    def __init__(self, pictures: list[NDArray[np.uint8]], size: int) -> None:
        self._pictures = [resize_image(picture, (size, size)) for picture in pictures]

    def __len__(self) -> int:
        return len(self._pictures)

    def read(self, index: int) -> NDArray[np.uint8]:
        """Return the pixels (S, S, 3) of one picture."""
        return self._pictures[index]


def _forward(config: MeasureConfig, backbone: str, pictures: list[NDArray[np.uint8]]) -> Work:
    """Measure the work per image to compute its features."""
    device, size = torch.device(config.device), config.image_size
    network, images = channels_last(build_backbone(backbone), device), _Squashed(pictures, size)
    indices = [index % len(images) for index in range(config.batch_size)]

    def compute() -> None:
        compute_features(network, images, indices, size=size, center_crop=False, device=device)

    return device_work(compute, len(indices), on_gpu=config.device == "cuda")


def _linear(config: MeasureConfig, crops: list[NDArray[np.uint8]], *, num_files: int) -> model.LinearRates:
    """Measure the fit of the linear classifier on features of crops. Crops of one photo have the same class.

    Args:
        config: What to measure.
        crops: One or two crops (S, S, 3) of each picture, in the order of the pictures.
        num_files: Number of different pictures, after which they repeat.
    """
    device, on_gpu = torch.device(config.device), config.device == "cuda"
    network = channels_last(build_backbone(config.backbones[0]), device)
    images = _Squashed(crops, config.image_size)
    computed = compute_features(
        network, images, range(len(images)), size=config.image_size, center_crop=False, device=device
    )
    features = computed.values.to(device)
    labels = torch.arange(len(crops)) % (NUM_STEPS * config.batch_size) % num_files % _NUM_CLASSES
    # Two sizes separate the constant time of a fit from the time per sample.
    numbers = (len(labels) // 2, len(labels))
    seconds = [
        wall_seconds(partial(linear_evaluation, features[:number], labels[:number]), on_gpu=on_gpu)
        for number in numbers
    ]
    products = [number * features.shape[1] * _NUM_CLASSES for number in numbers]
    slope = max((seconds[1] - seconds[0]) / (products[1] - products[0]), 0.0)
    return model.LinearRates(seconds=max(seconds[0] - slope * products[0], 0.0), seconds_per_product=slope)


class _WatchedSession(LocalSession):
    """Note when steps end, and store checkpoints as Ray Train does.

    Args:
        folder: Folder for checkpoints.
        device: Device to train on.

    Attributes:
        ends: Time at which each step of each epoch ended, in seconds.
        waits: Seconds that the epoch had waited for views by then.
    """

    def __init__(self, folder: Path, device: torch.device) -> None:
        super().__init__(folder, device)
        self.ends: tuple[list[float], list[float]] = ([], [])
        self.waits: tuple[list[float], list[float]] = ([], [])
        self._stored = Storage.from_uri(folder / "stored")

    def progress(self, state: Mapping[str, float]) -> None:
        """Note the end of a step."""
        epoch = int(state["epoch"])
        self.ends[epoch].append(time.perf_counter())
        self.waits[epoch].append(state["data_wait_share"] * state["epoch_seconds"])

    def report(self, metrics: Mapping[str, float], *, epoch: int, checkpoint: Path | None) -> None:
        """Copy the checkpoint to a storage, as Ray Train does, before keeping it."""
        assert checkpoint is not None, "every epoch makes one"
        copy_checkpoint(checkpoint, self._stored.child(str(epoch)))
        super().report(metrics, epoch=epoch, checkpoint=checkpoint)


def _training_config(config: MeasureConfig, data: DataConfig, backbone: str, method: str) -> PretrainConfig:
    """Return the configuration of a training of two short epochs."""
    execution = PretrainExecution(
        use_gpu=config.device == "cuda",
        num_loader_threads=max(num_cores(), 2),
        cache_mib=_CACHE_MIB,
        record_every_steps=1,  # so that the loop reads each step, also on a GPU
    )
    sizes = {"image_size": config.image_size, "batch_size": config.batch_size, "num_epochs": 2}
    fields = {"data": data, "method": method, "backbone": backbone, **sizes, "execution": execution}
    return PretrainConfig.model_validate(fields)


def _training_rates(config: PretrainConfig, folder: Path, views: float) -> TrainingRates:
    """Measure a training by the times of its second epoch.

    Args:
        config: Configuration of the training.
        folder: Folder for checkpoints.
        views: Core-seconds to cut a picture's views, which are measured separately.
    """
    on_gpu = bool(config.execution.use_gpu)
    session = _WatchedSession(folder, torch.device("cuda" if on_gpu else "cpu"))
    begun = time.perf_counter()
    run_pretraining(config, session)
    (first_ends, ends), (_, waits) = session.ends, session.waits
    step = (ends[-1] - ends[0]) / (len(ends) - 1)
    if on_gpu:
        # The GPU waits for the cores' work.
        waiting = (waits[-1] - waits[0]) / (len(waits) - 1)
        work = Work(gpu_seconds=(step - waiting) / config.batch_size)
    else:
        work = Work(core_seconds=max(step * num_cores() / config.batch_size - views, 0.0))
    return TrainingRates(
        step=work,
        start_seconds=max(first_ends[0] - begun - step, 0.0),
        epoch_seconds=max(ends[0] - first_ends[-1] - step, 0.0),
    )


class MeasuredGroup:
    """Measure one group of pictures in localization by calling the steps in this process.

    Args:
        config: What to measure.
        data: `GROUP_SIZE` pictures.
        checkpoint: Checkpoint of the network that finds the stored masks.
        store: Folder for the masks.
    """

    def __init__(self, config: MeasureConfig, data: DataConfig, checkpoint: Path, store: Storage) -> None:
        images = data.open()
        assert isinstance(images, ImageFolder)
        self._images, self._data, self._checkpoint, self._store = images, data, checkpoint, store
        self._on_gpu, self._size = config.device == "cuda", config.image_size
        localize = self._config(checkpoint)
        self._plan = GroupPlan.of(
            Manifest.of(images),
            localize.localizer,
            group_size=localize.group_size,
            seed=localize.seed,
            image_size=localize.image_size,
        )
        self._table = group_table(self._plan, 0)
        masked = self._cam_actor(checkpoint, expansion=1)(self._table)
        # An untrained network may find nothing, and an empty mask gets no CRF.
        cams = pa.array([soft_masks(GROUP_SIZE, config.image_size).tobytes()], pa.large_binary())
        self._masked = masked.set_column(masked.column_names.index("cams"), "cams", cams)

    def rates(self) -> dict[str, float]:
        """Measure the work per image apart from the network: fields of `Rates`."""
        storing, refining = self._storing(crf=False), self._storing(crf=True)
        row = core_seconds(lambda: deque(coco_json(read_rows(self._store)), maxlen=0), GROUP_SIZE)
        return {
            "reading": core_seconds(lambda: group_table(self._plan, 0), GROUP_SIZE),
            "storing": storing,
            "crf": max(refining - storing, 0.0),
            "row_seconds": row,
            "shown_seconds": max(core_seconds(self._show, GROUP_SIZE) - row, 0.0),
        }

    def iteration(self, checkpoint: Path, expansion: int) -> Work:
        """Measure the work per image of one iteration of ContraCAM."""
        actor = self._cam_actor(checkpoint, expansion)
        return device_work(lambda: actor(self._table), GROUP_SIZE * _NUM_ITERATIONS, on_gpu=self._on_gpu)

    def _storing(self, *, crf: bool) -> float:
        """Measure the core-seconds for a picture's mask, boxes and row of the store, with the CRF or without."""
        actor = CrfActor(self._config(self._checkpoint, crf=crf), self._store)
        return core_seconds(lambda: actor(self._masked), GROUP_SIZE)

    def _show(self) -> None:
        look = Look(self._images, None)
        deque(coco_json(look.watch(read_rows(self._store))), maxlen=0)
        look.gallery("measured")

    def _cam_actor(self, checkpoint: Path, expansion: int) -> CamActor:
        return CamActor(self._config(checkpoint, expansion=expansion))

    def _config(self, checkpoint: Path, *, expansion: int = 1, crf: bool = True) -> LocalizeConfig:
        localizer = {"name": "contracam", "expansion": expansion, "num_iterations": _NUM_ITERATIONS}
        fields = {"localizer": localizer, "checkpoint": str(checkpoint), "crf": crf}
        execution = LocalizeExecution(use_gpu=self._on_gpu, num_compute_threads=num_cores())
        sizes = {"image_size": self._size, "group_size": GROUP_SIZE}
        return LocalizeConfig.model_validate({**fields, **sizes, "data": self._data, "execution": execution})
