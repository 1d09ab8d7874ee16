"""Code that the commands share: settings, validation, and printing of results."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro
from tyro.conf import Positional

from objectaware.commands.fields import described_options, described_stages
from objectaware.commands.registry import OVERRIDABLE, parsed
from objectaware.data.user_files import require_writable_file, require_writable_folder
from objectaware.errors import InputError
from objectaware.process import submission_id
from objectaware.recipes import override, read_recipe

if TYPE_CHECKING:
    from pydantic import BaseModel

    from objectaware.config import Model
    from objectaware.data.storage import Storage
    from objectaware.distributed.room import Need
    from objectaware.stages.runner import Context, StageResult


@dataclass(frozen=True)
class Common:
    """Settings of every stage's command.

    Attributes:
        storage: Folder for checkpoints, masks and reports. By default OBJECTAWARE_STORAGE, or ./runs.
        experiment: Name of the MLflow experiment.
        fresh: Start over instead of resuming or reusing.
        verify: Identify inputs by their content instead of size and time.
        json: File to which the printed results are written as data.
    """

    storage: str | None = None
    experiment: str = "objectaware"
    fresh: bool = False
    verify: bool = False
    json: Path | None = None


STORAGE_VARIABLE = "OBJECTAWARE_STORAGE"
CommonArguments = tyro.conf.OmitArgPrefixes[Common]
DEFAULTS = Common()


def recipe_fields(model: str, recipe: Path, overrides: list[str]) -> dict[str, object]:
    """Return the fields of a recipe with the user's overrides.

    Args:
        model: Name of the model of configuration that the recipe follows.
        recipe: YAML file, or the name of a recipe that comes with the package.
        overrides: Pairs `--field value`.
    """
    options = described_options(model)
    return override(read_recipe(recipe, options), overrides, options)


def with_each_checkpoint(model: type[BaseModel], fields: Mapping[str, object], checkpoints: Sequence[str]) -> list[Any]:
    """Return a recipe's configuration for each of several checkpoints, or unchanged if none are given."""
    if not checkpoints:
        return [validated(model, fields)]
    return [validated(model, {**fields, "checkpoint": checkpoint}) for checkpoint in checkpoints]


def validated(model: type[BaseModel], values: Mapping[str, object]) -> Any:  # noqa: ANN401 - the model given
    """Validate a configuration. A refusal names the field, the value and the problem."""
    from pydantic import ValidationError

    from objectaware.model import first_fault

    try:
        return model.model_validate(values)
    except ValidationError as error:
        place, given, problem = first_fault(error)
        remedy = f"--help of the command lists the fields of {model.__name__}."
        raise InputError(".".join(place) or "recipe", given, problem, remedy) from error


@contextmanager
def open_records(common: Common) -> Iterator[Context]:
    """Open storage and MLflow store for a command that computes nothing on Ray.

    At the end, records that could not be sent are left in the storage. If a group shares the storage, everything that
    this process writes from here on is writable by the group.

    Args:
        common: Settings of every command.
    """
    from objectaware.stages.progress import Progress
    from objectaware.stages.runner import Context, Mode, Services
    from objectaware.tracking import TrackingStore

    require_json(common)
    storage = output_folder(storage_address(common.storage), field="storage")
    _share_with_group(storage)
    tracking = TrackingStore.open(storage, common.experiment)
    tracking.send_leftovers()
    try:
        yield Context(Services(storage, tracking, Progress()), Mode(fresh=common.fresh, verify=common.verify))
    finally:
        tracking.hand_over()


def _share_with_group(storage: Storage) -> None:
    """Let the group write all new files of this process and its children, if a group shares the storage.

    A folder is shared if it passes its group on to new files and lets the group write (`chmod 2775`). With the usual
    umask of 022, no other user could continue the work of the first.
    """
    folder = storage.local_path()
    if folder is None:
        return
    existing = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    mode = existing.stat().st_mode
    if mode & stat.S_ISGID and mode & stat.S_IWGRP:
        os.umask(os.umask(0) & ~stat.S_IRWXG)


@contextmanager
def open_context(common: Common, *needs: Sequence[Need]) -> Iterator[Context]:
    """Open storage and MLflow store for the stages of one command, and Ray once a stage has something to compute.

    Args:
        common: Settings of every command.
        needs: Processes of each stage that runs more than one. A local Ray is large enough for each stage by itself.
    """
    from objectaware.distributed.cluster import ray_cluster, require_answer, termination_as_interrupt
    from objectaware.distributed.room import total_cpus
    from objectaware.stages.machine import require_server

    address = os.environ.get("RAY_ADDRESS")
    if address and address != "local":
        require_answer(address)
    min_cpus = max(map(total_cpus, needs), default=0)
    with ExitStack() as stack:
        stack.enter_context(termination_as_interrupt())
        # Before Ray starts, since only one process may initialise a fresh SQLite store.
        context = stack.enter_context(open_records(common))

        @cache  # once for all stages
        def start_ray() -> None:
            stack.enter_context(ray_cluster(min_cpus=min_cpus))
            require_server(context.services.tracking)

        yield replace(context, services=replace(context.services, start_ray=start_ray))


def output_folder(address: str, *, field: str = "out") -> Storage:
    """Open the folder that a command writes to.

    Args:
        address: Path or URI of the folder. It need not exist.
        field: Name by which the user gave it, for messages.

    Raises:
        InputError: It is a file, this user may not write there, or no file system answers to the URI.
    """
    from objectaware.data.storage import Storage

    storage = Storage.from_uri(address)
    local = storage.local_path()
    if local is not None:
        require_writable_folder(local, field=field)
    return storage


