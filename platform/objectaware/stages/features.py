"""Features of data sets, computed once per checkpoint and kept in storage for all of its evaluations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, groupby
from typing import Any, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import model_validator
from torch import Tensor

from objectaware.config import DataConfig, Model
from objectaware.data.dataset import Dataset
from objectaware.data.images import Images
from objectaware.data.sets.coco import CocoDataset
from objectaware.data.storage import Storage
from objectaware.distributed.room import num_gpus
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
from objectaware.evaluate.features import PART_SIZE, FeatureSet, compute_features, finished_parts, write_part
from objectaware.methods.backbones import channels_last
from objectaware.methods.checkpoint import load_encoder, local_checkpoint
from objectaware.model import CheckpointAddress, Positive, Side, StageExecution
from objectaware.process import user_name
from objectaware.stages.identity import RESULT_FILE, STAGE_FILE, checkpoint_hash, recipe, stage_identity
from objectaware.stages.registry import stage
from objectaware.stages.run_index import drop_entry, write_entry
from objectaware.stages.runner import Computation, Context, StageRun

Result = TypeVar("Result")
Config = TypeVar("Config", bound="FeatureConfig")

# A task loads the network and lists the data set once. With fewer tasks per process, progress would rarely be
# reported, and processes would idle while the last task runs.
_TASKS_A_WORKER = 4


class EvaluateExecution(StageExecution):
    """How an evaluation of features runs.

    Attributes:
        num_workers: Number of processes that compute features. By default one per GPU that the Ray in use has or can
            have, or one if it can have none.
        num_loader_threads: Number of threads per process that decode images.
        num_compute_threads: Number of threads per process that compute on a CPU.
        use_gpu: Whether each process takes one GPU. By default true if the Ray in use has GPUs or can have some.
        max_memory_mib: Memory in MiB that the solver of linear evaluation may take, on the device where it computes.
            Larger features are streamed from storage, and each step of the solver passes over them once.
    """

    num_workers: Positive | None = None
    num_loader_threads: Positive = 2
    num_compute_threads: Positive = 1
    use_gpu: bool | None = None
    max_memory_mib: Positive = 8192


class FeatureConfig(Model):
    """The part that all evaluations of features have in common: a network, and how it sees the pictures.

    Attributes:
        checkpoint: Folder that pretraining wrote, or a file of another system (docs/checkpoints.md).
        image_size: Side of the network's input in pixels.
        center_crop: Whether to use the paper's protocol (short side resized to 256 / 224 of the size, then a centre
            crop) or to squash the picture.
        execution: How it runs.
    """

    checkpoint: CheckpointAddress
    image_size: Side = 224
    center_crop: bool = True
    execution: EvaluateExecution = EvaluateExecution()

    def data_sets(self) -> dict[str, DataConfig]:
        """Return the data sets whose features are read, by name."""
        raise NotImplementedError


class TestsConfig(FeatureConfig):
    """Images with known classes and images whose classes are found out, seen by a network.

    Attributes:
        train: Labelled images that the classes are learnt from.
        tests: Labelled images to be classified, by name.
    """

    train: DataConfig
    tests: dict[str, DataConfig]

    def data_sets(self) -> dict[str, DataConfig]:
        """Return `train`, and `test NAME` for each test set."""
        return {"train": self.train, **{f"test {name}": data for name, data in self.tests.items()}}


class FeaturesConfig(FeatureConfig):
    """Features of the images of one data set.

    Attributes:
        data: Labelled images.
        class_names: Names of the classes that count. By default all classes count.
    """

    data: DataConfig
    class_names: tuple[str, ...] | None = None

    def data_sets(self) -> dict[str, DataConfig]:
        """Return `data`."""
        return {"data": self.data}


class ContextualConfig(FeaturesConfig):
    """Two classes of a data set, seen by a network.

    Attributes:
        data: Images of both classes. With the layout `coco-crop`, each object is one image. With `coco`, the images are
            whole pictures that show exactly one of the two classes. With any other labelled layout, the label counts.
        class_names: Names of the two classes. The paper's are giraffe and zebra.
    """

    class_names: tuple[str, str] = ("giraffe", "zebra")

    @model_validator(mode="after")
    def _two_classes(self) -> Self:
        if self.class_names[0] == self.class_names[1]:
            raise ValueError(f"class_names has {self.class_names[0]} twice; name two different classes")
        return self


def data_sets_of(config: FeatureConfig) -> dict[str, Dataset]:
    """Open the data sets of an evaluation, by the names of `FeatureConfig.data_sets`."""
    return {name: Dataset.of(data) for name, data in config.data_sets().items()}


def _class_names(config: FeatureConfig) -> tuple[str, ...] | None:
    """Return the names of the classes that count, or None if all count."""
    return config.class_names if isinstance(config, FeaturesConfig) else None


@dataclass(frozen=True)
class LabelledImages:
    """Images with their classes.

    Attributes:
        images: The data set.
        labels: Class of each image (N,), by its index in the data set; -1 for images that are not used.
        class_names: Names of the classes.
    """

    images: Images
    labels: NDArray[np.int64]
    class_names: tuple[str, ...]

    @property
    def indices(self) -> NDArray[np.int64]:
        """Return the indices of the images that are used, in order."""
        return np.flatnonzero(self.labels >= 0)


def open_labelled(opened: Dataset, class_names: Sequence[str] | None = None) -> LabelledImages:
    """Open a data set for an evaluation.

    Args:
        opened: The data set.
        class_names: Names of the classes that count, numbered in this order. By default all classes count, with the
            data set's numbers. A whole COCO picture counts if it shows exactly one of the classes.

    Raises:
        InputError: The data set has no labels, or not these classes.
    """
    images, data = opened.images, opened.config
    if class_names is not None and opened.has_instances:
        coco = opened.instances("category_index")
        shown = _shown_categories(coco, _places(data, coco.category_names, class_names))
        alone = np.where(shown.sum(axis=1) == 1, shown.argmax(axis=1), -1)
        return LabelledImages(images, alone.astype(np.int64), tuple(class_names))
    if images.labels is None:
        remedy = "Use class-folders, backgrounds-challenge or coco-crop."
        raise InputError("layout", data.layout, "has no labels", remedy)
    if class_names is None:
        return LabelledImages(images, images.labels, images.class_names)
    labels = np.full(len(images.labels), -1, dtype=np.int64)
    for number, place in enumerate(_places(data, images.class_names, class_names)):
        labels[images.labels == place] = number
    return LabelledImages(images, labels, tuple(class_names))


def _places(data: DataConfig, known: Sequence[str], wanted: Sequence[str]) -> list[int]:
    """Return the numbers of the wanted classes in a data set."""
    for name in wanted:
        if name not in known:
            shown = ", ".join(known[:20]) + (", …" if len(known) > 20 else "")
            raise InputError("class_names", name, f"is not a class of {data.root}", f"It has {shown}.")
    return [known.index(name) for name in wanted]


def _shown_categories(coco: CocoDataset, categories: Sequence[int]) -> NDArray[np.bool_]:
    """Return whether each picture shows each of the categories, (N, number of categories)."""
    shown = [{annotation.category_index for annotation in coco.annotations(index)} for index in range(len(coco))]
    return np.array([[category in of_picture for category in categories] for of_picture in shown], dtype=np.bool_)


@dataclass(frozen=True)
class LabelledFeatures:
    """Features with the classes of their images. Picklable.

    Attributes:
        features: The features in storage.
        labels: Class of each image of the data set, (N,). `features` knows to which images its rows belong.
        class_names: Names of the classes.
    """

    features: FeatureSet
    labels: NDArray[np.int64]
    class_names: tuple[str, ...]

    def load(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Read all rows: features (M, C) float32 on a device, and labels (M,) int64 on the CPU."""
        values, indices = self.features.load()
        return values.to(device), torch.from_numpy(self.labels[indices])

    def load_each_class(self, device: torch.device, root: str) -> tuple[Tensor, Tensor]:
        """Read all rows as `load` does, and refuse a data set at `root` that has no row of one of the classes."""
        for name, number in self.counts().items():
            if not number:
                remedy = "Give a data set that shows each of the classes."
                raise InputError("class_names", name, f"has no readable image in {root}", remedy)
        return self.load(device)

    def counts(self) -> dict[str, int]:
        """Return the number of rows by class."""
        labels = self.row_labels()
        return {name: int((labels == number).sum()) for number, name in enumerate(self.class_names)}

    def matched(self, known: Sequence[str]) -> LabelledFeatures:
        """Return a copy whose labels are numbered by the classes that training knows; -1 stands for all others."""
        return replace(self, labels=match_labels(self.labels, self.class_names, known), class_names=tuple(known))

    def coverage(self, name: str, known: Sequence[str]) -> Coverage:
        """Return which rows an accuracy can cover.

        Args:
            name: The user's name of the set.
            known: Names of the classes that training knows.

        Raises:
            InputError: Training knows none of the classes.
        """
        classes = [self.class_names[label] for label in self.row_labels().tolist()]
        left_out = {UNREADABLE: len(self.features.unreadable), OTHER_CLASS: int((self.labels < 0).sum())}
        return Coverage.of(name, classes, known, left_out=left_out)

    def row_labels(self) -> NDArray[np.int64]:
        """Return the labels of all rows, (M,)."""
        return self.labels[np.concatenate(self.features.indices)]

    def values(self) -> dict[str, Any]:
        """Return the values of the stage `features`."""
        return {
            "features": self.features.folder.uri,
            "num_images": self.features.num_rows,
            "unreadable": len(self.features.unreadable),
        }


