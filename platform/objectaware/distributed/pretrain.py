"""Pretraining on Ray Train: one worker or many, resumed after any failure."""

from __future__ import annotations

import os
import shutil
import traceback
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

import torch
from pyarrow import fs
from ray import kill, train
from ray.train import CheckpointConfig, FailureConfig, LoggingConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer

from objectaware.config import DetectionConfig, DetectionExecution, PretrainConfig, PretrainExecution
from objectaware.data.storage import Storage
from objectaware.distributed.cluster import Need, require_resources
from objectaware.distributed.decoding import view_source
from objectaware.distributed.records import Record, RecordPump
from objectaware.distributed.train_session import (
    EpochRecorder,
    FinalError,
    RaySession,
    checkpoint_name,
    checkpoint_position,
    epoch_records,
    root_cause,
)
from objectaware.errors import InputError
from objectaware.training.collapse import TrainingCollapsedError, TrainingDivergedError
from objectaware.training.preemption import StoppedError, honour_termination
from objectaware.training.run import run_pretraining

Config = TypeVar("Config", PretrainConfig, DetectionConfig)
Loop = Callable[[Config, RaySession, Path, Storage], None]
"""What each worker runs: from the configuration, its session, a folder that the workers of a node share and that goes
away afterwards, and the folder of checkpoints that are kept for ever."""

_MAX_RETRIES = 3
_SECONDS_TO_SAVE = 30.0
_SNAPSHOT = "checkpoint_manager_snapshot.json"
KEPT_FOLDER = "kept"
"""Folder inside a run's with the checkpoints that Ray Train knows nothing of and never deletes."""

_ENVIRONMENT = {
    # How often the controller looks at its workers. An epoch's report waits for that; the default is 2 s.
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.2",
    # Importing PyTorch in several workers at once takes longer than the default of 60 s on a loaded machine.
    "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "180",
    "RAY_TRAIN_ENABLE_PRINT_PATCH": "0",
}


def pretrain_needs(execution: PretrainExecution, *, least: bool = False) -> list[Need]:
    """Processes that pretraining runs; on a GPU a worker's CPUs are for decoding, unless others do that.

    Args:
        execution: How it runs.
        least: The fewest workers that may train, in place of all.
    """
    name = "min_workers" if least and execution.min_workers is not None else "num_workers"
    count = execution.worker_counts()[0 if least else -1]
    decodes = execution.num_decoders is None
    if execution.use_gpu:
        workers = Need(name, count, execution.num_loader_threads if decodes else 1, 1)
    else:
        workers = Need(name, count, max(execution.num_compute_threads, 1))
    if execution.num_decoders is None:
        return [workers]
    num_decoders = count * execution.num_decoders
    return [workers, Need(f"decoders ({name} × num_decoders)", num_decoders, execution.num_loader_threads)]


def pretrain(config: PretrainConfig, *, name: str, storage: str, on_record: Callable[[Record], None]) -> str:
    """Pretrains under Ray Train; see `train_on_ray`.

    Raises:
        TrainingCollapsedError: All images have the same embedding.
    """
    return train_on_ray(
        _pretraining,
        config,
        needs=pretrain_needs(config.execution),
        least_needs=pretrain_needs(config.execution, least=True),
        name=name,
        storage=storage,
        on_record=on_record,
    )


def _pretraining(config: PretrainConfig, session: RaySession, cache_folder: Path, kept_folder: Storage) -> None:
    run_pretraining(
        config,
        session,
        cache_folder=cache_folder,
        kept_folder=kept_folder,
        feed=lambda loader: view_source(loader, config, session.rank, session.world_size),
    )


