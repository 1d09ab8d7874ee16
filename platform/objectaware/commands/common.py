"""What the commands have in common: settings, validation, and what is printed at the end."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from objectaware.commands.fields import described_options, listing_fields
from objectaware.data.user_files import require_writable_file, require_writable_folder
from objectaware.errors import InputError
from objectaware.job import submission_id
from objectaware.recipes import override, read_recipe, split_overrides

if TYPE_CHECKING:
    from pydantic import BaseModel

    from objectaware.config import Model
    from objectaware.data.storage import Storage
    from objectaware.distributed.cluster import Need
    from objectaware.stages.runner import Context, StageResult


@dataclass(frozen=True)
class Common:
    """What every stage's command takes.

    Attributes:
        storage: Folder for checkpoints, masks and reports; OBJECTAWARE_STORAGE, or ./runs.
        experiment: MLflow experiment.
        fresh: Start over instead of resuming or reusing.
        verify: Tell inputs by their content instead of size and time.
        json: File that what is printed is written to as data.
    """

    storage: str | None = None
    experiment: str = "objectaware"
    fresh: bool = False
    verify: bool = False
    json: Path | None = None


STORAGE_VARIABLE = "OBJECTAWARE_STORAGE"
OPTIONS = ("--storage", "--experiment", "--json")
FLAGS = ("--fresh", "--no-fresh", "--verify", "--no-verify", "--help", "-h")
CommonArguments = tyro.conf.OmitArgPrefixes[Common]
DEFAULTS = Common()


def recipe_command(
    program: str,
    arguments: list[str],
    run: Callable[[Common, Mapping[str, object]], None],
    *,
    description: str,
    models: Sequence[str],
) -> None:
    """Parses and runs a command on a recipe, of which every field can be overridden.

    Args:
        program: The command's name.
        arguments: What follows it.
        run: Called with the common settings and the recipe's fields.
        description: Of the command, for --help.
        models: Names of the models of configuration whose fields --help lists: the recipe's comes first.
    """

    def command(recipe: Annotated[Path, tyro.conf.Positional], common: CommonArguments = DEFAULTS) -> None:
        """Runs the recipe.

        Args:
            recipe: YAML file of the fields below, or the name of one that comes with the package.
            common: Settings of every command.
        """
        options = described_options(models[0])
        run(common, override(read_recipe(recipe, options), overrides, options))

    known, overrides = split_overrides(arguments, flags=FLAGS, options=OPTIONS)
    with listing_fields(known, "Fields of the recipe, each overridden by --FIELD VALUE:", *models):
        tyro.cli(command, prog=program, description=description, args=known)


def take_list(arguments: list[str], option: str) -> tuple[list[str], list[str]]:
    """Takes an option with the words that follow it up to the next one out of a command's arguments.

    Args:
        arguments: All of them.
        option: Such as `--checkpoints`.

    Returns:
        The option's words, none where it is not given, and the other arguments.

    Raises:
        InputError: No word follows the option.
    """
    if option not in arguments:
        return [], arguments
    begin = arguments.index(option)
    end = begin + 1
    while end < len(arguments) and not arguments[end].startswith("--"):
        end += 1
    if end == begin + 1:
        raise InputError("arguments", option, "is followed by nothing", f"Write {option} and what it shall be.")
    return arguments[begin + 1 : end], arguments[:begin] + arguments[end:]


def with_each_checkpoint(model: type[BaseModel], fields: Mapping[str, object], checkpoints: Sequence[str]) -> list[Any]:
    """A recipe's configuration for each of several checkpoints, or as it is where none are given."""
    if not checkpoints:
        return [validated(model, fields)]
    return [validated(model, {**fields, "checkpoint": checkpoint}) for checkpoint in checkpoints]


def validated(model: type[BaseModel], values: Mapping[str, object]) -> Any:  # noqa: ANN401 - the model given
    """Validates a configuration; a refusal names the field, the value and what is wrong."""
    from pydantic import ValidationError

    try:
        return model.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"]) or "recipe"
        value = "…" if isinstance(first["input"], Mapping) else first["input"]
        problem = first["msg"].removeprefix("Value error, ").rstrip(".")
        raise InputError(
            field,
            value,
            problem[:1].lower() + problem[1:],
            f"--help of the command lists the fields of {model.__name__}.",
        ) from error