def output_file(address: str | Path, *, field: str = "out") -> None:
    """Refuse a file that a command could not write, as `output_folder` does for a folder."""
    from objectaware.data.storage import Storage

    local = Storage.from_uri(address).local_path()
    if local is not None:
        require_writable_file(local, field=field)


def stage_command(kind: str, program: str, arguments: list[str]) -> Callable[[], None]:
    """Return the call that runs a kind of stage by a recipe, as a command.

    Args:
        kind: Kind of the stage. Its module is imported only when there is something to run, so that --help is fast.
        program: Name of the command.
        arguments: Arguments that follow the name.
    """
    described = described_stages()[kind]
    model = described["model"]

    def read(
        overrides: list[str], recipe: Positional[Path], common: CommonArguments = DEFAULTS
    ) -> tuple[Common, dict[str, object]]:
        """Return the common settings, and the fields that the recipe and its overrides give.

        Args:
            overrides: Overrides of the recipe's fields.
            recipe: YAML file of the fields below, or the name of a recipe that comes with the package.
            common: Settings of every command.
        """
        return common, recipe_fields(model, recipe, overrides)

    description = f"{described['summary']} By a recipe of {model}, of which every field can be overridden."
    common, fields = parsed(read, [model], OVERRIDABLE, program, arguments, description=description)()
    return partial(run_stage, kind, common, fields)


def run_stage(kind: str, common: Common, fields: Mapping[str, object]) -> None:
    """Run a kind of stage and print its results.

    Args:
        kind: Kind of the stage.
        common: Settings of every command.
        fields: Fields of its configuration.

    Raises:
        InputError: A field is not valid, or an input is missing.
    """
    from objectaware.data.dataset import Dataset
    from objectaware.stages.identity import data_sets
    from objectaware.stages.registry import stage_named

    stage = stage_named(kind)
    config = validated(stage.config, fields)
    parts = stage.parts(config)
    for part in parts:
        require_local_precision(part)
    for data in data_sets(parts):
        Dataset.of(data).require_root()
    with open_context(common, *possible_needs(parts)) as context:
        finish(common, context, stage(context, config), hidden=stage.long_values)


def possible_needs(configs: Iterable[Model]) -> list[Sequence[Need]]:
    """Return the processes of each stage, both with and without GPUs if its configuration leaves that open."""
    from objectaware.stages.registry import stage_needs

    return stage_needs(configs, has_gpus=(False, True))


def require_local_precision(config: Model) -> None:
    """Refuse a training's precision before Ray starts, if this machine trains and its processor lacks the precision.

    On a cluster, the workers check their own processors.

    Raises:
        InputError: This machine trains, and would have to emulate bfloat16.
    """
    precision = getattr(config, "precision", "fp32")
    if precision == "fp32" or os.environ.get("RAY_ADDRESS"):
        return

    import torch

    from objectaware.config import DetectionConfig, PretrainConfig
    from objectaware.training.loop import require_precision

    assert isinstance(config, PretrainConfig | DetectionConfig)

    on_gpu = config.execution.use_gpu is not False and torch.cuda.is_available()
    if on_gpu or not config.execution.use_gpu:  # a missing GPU is refused later, with the cluster's resources
        require_precision(precision, torch.device("cuda" if on_gpu else "cpu"))


def storage_address(storage: str | None) -> str:
    """Return the address of the runs: the user's, else OBJECTAWARE_STORAGE, else ./runs.

    Raises:
        InputError: The address would be relative to the working directory of a Ray job.
    """
    address = storage or os.environ.get(STORAGE_VARIABLE) or "runs"
    if submission_id() is not None and "://" not in address and not Path(address).expanduser().is_absolute():
        remedy = f"Set {STORAGE_VARIABLE} to a folder that the cluster's nodes share, such as s3://bucket/runs."
        raise InputError("storage", address, "lies in the job's working directory, which Ray deletes", remedy)
    return address


def finish(common: Common, context: Context, result: StageResult, *, hidden: Sequence[str] = ()) -> None:
    """Print a stage's results and their place, and write them as data if the user wants that.

    Args:
        common: Settings of every command.
        context: Context of the command's stages.
        result: Result of the stage.
        hidden: Names of long values, which are written but not printed.
    """
    described = {"identity": result.identity, "folder": result.folder.uri, "run_id": result.run_id}
    lines = [f"{key}: {json.dumps(value)}" for key, value in result.values.items() if key not in hidden]
    finish_study(common, context, {**result.values, **described}, lines, folder=result.folder, run_id=result.run_id)


def finish_study(
    common: Common,
    context: Context,
    values: object,
    lines: Sequence[str],
    *,
    folder: Storage | None = None,
    run_id: str | None = None,
) -> None:
    """Print a study's results and their place, and write them as data if the user wants that.

    Args:
        common: Settings of every command.
        context: Context of the command's stages.
        values: The results.
        lines: Lines of text that show them.
        folder: Folder that holds them.
        run_id: MLflow run that shows them.
    """
    write_json(common, values)
    print("\n".join(lines))
    if folder is not None:
        print(f"folder: {folder.uri}")
    if run_id is not None:
        print(f"MLflow run: {context.services.tracking.run_url(run_id)}")
    print(f"MLflow UI: {context.services.tracking.ui_command()}")


def require_json(common: Common) -> Common:
    """Refuse a file that `write_json` could not write, before hours of work on its content."""
    if common.json is not None:
        require_writable_file(common.json, field="json")
    return common


def write_json(common: Common, values: object) -> None:
    """Write values to the file that the user named, if any."""
    if common.json is not None:
        common.json.parent.mkdir(parents=True, exist_ok=True)
        common.json.write_text(json.dumps(values, indent=2) + "\n")


def recipe_values(recipe: Path | None) -> dict[str, object]:
    """Return the fields of a recipe, or none if there is no recipe."""
    return {} if recipe is None else read_recipe(recipe)