@dataclass(frozen=True)
class Part:
    """A part of a data set's features to be computed: `PART_SIZE` of the images that count, or the rest of them.

    Attributes:
        config: Configuration of the features.
        folder: Folder of the set of features.
        number: Number of the part, from 0.
        num_images: Number of its images.
    """

    config: FeaturesConfig
    folder: Storage
    number: int
    num_images: int


def feature_computation(
    context: Context,
    config: Config,
    measure: Callable[[StageRun, Config, dict[str, LabelledFeatures]], Mapping[str, Any]],
    *,
    title: str,
) -> Computation[Config]:
    """Return the computation of a stage that measures features.

    Args:
        context: The context of the command's stages.
        config: The stage's configuration.
        measure: Function that takes the run, the configuration with `execution.use_gpu` filled in, and the features by
            the names of `data_sets_of`. It returns the stage's values except `unreadable`, the number of unreadable
            images in all sets.
        title: Title of the stage.

    Raises:
        InputError: An input is missing or malformed.
    """
    sets = data_sets_of(config)
    hashes = {name: data.content_hash(context.mode.verify) for name, data in sets.items()}
    inputs = {"checkpoint": checkpoint_hash(config.checkpoint), **hashes}

    def compute(run: StageRun, config: Config) -> Mapping[str, Any]:
        found = feature_sets(context, run, config, sets, inputs)
        unreadable = sum(len(one.features.unreadable) for one in found.values())
        return {**measure(run, config, found), "unreadable": unreadable}

    return Computation(
        title=title,
        inputs=inputs,
        compute=compute,
        tags={"dataset": next(iter(sets.values())).config.root},
        check=partial(check_sources, sets=sets),
        networks=[config.checkpoint],
    )


