"""Running one stage: reuse it if it is finished, otherwise compute it under a lease, resume it and record it."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from objectaware.config import DetectionConfig, Model, PretrainConfig
from objectaware.data.storage import Storage
from objectaware.distributed.machines import MachineWatch
from objectaware.distributed.room import Need, gpu_names, require_possible
from objectaware.errors import InputError
from objectaware.evaluate.coverage import coverage_notices, coverage_rows
from objectaware.methods.checkpoint import checkpoint_config
from objectaware.process import processor_name, restore_collector, user_name
from objectaware.stages.identity import (
    RESULT_FILE,
    STAGE_FILE,
    delete_outputs,
    made_by,
    named_data_sets,
    recipe,
    require_own,
    shown_names,
    stage_identity,
)
from objectaware.stages.lease import Lease, LeaseLostError
from objectaware.stages.machine import on_available_device, uses_gpu
from objectaware.stages.progress import Progress, Reminder
from objectaware.stages.run_index import drop_entry, indexed

if TYPE_CHECKING:
    from objectaware.tracking import Tracker, TrackingStore

Config = TypeVar("Config", bound=Model)


class NotFinishedError(Exception):
    """A stage is not finished, and the command may not compute it."""


class Begun(Protocol):
    """Identities of the stages that this command has started over (`fresh`). A `set[str]` will do."""

    def __contains__(self, key: object, /) -> bool:
        """Return whether the command has started the stage over."""

    def add(self, key: str, /) -> None:
        """Record that the command has started the stage over."""


@dataclass(frozen=True)
class Services:
    """The services at a command's disposal.

    Attributes:
        storage: Folder that contains all stages' folders.
        tracking: MLflow store in use.
        progress: Display of progress.
        start_ray: Starts Ray or connects to it, unless that has been done. It is called only when there is something
            to compute, so that neither a refusal nor a finished stage waits for it.
    """

    storage: Storage
    tracking: TrackingStore
    progress: Progress
    start_ray: Callable[[], None] = lambda: None


@dataclass(frozen=True)
class Mode:
    """How a command treats existing results.

    Attributes:
        fresh: Whether to compute finished stages again.
        verify: Whether to hash the inputs' content instead of their times.
        only_finished: Whether to compute nothing: a stage that is not finished raises `NotFinishedError`.
        waits: Whether to wait for a stage that another command is computing, and reuse its result. By default it is
            refused.
    """

    fresh: bool = False
    verify: bool = False
    only_finished: bool = False
    waits: bool = False


@dataclass(frozen=True)
class EpochWatch:
    """A watch on the epochs of a training.

    Attributes:
        on_epoch: Called with the number of each finished epoch, from 0, and its metrics.
        is_stopped: Returns whether `on_epoch` has stopped the training. Its exception is then not a failure.
    """

    on_epoch: Callable[[int, Mapping[str, float]], None] | None = None
    is_stopped: Callable[[], bool] = lambda: False


@dataclass(frozen=True)
class Context:
    """The context that the stages of one command share.

    Attributes:
        services: The services at the command's disposal.
        mode: How the command treats existing results.
        parent: The study's run, if the stages belong to a study.
        computed: Identities of the stages that this command has started over. `fresh` does so once for each.
        watch: A watch on the epochs of trainings.
    """

    services: Services
    mode: Mode = Mode()
    parent: Tracker | None = None
    computed: Begun = field(default_factory=set[str])
    watch: EpochWatch = EpochWatch()

    def lease(self, folder: Storage) -> Lease:
        """Return a lease on a folder, which gives the right to compute in it."""
        return Lease(folder, waits=self.mode.waits, notify=self.services.progress.line)


@dataclass(frozen=True)
class StageRun:
    """A stage while it is computed.

    Attributes:
        identity: The stage's identity.
        folder: Folder of its output. Once the stage's lease is lost, writes to it are refused.
        tracker: Its MLflow run.
        progress: Display of progress.
        on_epoch: Called with a training's epochs, if something else follows them.
    """

    identity: str
    folder: Storage
    tracker: Tracker
    progress: Progress
    on_epoch: Callable[[int, Mapping[str, float]], None] | None = None


@dataclass(frozen=True)
class Computation(Generic[Config]):
    """The work of a stage for one configuration.

    Attributes:
        title: Title of the stage in progress and in MLflow, unless its caller gives one.
        inputs: Content hash of each input, by name.
        compute: Does the work and returns the stage's values, which are plain. It resumes by itself from the files in
            the folder. It takes the configuration with `execution.use_gpu` filled in. A stage that measures returns
            the value `coverage`: `Coverage.values` by test set.
        tags: Tags of its MLflow run.
        check: Refuses inputs that do not fit, before Ray starts and a run is opened in MLflow.
        least_needs: Returns the processes that the stage keeps running and cannot do without. Tasks are not among
            them, since they ask for resources by themselves.
        networks: Addresses of the checkpoints whose networks the stage measures or uses.
    """

    title: str
    inputs: Mapping[str, str]
    compute: Callable[[StageRun, Config], Mapping[str, Any]]
    tags: Mapping[str, str]
    check: Callable[[Config], object] = lambda config: None
    least_needs: Callable[[Config], Sequence[Need]] = lambda config: ()
    networks: Sequence[str] = ()


@dataclass(frozen=True)
class StageResult:
    """A finished stage.

    Attributes:
        identity: The stage's identity.
        folder: Folder of its output.
        values: Its results, as plain values.
        run_id: Its MLflow run, or None if the server has not been reached yet.
        reused: Whether it was already finished.
    """

    identity: str
    folder: Storage
    values: Mapping[str, Any]
    run_id: str | None
    reused: bool


def one_task(config: Model) -> list[Need]:
    """Return the needs of a stage that runs one task at a time, on a GPU if its configuration says so."""
    return [Need("task", 1, 1, float(bool(uses_gpu(config))))]


@dataclass(frozen=True)
class Stage(Generic[Config]):
    """A kind of stage. Calling it runs the stage, or reuses its finished result.

    Attributes:
        kind: Name of the kind. Its file, its folder in the storage and sweeps use it.
        command: Words after `objectaware` that run it.
        config: Class of its configuration.
        summary: One line for --help that says what the stage does.
        work: Function that returns the work of a configuration. None for a kind that consists of stages of other kinds.
        run_parts: Function that runs the stages of other kinds, under a title, for a kind that consists of them.
        version: Version of the code that computes the stage. Raise it when the same input would give another result.
            None for a kind without work of its own.
        outcome: Name of the value that later stages take by `{from: NAME}`. None if later stages must name one.
        outputs: Patterns of the paths that the stage writes into its folder, beside `stage.json` and `result.json`.
            A pattern that ends with a slash matches everything in such a folder.
        measures: Whether the stage measures something. If so, its value `coverage` says which samples the measures
            cover.
        long_values: Names of values that a command writes but does not print.
        needs: Function that returns the processes that the stage keeps running at once. It takes a configuration with
            `execution.use_gpu` filled in.
        parts: Function that returns the configurations of the stages that this one consists of.
    """

    kind: str
    command: str
    config: type[Config]
    summary: str
    work: Callable[[Context, Config], Computation[Config]] | None = None
    run_parts: Callable[[Context, Config, str | None], StageResult] | None = None
    version: int | None = None
    outcome: str | None = None
    outputs: tuple[str, ...] = ()
    measures: bool = True
    long_values: tuple[str, ...] = ()
    needs: Callable[[Config], Sequence[Need]] = one_task
    parts: Callable[[Config], Sequence[Model]] = lambda config: [config]

    def __call__(
        self, context: Context, config: Config, *, title: str | None = None, out: Storage | None = None
    ) -> StageResult:
        """Run the stage, or reuse its finished result.

        Args:
            context: Context that the stages of a command share.
            config: The stage's configuration.
            title: Title of the stage in progress and in MLflow. By default the stage chooses it.
            out: Folder for its output. By default a folder in the storage, named by the stage's identity.

        Raises:
            InputError: `out` belongs to another run or holds files that no stage has written, the check refuses the
                inputs, or the cluster is too small.
            LeaseHeldError: Another command is computing the same stage.
            LeaseLostError: Another command has taken the stage over.
            NotFinishedError: The stage is not finished, and the context allows only finished stages.
        """
        if self.run_parts is not None:
            assert out is None, f"{self.kind} has no folder of its own"
            return self.run_parts(context, config, title)
        assert self.work is not None
        assert self.version is not None
        work, services = self.work(context, config), context.services
        name = title or work.title
        identity = stage_identity(self.kind, self.version, recipe(config), work.inputs)
        folder = out or services.storage.child(self.kind).child(identity)
        if folder.uri.rstrip("/") == services.storage.uri.rstrip("/"):
            raise InputError("out", folder.uri, "is the storage, which holds other runs", "Give a folder of its own.")
        require_own(folder, identity)
        if context.mode.only_finished and not folder.exists(RESULT_FILE):
            raise NotFinishedError(name)
        if context.mode.fresh and identity not in context.computed:
            _start_over(context, folder, identity, name, self.outputs, is_indexed=out is None)
        if folder.exists(RESULT_FILE):
            return _reuse(context, name, identity, folder, work.tags)
        with context.lease(folder) as lease, ExitStack() as stack:
            require_own(folder, identity)  # another command may have started there since the first check
            if folder.exists(RESULT_FILE):  # the command just waited for has computed it
                return _reuse(context, name, identity, folder, work.tags)
            guarded = folder.guarded(lease.claim)
            if out is None:
                stack.enter_context(indexed(self.kind, guarded))
            work.check(config)
            with Reminder(services.progress):
                services.start_ray()
                on_device = on_available_device(config)
                device = gpu_names() if uses_gpu(on_device) else processor_name()
                if required := work.least_needs(on_device):
                    require_possible(self.kind, required)
                description = {"config": config.model_dump(mode="json"), "inputs": dict(work.inputs)}
                owned = {"stage": self.kind, "identity": identity, "user": user_name()}
                guarded.write_json(STAGE_FILE, {**owned, **description})
                restore_collector()
                with self._recorded(context, name, on_device, device, work, identity, guarded) as tracker:
                    run = StageRun(identity, guarded, tracker, services.progress, context.watch.on_epoch)
                    values = work.compute(run, on_device)
                    if self.measures:
                        assert values["coverage"], f"{self.kind} does not say what its measures are over"
                        tracker.log_table("coverage", coverage_rows(values["coverage"]))
            parent = context.parent.opening.spool if context.parent is not None else None
            guarded.write_json(RESULT_FILE, {"values": dict(values), "run_id": tracker.run_id, "parent": parent})
        services.progress.finish(name)
        _show_coverage(services.progress, values)
        return StageResult(identity, folder, values, tracker.run_id, reused=False)

    @contextmanager
    def _recorded(
        self,
        context: Context,
        title: str,
        config: Config,
        device: str,
        work: Computation[Config],
        identity: str,
        folder: Storage,
    ) -> Iterator[Tracker]:
        """Record a computation as an MLflow run, which ends as the `with` block does."""
        from objectaware.tracking import environment_tags  # here, since workers import this module and need no MLflow

        tags = {**environment_tags(device), **_network_tags(work.networks), **work.tags, "stage": self.kind}
        tracker = context.services.tracking.child_run(
            context.parent, name=title, key=identity, tags=tags, fresh=context.mode.fresh, leased=True
        )
        tracker.log_config(config.model_dump(mode="json"))
        for name, data in named_data_sets(config):
            if name in work.inputs:
                is_trained_on = name == "data" and isinstance(config, PretrainConfig | DetectionConfig)
                purpose = "train" if is_trained_on else name.split()[0]
                parts = (PurePath(data.root).name, data.variant, data.split)
                tracker.log_dataset(purpose, " ".join(filter(None, parts)), work.inputs[name], data.root)
        for address in work.networks:
            tracker.use_model(address, made_by(address))
        context.services.progress.start(title)
        try:
            with MachineWatch(tracker.log_system_metrics):
                yield tracker
        except BaseException as error:
            if _has_lost_lease(folder):
                tracker.drop()
            elif isinstance(error, KeyboardInterrupt):
                tracker.finish("KILLED", error="interrupted")
            elif context.watch.is_stopped():
                tracker.finish("KILLED", error="stopped")
            else:
                tracker.finish("FAILED", error="".join(traceback.format_exception_only(error)))
                if tracker.run_id is not None:
                    context.services.progress.line(f"MLflow run: {context.services.tracking.run_url(tracker.run_id)}")
            raise
        tracker.finish("FINISHED")


def _start_over(
    context: Context, folder: Storage, identity: str, name: str, outputs: Sequence[str], *, is_indexed: bool
) -> None:
    """Delete what the stage wrote into its folder, once per command."""
    with context.lease(folder) as lease:
        if identity in context.computed:  # the command just waited for may share `computed` and have done it
            return
        require_own(folder, identity)
        if is_indexed:
            drop_entry(folder.guarded(lease.claim))
        if left := delete_outputs(folder.guarded(lease.claim), outputs):
            context.services.progress.line(f"{name}: files of others stay in {folder.uri}: {shown_names(left)}")
        context.computed.add(identity)


def _reuse(context: Context, title: str, identity: str, folder: Storage, tags: Mapping[str, str]) -> StageResult:
    record = folder.read_json(RESULT_FILE)
    context.services.progress.line(f"{title}: finished before, reused ({folder.uri})")
    _show_coverage(context.services.progress, record["values"])
    if context.parent is not None and record["parent"] != context.parent.opening.spool and record["run_id"]:
        context.services.tracking.link_run(
            context.parent, name=title, key=identity, tags=tags, source_run_id=record["run_id"]
        )
    return StageResult(identity, folder, record["values"], record["run_id"], reused=True)


def _network_tags(networks: Sequence[str]) -> dict[str, str]:
    """Return how networks were trained, as the tags of their trainings; several values are joined."""
    configs = [checkpoint_config(address) for address in networks]
    found: dict[str, list[str]] = {}
    for tag in ("method", "backbone", "policy"):
        values = [config[tag] for config in configs if tag in config]
        # Checkpoints of earlier versions have the name of a method or policy in place of its fields.
        found[tag] = [value["name"] if isinstance(value, Mapping) else value for value in values]
    return {tag: ", ".join(dict.fromkeys(values)) for tag, values in found.items() if values}


def _has_lost_lease(folder: Storage) -> bool:
    """Return whether another command is known to have taken a guarded folder over."""
    try:
        folder.require_writable()
    except LeaseLostError:
        return True
    except OSError:
        pass  # the store does not answer, so no other command has been seen
    return False


def _show_coverage(progress: Progress, values: Mapping[str, Any]) -> None:
    """Report samples that a stage's measures do not cover."""
    for notice in coverage_notices(values.get("coverage", {})):
        progress.line(f"  {notice}")
