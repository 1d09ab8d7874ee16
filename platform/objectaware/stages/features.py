"""Features of data sets, computed once for a checkpoint and kept in storage for every evaluation of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from objectaware.config import DataConfig, FeatureConfig
from objectaware.data.storage import Storage
from objectaware.distributed.cluster import num_gpus
from objectaware.distributed.task import run_task, run_tasks
from objectaware.errors import InputError
from objectaware.evaluate.coverage import (
    OTHER_CLASS,
    UNREADABLE,
    Coverage,
    coverage_columns,
    match_labels,
    shown_classes,
)
from objectaware.evaluate.feature_store import PART_SIZE, FeatureSet, finished_parts, write_part
from objectaware.evaluate.features import compute_features
from objectaware.methods.backbones import Backbone, channels_last
from objectaware.methods.checkpoint import load_encoder, local_checkpoint
from objectaware.stages.identity import checkpoint_hash, data_hash, recipe, stage_identity
from objectaware.stages.labelled import LabelledImages, open_labelled
from objectaware.stages.runner import Context

if TYPE_CHECKING:
    from objectaware.tracking import Tracker

Result = TypeVar("Result")

# A task loads the network and lists the data set once; fewer tasks than this for each process would tell progress
# rarely, and leave processes idle where the last one runs long.
_TASKS_A_WORKER = 4


@dataclass(frozen=True)
class LabelledFeatures:
    """Features with the classes of their images. Picklable.

    Attributes:
        features: In storage.
        labels: Class of each image of the data set, (N,); `features` knows which of them its rows belong to.
        class_names: Names of the classes.
    """

    features: FeatureSet
    labels: NDArray[np.int64]
    class_names: tuple[str, ...]

    def load(self) -> tuple[Tensor, Tensor]:
        """Reads all: features (M, C) float32 and labels (M,) int64, on the CPU."""
        values, indices = self.features.load()
        return values, torch.from_numpy(self.labels[indices])

    def counts(self) -> dict[str, int]:
        """Number of rows by class."""
        labels = self.row_labels()
        return {name: int((labels == number).sum()) for number, name in enumerate(self.class_names)}

    def shown_classes(self, field: str) -> tuple[str, ...]:
        """Names of the classes that the rows show; see `objectaware.evaluate.coverage.shown_classes`."""
        return shown_classes(field, self.row_labels(), self.class_names)

    def matched(self, known: Sequence[str]) -> LabelledFeatures:
        """Renumbers the labels by the names of the classes that training knows; -1 for all others."""
        return replace(self, labels=match_labels(self.labels, self.class_names, known), class_names=tuple(known))

    def coverage(self, name: str, known: Sequence[str]) -> Coverage:
        """Says which rows an accuracy can be over.

        Args:
            name: What the user calls the set.
            known: Names of the classes that training knows.

        Raises:
            InputError: Training knows none of the classes.
        """
        classes = [self.class_names[label] for label in self.row_labels().tolist()]
        left_out = {UNREADABLE: len(self.features.unreadable), OTHER_CLASS: int((self.labels < 0).sum())}
        return Coverage.of(name, classes, known, left_out=left_out)

    def row_labels(self) -> NDArray[np.int64]:
        """Labels of all rows, (M,)."""
        return self.labels[np.concatenate(self.features.indices)]


@dataclass(frozen=True)
class Part:
    """A part of a data set's features that is to be computed; what a task needs to know of it.

    Attributes:
        data: The data set.
        class_names: The classes that count.
        folder: Of the set of features.
        number: Of the part.
        begin: Place of its first image among those that count.
        num_images: How many images it has.
    """

    data: DataConfig
    class_names: tuple[str, ...] | None
    folder: Storage
    number: int
    begin: int
    num_images: int


def input_hashes(context: Context, config: FeatureConfig, sets: Mapping[str, DataConfig]) -> dict[str, str]:
    """Content hash of an evaluation's inputs: of each data set by its name, and of the checkpoint as `checkpoint`.

    Raises:
        InputError: One of them is missing or malformed.
    """
    assert "checkpoint" not in sets
    hashes = {name: data_hash(data, verify=context.verify) for name, data in sets.items()}
    return {"checkpoint": checkpoint_hash(config.checkpoint), **hashes}


def check_features(
    config: FeatureConfig, *, sets: Mapping[str, DataConfig], class_names: tuple[str, ...] | None = None
) -> None:
    """Opens what features are computed of, and the network that computes them.

    Args:
        config: Names the checkpoint.
        sets: Data sets by name.
        class_names: The classes that count; see `open_labelled`.

    Raises:
        InputError: As `check_sets`, or the checkpoint cannot be used.
    """
    check_sets(sets, class_names)
    check_checkpoint(config.checkpoint, config.image_size)


def check_sets(sets: Mapping[str, DataConfig], class_names: tuple[str, ...] | None = None) -> dict[str, LabelledImages]:
    """Open data sets for an evaluation, by name, and refuse those of which no accuracy would mean anything.

    Args:
        sets: Data sets by name. The others have to have classes in common with `train`, if that is among them.
        class_names: The classes that count; see `open_labelled`.

    Raises:
        InputError: A set has no labels, or not these classes; `train` shows one class alone; or another set has no
            class in common with it.
    """
    opened = {name: open_labelled(data, class_names) for name, data in sets.items()}
    if class_names is not None:
        _require_images(sets, opened)
    if "train" in opened:
        _require_common_classes(opened, opened["train"])
    return opened


def check_checkpoint(address: str, image_size: int) -> None:
    """Loads a checkpoint's network.

    Args:
        address: Of the checkpoint.
        image_size: Side in pixels of the images that it will see.

    Raises:
        InputError: There is none, it cannot be used, or it does not take such images.
    """
    with local_checkpoint(address) as folder:
        load_encoder(folder).backbone.check_size(image_size, image_size)


def feature_sets(
    context: Context,
    config: FeatureConfig,
    sets: Mapping[str, DataConfig],
    hashes: Mapping[str, str],
    *,
    class_names: tuple[str, ...] | None = None,
) -> dict[str, LabelledFeatures]:
    """Finds the features of several data sets in storage, and computes what is missing, all sets' parts at once.

    What is there was computed by this checkpoint (by its content) of these images (by the data set's hash), at this
    size and crop. It lies under `features/` of the storage and may be deleted at any time.

    Args:
        context: What the command's stages share; `fresh` computes anew.
        config: Checkpoint, size, crop, and how to compute.
        sets: Data sets by name.
        hashes: As `input_hashes` gives them.
        class_names: The classes that count; see `open_labelled`.

    Raises:
        InputError: As `check_sets`; or a data set has no readable image, or the checkpoint does not fit.
    """
    opened = check_sets(sets, class_names)
    folders = {name: _folder(context, config, sets[name], class_names, hashes[name], hashes) for name in sets}
    missing: dict[str, list[Part]] = {}
    for name, data in sets.items():
        folder = folders[name]
        if folder.uri not in missing:
            missing[folder.uri] = _missing_parts(context, folder, data, class_names, len(opened[name].indices))
    pending = list(chain.from_iterable(missing.values()))
    if pending:
        _compute(context, config, pending)
    return {
        name: LabelledFeatures(
            FeatureSet.open(folders[name], _num_parts(images)), images.labels, tuple(images.class_names)
        )
        for name, images in opened.items()
    }


def _require_images(sets: Mapping[str, DataConfig], opened: Mapping[str, LabelledImages]) -> None:
    """Refuses, before anything is computed, sets that do not show each of the classes that count."""
    for name, images in opened.items():
        for label, class_name in enumerate(images.class_names):
            if not (images.labels == label).any():
                remedy = "Give a data set that shows each of the classes."
                raise InputError("class_names", class_name, f"has no image in {sets[name].root}", remedy)


def _require_common_classes(opened: Mapping[str, LabelledImages], train: LabelledImages) -> None:
    """Refuses, before anything is computed, sets of which no accuracy would mean anything."""
    known = shown_classes("train", train.labels, train.class_names)
    for name, images in opened.items():
        if images is not train:
            shown = np.unique(images.labels[images.indices]).tolist()
            Coverage.of(name, [images.class_names[label] for label in shown], known)


def run_on_features(function: Callable[..., Result], config: FeatureConfig, *arguments: object) -> Result:
    """Runs a function of a configuration and of features as one task, on a GPU where the configuration says so."""
    use_gpu = bool(config.execution.use_gpu)
    num_cpus = 1 if use_gpu else config.execution.num_compute_threads
    return run_task(function, config, *arguments, use_gpu=use_gpu, num_cpus=num_cpus)


def log_accuracies(
    tracker: Tracker, table: str, accuracies: Mapping[str, float], coverage: Mapping[str, Mapping[str, Any]]
) -> None:
    """Logs the accuracy on each test set with the number of samples that it is over.

    Args:
        tracker: Of the stage.
        table: Name of the table.
        accuracies: By test set, in per cent, and what is computed from them.
        coverage: By test set, as `Coverage.values` gives it.
    """
    counts = {name: coverage_columns(one) for name, one in coverage.items()}
    rows = [{"test set": name, "accuracy": value, **counts.get(name, {})} for name, value in accuracies.items()]
    tracker.log_table(table, rows)
    tracker.log_metrics({f"accuracy.{name}": value for name, value in accuracies.items()})


def compute_device(config: FeatureConfig) -> torch.device:
    """Where a task computes, with the threads of PyTorch set to those that it may use."""
    if config.execution.use_gpu:
        return torch.device("cuda")
    torch.set_num_threads(config.execution.num_compute_threads)
    return torch.device("cpu")


def write_parts(config: FeatureConfig, parts: Sequence[Part]) -> int:
    """Computes parts and writes them, as a task anywhere on the cluster.

    Returns:
        How many images were looked at.
    """
    device = compute_device(config)
    with local_checkpoint(config.checkpoint) as folder:
        backbone = channels_last(load_encoder(folder).backbone, device)
    for _, of_set in groupby(parts, key=lambda part: part.folder.uri):
        members = list(of_set)
        images = open_labelled(members[0].data, members[0].class_names)
        for part in members:
            _write_part(config, backbone, images, part, device)
    return sum(part.num_images for part in parts)


def _write_part(
    config: FeatureConfig, backbone: Backbone, images: LabelledImages, part: Part, device: torch.device
) -> None:
    chosen = images.indices[part.begin : part.begin + part.num_images].tolist()
    features = compute_features(
        backbone,
        images.images,
        chosen,
        size=config.image_size,
        center_crop=config.center_crop,
        device=device,
        num_threads=config.execution.num_loader_threads,
        allow_empty=True,
    )
    write_part(part.folder, part.number, features)


def _missing_parts(
    context: Context, folder: Storage, data: DataConfig, class_names: tuple[str, ...] | None, num_images: int
) -> list[Part]:
    """The parts of a set of features that are not there, or all where the user wants them anew."""
    is_fresh = context.fresh and folder.uri not in context.computed
    if is_fresh:
        context.computed.add(folder.uri)
    there = set() if is_fresh else finished_parts(folder)
    return [
        Part(data, class_names, folder, number, begin, min(PART_SIZE, num_images - begin))
        for number, begin in enumerate(range(0, num_images, PART_SIZE))
        if number not in there
    ]


def _compute(context: Context, config: FeatureConfig, pending: Sequence[Part]) -> None:
    execution = config.execution
    num_workers = execution.num_workers or (max(num_gpus(), 1) if execution.use_gpu else 1)
    num_tasks = min(len(pending), num_workers * _TASKS_A_WORKER)
    shares = [list(share) for share in np.array_split(np.arange(len(pending)), num_tasks)]
    num_images, num_done = sum(part.num_images for part in pending), 0

    def show(num_computed: int) -> None:
        nonlocal num_done
        num_done += num_computed
        context.progress.update(f"features of {num_done}/{num_images} images")

    run_tasks(
        write_parts,
        [(config, [pending[index] for index in share]) for share in shares],
        use_gpu=bool(execution.use_gpu),
        num_cpus=execution.num_loader_threads if execution.use_gpu else execution.num_compute_threads,
        at_once=num_workers,
        on_result=show,
    )


def _num_parts(images: LabelledImages) -> int:
    return -(-len(images.indices) // PART_SIZE)


def _folder(
    context: Context,
    config: FeatureConfig,
    data: DataConfig,
    class_names: Sequence[str] | None,
    data_hash: str,
    hashes: Mapping[str, str],
) -> Storage:
    of_data: dict[str, Any] = recipe(data)
    how = {
        "data": of_data,
        "class_names": class_names,
        "image_size": config.image_size,
        "center_crop": config.center_crop,
        "part_size": PART_SIZE,
    }
    identity = stage_identity("features", how, {"checkpoint": hashes["checkpoint"], "data": data_hash})
    return context.storage.child("features").child(identity)