def check_sources(
    config: FeatureConfig, *, sets: Mapping[str, Dataset] | None = None, checkpoints: Sequence[str] = ()
) -> None:
    """Open the data sets that features are computed from, and the networks that compute them.

    Args:
        config: Configuration of an evaluation.
        sets: Its data sets, if they are open already.
        checkpoints: Addresses of the networks' checkpoints. By default that of the configuration.

    Raises:
        InputError: As for `check_sets`; or a checkpoint is missing, cannot be used, or does not take images of this
            size.
    """
    check_sets(sets or data_sets_of(config), _class_names(config))
    for address in checkpoints or [config.checkpoint]:
        with local_checkpoint(address) as folder:
            load_encoder(folder).backbone.check_size(config.image_size, config.image_size)


def check_sets(sets: Mapping[str, Dataset], class_names: tuple[str, ...] | None = None) -> dict[str, LabelledImages]:
    """Open data sets for an evaluation, by name, and refuse those whose accuracy would be meaningless.

    Args:
        sets: Data sets by name. If `train` is among them, each other set must have classes in common with it.
        class_names: Names of the classes that count; see `open_labelled`.

    Raises:
        InputError: A set has no labels, or not these classes; `train` shows only one class; or another set has no
            class in common with it.
    """
    opened = {name: open_labelled(data, class_names) for name, data in sets.items()}
    for name, images in opened.items():
        for label, class_name in enumerate(class_names or ()):
            if not (images.labels == label).any():
                remedy = "Give a data set that shows each of the classes."
                raise InputError("class_names", class_name, f"has no image in {sets[name].config.root}", remedy)
    if train := opened.get("train"):
        known = shown_classes("train", train.labels, train.class_names)
        for name, images in opened.items():
            if images is not train:
                shown = np.unique(images.labels[images.indices]).tolist()
                Coverage.of(name, [images.class_names[label] for label in shown], known)
    return opened