@contextmanager
def open_records(common: Common) -> Iterator[Context]:
    """Open storage and MLflow store, for a command that computes nothing on Ray.

    At the end, records that could not be sent are left in the storage. Where a group shares the storage, what this
    process writes from here on is the group's, too.

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
    """Let the group write what this process and those that it starts make, where a storage is shared by a group.

    A folder says so by handing its group on to what is made in it and letting the group write (`chmod 2775`). The
    usual umask of 022 would keep every user but the first from what the first has begun.
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
    """Open storage and MLflow store for the stages of one command, and Ray once one of them has something to compute.

    Args:
        common: Settings of every command.
        needs: Processes of each stage that runs more than one; a local Ray is large enough for each stage by itself.
    """
    from objectaware.distributed.cluster import ray_cluster, require_answer, termination_as_interrupt, total_cpus
    from objectaware.stages.shared import require_shared

    address = os.environ.get("RAY_ADDRESS")
    if address and address != "local":
        require_answer(address)
    min_cpus = max(map(total_cpus, needs), default=0)
    with ExitStack() as stack:
        stack.enter_context(termination_as_interrupt())
        # Before Ray starts: a fresh SQLite store is initialised by one process alone.
        context = stack.enter_context(open_records(common))

        def start_ray() -> None:
            if not is_started:
                stack.enter_context(ray_cluster(min_cpus=min_cpus))
                require_shared(context.services.storage, context.services.tracking)
                is_started.append(True)

        is_started: list[bool] = []
        yield replace(context, services=replace(context.services, start_ray=start_ray))


def output_folder(address: str, *, field: str = "out") -> Storage:
    """Open the folder that a command writes to.

    Args:
        address: Path or URI; it need not exist.
        field: What the user gave it as, for messages.

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


def run_recipe(common: Common, kind: str, fields: Mapping[str, object]) -> None:
    """Run a stage by the fields of its recipe, and print what it computed.

    Args:
        common: Settings of every command.
        kind: The kind of stage.
        fields: Of the recipe, with the user's overrides.

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
        Dataset(data).require_root()
    with open_context(common, *possible_needs(parts)) as context:
        finish(common, context, stage(context, config), hidden=stage.long_values)


def possible_needs(configs: Iterable[Model]) -> list[Sequence[Need]]:
    """Return the processes of each stage, with and without GPUs where its configuration leaves that open."""
    from objectaware.stages.registry import stage_needs

    return [stage_needs(config, has_gpus=choice) for config in configs for choice in (False, True)]


def require_local_precision(config: Model) -> None:
    """Refuses a training's precision before Ray starts, where it is this machine's processor that lacks it.

    On a cluster the workers look at theirs.

    Raises:
        InputError: This machine trains, and would have to emulate bfloat16.
    """
    precision = getattr(config, "precision", "fp32")
    if precision == "fp32" or os.environ.get("RAY_ADDRESS"):
        return

    import torch

    from objectaware.config import DetectionConfig, PretrainConfig
    from objectaware.training.precision import require_precision

    assert isinstance(config, PretrainConfig | DetectionConfig)

    on_gpu = config.execution.use_gpu is not False and torch.cuda.is_available()
    if on_gpu or not config.execution.use_gpu:  # a GPU that is missing is refused with the cluster's resources
        require_precision(precision, torch.device("cuda" if on_gpu else "cpu"))


def storage_address(storage: str | None) -> str:
    """Where runs are kept: what the user gave, else OBJECTAWARE_STORAGE, else ./runs.

    Raises:
        InputError: In a Ray job it would be relative to the job's working directory.
    """
    address = storage or os.environ.get(STORAGE_VARIABLE) or "runs"
    if submission_id() is not None and "://" not in address and not Path(address).expanduser().is_absolute():
        remedy = f"Set {STORAGE_VARIABLE} to a folder that the cluster's nodes share, such as s3://bucket/runs."
        raise InputError("storage", address, "lies in the job's working directory, which Ray deletes", remedy)
    return address


def finish(common: Common, context: Context, result: StageResult, *, hidden: Sequence[str] = ()) -> None:
    """Prints what a stage computed and where it is, and writes it as data where the user wants that.

    Args:
        common: Settings of every command.
        context: What the command's stages share.
        result: Of the stage.
        hidden: Values that are written but not printed, being long.
    """
    values = dict(result.values)
    write_json(common, {**values, "identity": result.identity, "folder": result.folder.uri, "run_id": result.run_id})
    for key, value in values.items():
        if key not in hidden:
            print(f"{key}: {json.dumps(value)}")
    print(f"folder: {result.folder.uri}")
    if result.run_id is not None:
        print(f"MLflow run: {context.services.tracking.run_url(result.run_id)}")
    print(f"MLflow UI: {context.services.tracking.ui_command()}")


def require_json(common: Common) -> Common:
    """Refuse a file that `write_json` could not write, before hours of work go into its content."""
    if common.json is not None:
        require_writable_file(common.json, field="json")
    return common


def write_json(common: Common, values: object) -> None:
    """Writes values to the file that the user named, if any."""
    if common.json is not None:
        common.json.parent.mkdir(parents=True, exist_ok=True)
        common.json.write_text(json.dumps(values, indent=2) + "\n")


def recipe_values(recipe: Path | None) -> dict[str, object]:
    """The fields of a recipe; none where there is no recipe."""
    return {} if recipe is None else read_recipe(recipe)