def train_on_ray(
    loop: Loop[Config],
    config: Config,
    *,
    needs: Sequence[Need],
    least_needs: Sequence[Need],
    name: str,
    storage: str,
    on_record: Callable[[Record], None],
) -> str:
    """Runs a training loop under Ray Train and resumes by itself what was begun under the same name.

    Needs an initialised Ray (`ray_cluster`). Lost workers and other failures that may pass are retried from the
    newest checkpoint, up to three times in a row without a new one. A worker that is sent SIGTERM has all of them
    save after the step they are in, and training begins again from there with the workers that are left or come.

    Args:
        loop: What each worker runs.
        config: What to train; says of how many epochs.
        needs: Processes that it takes, the workers first.
        least_needs: The fewest with which it may run.
        name: Name of the run: its folder in `storage`.
        storage: Folder that all nodes reach, a path or URI.
        on_record: Called with `{"kind": "epoch", "epoch", …metrics}` once an epoch is saved, and now and then
            with `{"kind": "progress", …}` and what the loop tells; with `{"kind": "stopping"}` while an
            interrupted training saves where it stands. A resumed run begins with the epochs of the newest
            checkpoints again, in case they were saved but not taken in before.

    Returns:
        Path or URI of the last epoch's checkpoint folder.

    Raises:
        InputError: The configuration does not fit the data, or the cluster is too small.
        TrainingDivergedError: The loss is not a number any more.
        KeyboardInterrupt: On Ctrl-C or SIGTERM, after the workers have saved where they stood and were stopped;
            a second one does not wait for them. The same call resumes.
        Exception: Whatever else a worker raised, or ended its retries, with its traceback in its notes.
    """
    folder = Storage.from_uri(storage)
    run = folder.child(name)
    last = checkpoint_name(config.num_epochs - 1)
    fallback = _mend_snapshot(run)
    saved = _saved_epochs(folder, name)
    for record in chain.from_iterable(saved.values()):
        on_record(record)
    if last not in saved:
        require_resources("training", least_needs)
        with RecordPump(on_record) as pump:
            _fit(loop, config, needs[0], folder, name, pump, fallback)
    return run.child(last).uri


def _fit(
    loop: Loop[Config],
    config: Config,
    need: Need,
    folder: Storage,
    name: str,
    pump: RecordPump,
    fallback: Path | None,
) -> None:
    for variable, value in _ENVIRONMENT.items():
        os.environ.setdefault(variable, value)
    path, filesystem = _ray_storage(folder)
    trainer = _StoppableTrainer(
        _train_worker,
        train_loop_config={
            "loop": loop,
            "config": config,
            "sink": pump.sink,
            "fallback": fallback,
            "kept_folder": folder.child(f"{name}/{KEPT_FOLDER}"),
        },
        torch_config=TerminationConfig(),
        scaling_config=ScalingConfig(
            num_workers=_num_workers(config.execution),
            use_gpu=bool(need.num_gpus),
            resources_per_worker={"CPU": need.num_cpus, "GPU": need.num_gpus},
        ),
        run_config=RunConfig(  # type: ignore[call-arg]  # mypy sees Ray Train V1
            name=name,
            storage_path=path,
            storage_filesystem=filesystem,
            failure_config=FailureConfig(  # type: ignore[call-arg]  # mypy sees Ray Train V1
                max_failures=-1, controller_failure_limit=_MAX_RETRIES
            ),
            # The one before the newest is what `_mend_snapshot` falls back to.
            checkpoint_config=CheckpointConfig(num_to_keep=2),
            callbacks=[EpochRecorder(pump.sink, max_failures=_MAX_RETRIES)],  # type: ignore[list-item]  # mypy sees Ray Train V1
            logging_config=LoggingConfig(log_level="ERROR"),
        ),
    )
    try:
        trainer.fit()
    except train.ControllerError as error:
        failure = error.controller_failure
        raise (failure.error if isinstance(failure, FinalError) else failure) from None
    except train.WorkerGroupError as error:
        raise root_cause(error.worker_failures) from None
    except KeyboardInterrupt:
        try:
            pump.stop_training(_SECONDS_TO_SAVE)
        finally:
            trainer.stop()
        raise


def _num_workers(execution: PretrainExecution | DetectionExecution) -> Any:  # noqa: ANN401 - mypy sees Ray Train V1, which takes no pair
    """The number of workers as Ray Train takes it: one, or the least and the most."""
    counts = execution.worker_counts()
    return counts[-1] if len(counts) == 1 else (counts[0], counts[-1])