def feature_sets(
    context: Context, run: StageRun, config: FeatureConfig, sets: Mapping[str, Dataset], hashes: Mapping[str, str]
) -> dict[str, LabelledFeatures]:
    """Find the features of several data sets in storage, and compute the missing parts of all sets together.

    Stored features are used if the checkpoint's content, the data set's hash, the size and the crop are the same. They
    lie under `features/` of the storage and may be deleted at any time.

    Args:
        context: The context of the command's stages. With `fresh`, all features are computed again.
        run: The stage that needs them. Its lease guards the folders of the features.
        config: Checkpoint, size, crop, and how to compute.
        sets: Data sets by name.
        hashes: Content hash of the checkpoint and of each data set, by name.

    Raises:
        InputError: As for `check_sets`; or a data set has no readable image, or the checkpoint does not fit.
    """
    class_names = _class_names(config)
    opened = check_sets(sets, class_names)
    assert features.version is not None
    shared = {name: getattr(config, name) for name in FeatureConfig.model_fields}
    folders: dict[str, Storage] = {}
    missing: dict[str, list[Part]] = {}
    for name, data in sets.items():
        wanted = FeaturesConfig(**shared, data=data.config, class_names=class_names)
        inputs = {"checkpoint": hashes["checkpoint"], "data": hashes[name]}
        identity = stage_identity(features.kind, features.version, recipe(wanted), inputs)
        folder = context.services.storage.child(features.kind).child(identity)
        folders[name] = folder.guarded(run.folder.require_writable)
        if identity not in missing:
            described = {"stage": features.kind, "identity": identity, "inputs": inputs}
            missing[identity] = _missing_parts(context, wanted, described, folders[name], len(opened[name].indices))
    pending = list(chain.from_iterable(missing.values()))
    if pending:
        _compute(context, config, pending)
    found: dict[str, LabelledFeatures] = {}
    for name, images in opened.items():
        num_parts = -(-len(images.indices) // PART_SIZE)
        found[name] = LabelledFeatures(FeatureSet.open(folders[name], num_parts), images.labels, images.class_names)
        is_new = not folders[name].exists(RESULT_FILE)
        if is_new:
            result = {"values": found[name].values(), "run_id": None, "parent": None}
            folders[name].write_json(RESULT_FILE, result)
        if is_new or any(part.folder == folders[name] for part in pending):
            write_entry(features.kind, folders[name])
    return found


def run_on_features(function: Callable[..., Result], config: FeatureConfig, *arguments: object) -> Result:
    """Run a function of a configuration and of features as one task, on a GPU if the configuration says so."""
    use_gpu = bool(config.execution.use_gpu)
    num_cpus = 1 if use_gpu else config.execution.num_compute_threads
    wait = config.execution.max_wait_minutes
    return run_task(function, config, *arguments, use_gpu=use_gpu, num_cpus=num_cpus, max_wait_minutes=wait)


def known_classes(
    config: TestsConfig, found: Mapping[str, LabelledFeatures]
) -> tuple[tuple[str, ...], dict[str, dict[str, Any]]]:
    """Return the classes that a training set shows, and what they cover of each test set.

    A small data set may lack some classes of a large one's list, and a classifier knows only those it was shown.

    Args:
        config: Configuration that names the test sets.
        found: Features by the names of `data_sets_of`.

    Returns:
        The names of the classes, and `Coverage.values` by test set.

    Raises:
        InputError: The training set shows only one class, or a test set has none of its classes.
    """
    train = found["train"]
    known = shown_classes("train", train.row_labels(), train.class_names)
    sets = {name: f"test {name}" for name in config.tests}
    return known, {name: found[key].coverage(key, known).values() for name, key in sets.items()}


def log_accuracies(
    run: StageRun,
    config: TestsConfig,
    table: str,
    accuracies: Mapping[str, float],
    coverage: Mapping[str, Mapping[str, Any]],
) -> None:
    """Log the accuracy on each test set with the number of samples that it covers.

    Args:
        run: The stage.
        config: Its configuration.
        table: Name of the table.
        accuracies: Accuracies in per cent by test set, and the values derived from them.
        coverage: Coverage by test set, from `Coverage.values`.
    """
    counts = {name: coverage_columns(one) for name, one in coverage.items()}
    rows = [{"test set": name, "accuracy": value, **counts.get(name, {})} for name, value in accuracies.items()]
    run.tracker.log_table(table, rows)
    measured = {f"accuracy.{name}": value for name, value in accuracies.items()}
    run.tracker.log_metrics(measured, model=config.checkpoint)


def compute_device(config: FeatureConfig) -> torch.device:
    """Return the device on which a task computes, and limit PyTorch to the threads that the task may use."""
    if config.execution.use_gpu:
        return torch.device("cuda")
    torch.set_num_threads(config.execution.num_compute_threads)
    return torch.device("cpu")


def write_parts(config: FeatureConfig, parts: Sequence[Part]) -> int:
    """Compute parts and write them, as a task anywhere on the cluster.

    Returns:
        Number of images that were processed.

    Raises:
        InputError: This machine does not share the storage.
        LeaseLostError: Another command has taken the stage over.
    """
    parts[0].folder.require_writable()  # before hours of work that nobody could use
    device = compute_device(config)
    with local_checkpoint(config.checkpoint) as folder:
        backbone = channels_last(load_encoder(folder).backbone, device)
    for _, of_set in groupby(parts, key=lambda part: part.folder.uri):
        members = list(of_set)
        images = open_labelled(Dataset.of(members[0].config.data), members[0].config.class_names)
        for part in members:
            begin = part.number * PART_SIZE
            computed = compute_features(
                backbone,
                images.images,
                images.indices[begin : begin + PART_SIZE].tolist(),
                size=config.image_size,
                center_crop=config.center_crop,
                device=device,
                num_threads=config.execution.num_loader_threads,
                allow_empty=True,
            )
            write_part(part.folder, part.number, computed)
    return sum(part.num_images for part in parts)


def _missing_parts(
    context: Context, config: FeaturesConfig, described: Mapping[str, Any], folder: Storage, num_images: int
) -> list[Part]:
    """Return the missing parts of a set of features, or all parts if the user wants them computed again.

    If something is missing, take the set out of the index of runs and describe it as begun now.
    """
    is_fresh = context.mode.fresh and described["identity"] not in context.computed
    there = set() if is_fresh else finished_parts(folder)
    missing = [
        Part(config, folder, number, min(PART_SIZE, num_images - begin))
        for number, begin in enumerate(range(0, num_images, PART_SIZE))
        if number not in there
    ]
    if missing or not (folder.exists(STAGE_FILE) and folder.exists(RESULT_FILE)):
        drop_entry(folder)
        if is_fresh:
            context.computed.add(described["identity"])
            folder.delete(RESULT_FILE)
        # Its time keeps `runs prune` away, which finds no lease in this folder.
        folder.write_json(STAGE_FILE, {**described, "user": user_name(), "config": config.model_dump(mode="json")})
    return missing


def _compute(context: Context, config: FeatureConfig, pending: Sequence[Part]) -> None:
    execution = config.execution
    num_workers = execution.num_workers or (max(num_gpus(), 1) if execution.use_gpu else 1)
    num_tasks = min(len(pending), num_workers * _TASKS_A_WORKER)
    shares = [list(share) for share in np.array_split(np.arange(len(pending)), num_tasks)]
    num_images, num_done = sum(part.num_images for part in pending), 0

    def show(num_computed: int) -> None:
        nonlocal num_done
        num_done += num_computed
        context.services.progress.update(f"features of {num_done}/{num_images} images")

    run_tasks(
        write_parts,
        [(config, [pending[index] for index in share]) for share in shares],
        use_gpu=bool(execution.use_gpu),
        num_cpus=execution.num_loader_threads if execution.use_gpu else execution.num_compute_threads,
        at_once=num_workers,
        on_result=show,
        max_wait_minutes=execution.max_wait_minutes,
    )


@stage("features", version=3, outputs=("part-*.npy", "part-*.json"), measures=False)
def features(context: Context, config: FeaturesConfig) -> Computation[FeaturesConfig]:
    """Compute the features of a data set, which every evaluation of the same checkpoint then reads.

    Returns:
        Values `features` (address of the folder), `num_images` (number of images with features) and `unreadable`
        (number of images without).
    """

    def measure(run: StageRun, config: FeaturesConfig, found: Mapping[str, LabelledFeatures]) -> Mapping[str, Any]:
        return found["data"].values()

    return feature_computation(context, config, measure, title=f"features of {config.data.root}")