class TerminationBackend(TorchConfig().backend_cls):  # type: ignore[misc]  # Ray gives it no type
    """Ray Train's set-up of PyTorch, and of workers on which SIGTERM is a wish to end (`honour_termination`).

    Training runs in a thread of a worker's process, where Python lets no handler be set; this runs in the main one.
    """

    def on_start(self, worker_group: Any, backend_config: TorchConfig) -> None:  # noqa: ANN401 - as Ray declares it
        """Sets up the process group, then the handler, which replaces Ray's that ends the process."""
        super().on_start(worker_group, backend_config)
        worker_group.execute(honour_termination)


class TerminationConfig(TorchConfig):
    """Names the backend to Ray Train."""

    @property
    def backend_cls(self) -> type[TerminationBackend]:
        """`TerminationBackend`."""
        return TerminationBackend


class _StoppableTrainer(TorchTrainer):
    """Ray Train's trainer, on which Ctrl-C is an ordinary `KeyboardInterrupt`.

    Ray Train's own handler of Ctrl-C, which this takes the place of, ends the process without any clean-up.
    """

    _controller: Any = None

    def _register_sigint_handler(self, controller: Any) -> None:  # noqa: ANN401 - Ray's handles are Any
        self._controller = controller

    def stop(self) -> None:
        """Ends the training's processes; workers go with their controller."""
        if self._controller is not None:
            kill(self._controller)


def _train_worker(settings: dict[str, Any]) -> None:
    """What each worker runs."""
    config: PretrainConfig | DetectionConfig = settings["config"]
    context = train.get_context()
    num_threads = config.execution.num_compute_threads
    torch.set_num_threads(num_threads or max(len(os.sched_getaffinity(0)) // context.get_local_world_size(), 1))
    # Ray Train gives the workers of a node one working directory. A mapped file outlives its name, so the
    # first worker that is done may delete the masks under the others.
    cache_folder = Path.cwd() / "cache"
    try:
        with RaySession(settings["sink"], fallback=settings["fallback"]) as session:
            settings["loop"](config, session, cache_folder, settings["kept_folder"])
    except StoppedError:
        settings["sink"].push.remote({"kind": "stopped"})
        raise
    except Exception as error:
        error.add_note(f"On worker {context.get_world_rank()}:\n{traceback.format_exc()}")
        if _may_pass(error):
            raise
        raise FinalError(error) from error
    finally:
        shutil.rmtree(cache_folder, ignore_errors=True)


def _may_pass(error: Exception) -> bool:
    """Whether a retry can help: a lost peer is a RuntimeError, storage that is away an OSError."""
    if isinstance(error, TrainingDivergedError | TrainingCollapsedError | torch.OutOfMemoryError):
        return False
    return isinstance(error, RuntimeError | OSError)


def _mend_snapshot(run: Storage) -> Path | None:
    """Removes Ray Train's list of checkpoints where a kill has torn it.

    Ray Train writes the list in place, and refuses to start with half a list. Object stores replace it whole.

    Returns:
        Where the list is missing, the checkpoint to go on from: the one before the newest, since what the newest
        has finished is on record only once it is in the list.
    """
    if run.exists(_SNAPSHOT):
        try:
            run.read_json(_SNAPSHOT)
        except InputError:
            run.delete(_SNAPSHOT)
        else:
            return None
    local = run.local_path()
    if local is None:
        return None
    folders = sorted(local.glob("epoch_*"), key=lambda folder: checkpoint_position(folder.name))
    return folders[-2] if len(folders) > 1 else None


def _saved_epochs(folder: Storage, name: str) -> dict[str, list[Record]]:
    """Records of the epochs that Ray Train's list holds, by the checkpoint that saved them, oldest first."""
    if not folder.exists(f"{name}/{_SNAPSHOT}"):
        return {}
    path, filesystem = _ray_storage(folder.child(name))
    result = train.Result.from_path(path, storage_filesystem=filesystem)
    return {
        PurePosixPath(checkpoint.path).name: epoch_records(metrics, repeated=True)
        for checkpoint, metrics in result.best_checkpoints or ()
    }


def _ray_storage(folder: Storage) -> tuple[str, fs.FileSystem | None]:
    """A folder as Ray takes it; local ones with their file system, lest `%` or `#` be read as a URI's."""
    local = folder.local_path()
    return (folder.uri, None) if local is None else (str(local), fs.LocalFileSystem())
