"""Pretraining and fine-tuning on Ray Train: one worker or many, resumed after any failure."""

from __future__ import annotations

import logging
import math
import os
import shutil
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

import torch
from pyarrow import fs
from ray import get, kill, train, util
from ray.exceptions import RayActorError, RayError
from ray.train import CheckpointConfig, FailureConfig, LoggingConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer

from objectaware.config import DetectionConfig, DetectionExecution, PretrainConfig, PretrainExecution
from objectaware.data.storage import Storage
from objectaware.distributed.cluster import interface_of, wait_and_remove_abandoned_groups
from objectaware.distributed.local_ray import log_level
from objectaware.distributed.machines import working_on
from objectaware.distributed.record_sink import Record
from objectaware.distributed.room import Need, wait_for_room
from objectaware.distributed.train_session import (
    EPOCHS_NAME,
    EpochRecorder,
    FinalError,
    RaySession,
    RecordPump,
    Sink,
    StartWatch,
    collective_seconds,
    root_cause,
)
from objectaware.errors import ExplainedError, InputError
from objectaware.methods.checkpoint import HASH_NAME, STATE_NAME, fits_hash
from objectaware.process import job_variables
from objectaware.training.loop import KEPT_FOLDER, checkpoint_name, checkpoint_position
from objectaware.training.session import NoProgressError, Session, StoppedError, honour_termination

Config = TypeVar("Config", PretrainConfig, DetectionConfig)
Loop = Callable[[Config, Session], None]
"""The function that each worker runs."""

_RUN_NAME = "train"
"""Name of the run in Ray Train, which is its folder in the stage's."""
_MAX_RETRIES = 3
_SECONDS_TO_SAVE = 30.0
_SECONDS_TO_CLEAN_UP = 60.0
_SECONDS_AT_ONCE = 5.0

# Ray Train's own file. `train.Result.from_path` reads it, but nothing public mends it.
_SNAPSHOT = "checkpoint_manager_snapshot.json"
_HEALTH_CHECK_SECONDS = "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S"

_SECONDS_TO_DIE = 30.0

_KEPT_MEMORY = {
    # A training runs in a thread. An arena of its own could not hold blocks above 32 MiB and would return them.
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": "4000000000",
}
"""Settings with which glibc keeps freed memory for the next step.

By default it returns blocks of some MiB to the system. Every step then has the kernel clear all activations again,
which took a quarter of a CPU's time in the demo's training. Other C libraries ignore these variables.
"""

_logger = logging.getLogger(__name__)


def training_needs(execution: PretrainExecution | DetectionExecution, *, least: bool = False) -> list[Need]:
    """Return the processes that a training runs. On a GPU a worker's CPUs decode, unless decoders do that.

    Args:
        execution: How the training runs.
        least: Return the needs of the fewest workers that may train, not of all.
    """
    count = execution.worker_counts()[0 if least else -1]
    name = "num_workers" if count == execution.num_workers else "min_workers"
    num_decoders = execution.num_decoders if isinstance(execution, PretrainExecution) else None
    if execution.use_gpu:
        workers = Need(name, count, execution.num_loader_threads if num_decoders is None else 1, 1)
    else:
        workers = Need(name, count, max(execution.num_compute_threads, 1))
    if num_decoders is None:
        return [workers]
    return [workers, Need(f"decoders ({name} × num_decoders)", count * num_decoders, execution.num_loader_threads)]


def worker_variables(execution: PretrainExecution | DetectionExecution) -> dict[str, str]:
    """Return environment variables that make a training's workers faster without changing a result.

    On a CPU they make glibc keep freed memory. If the user has set up glibc's memory in this process or in the job,
    they are empty.

    Args:
        execution: How the training runs.
    """
    chosen = {*os.environ, *job_variables()}
    if execution.use_gpu or "GLIBC_TUNABLES" in chosen or any(name.startswith("MALLOC_") for name in chosen):
        return {}
    return dict(_KEPT_MEMORY)


def train_on_ray(loop: Loop[Config], config: Config, *, storage: Storage, on_record: Callable[[Record], None]) -> str:
    """Run a training loop under Ray Train. Resume a training that was begun in the same folder.

    Needs an initialised Ray (`ray_cluster`). First wait until there is room (`wait_for_room`). After a lost worker or
    another failure that may pass, retry from the newest checkpoint, up to three times in a row without a new one.
    Waiting for room, for example in place of a lost machine, is not such a failure. If one worker is sent SIGTERM, all
    of them save after their current step. Training then continues from there with the workers that remain or join.

    Args:
        loop: Function that each worker runs.
        config: What to train, and for how many epochs. An epoch of fine-tuning is a log interval.
        storage: Folder that all nodes reach. Checkpoints go into its folder `train`. Its guard is asked before each
            checkpoint is saved.
        on_record: Called with `{"kind": "epoch", "epoch", …metrics}` after an epoch is saved; with
            `{"kind": "steps", "step", …metrics}` after some steps; now and then with `{"kind": "progress", …}` and the
            loop's values; with `{"kind": "device", "name"}` as rank 0 begins; with `{"kind": "starting"}` and
            `{"kind": "running"}` as workers start and run, and with `{"kind": "waiting", "text"}` once a minute while
            they cannot start; with `{"kind": "stopping"}` while an interrupted training saves; with
            `{"kind": "stuck", "rank", "seconds", "place"}` by a worker that made no step for too long and ends itself.
            A resumed run first repeats all saved epochs, since the driver may have missed some.

    Returns:
        Path or URI of the last epoch's checkpoint folder.

    Raises:
        InputError: The configuration does not fit the data, or the cluster is too small.
        NoRoomError: The cluster had no room within `max_wait_minutes`.
        TrainingDivergedError: The loss has become NaN or infinite.
        TrainingCollapsedError: All images have the same embedding.
        NoProgressError: A worker repeatedly made no step for `no_progress_minutes`.
        KeyboardInterrupt: On Ctrl-C or SIGTERM, after the workers have saved and stopped; a second one does not wait
            for them. The same call resumes.
        Exception: Any other error of a worker that ended the retries, with its traceback in its notes.
    """
    run = storage.child(_RUN_NAME)
    last = checkpoint_name(config.num_epochs - 1)
    fallback = mend_snapshot(run)
    saved = saved_checkpoints(run)
    if saved:
        delete_unlisted(run, saved)
    elif fallback is not None:
        saved = [fallback.name]
    for record in saved_epochs(run, saved[-1]) if saved else ():
        on_record(record)
    if last not in saved:
        needs = training_needs(config.execution, least=True)
        wait_for_room(
            "training",
            needs,
            max_wait_minutes=config.execution.max_wait_minutes,
            say=lambda text: on_record({"kind": "waiting", "text": text}),
        )
        with RecordPump(on_record, needs) as pump, working_on(pump.nodes):
            trainer = _trainer(loop, config, storage, pump.sink, fallback)
            with _orderly_end(trainer, storage, pump), _health_checks(config.execution.worker_counts()[-1]):
                trainer.fit()
        delete_unlisted(run, saved_checkpoints(run))
    return run.child(last).uri


def _trainer(
    loop: Loop[Config], config: Config, folder: Storage, sink: Sink, fallback: Path | None
) -> StoppableTrainer:
    path, filesystem = ray_storage(folder)
    workers = training_needs(config.execution)[0]
    counts = config.execution.worker_counts()
    recorder = EpochRecorder(sink, max_failures=_MAX_RETRIES)
    starts = StartWatch(sink, recorder, max_failures=_MAX_RETRIES, max_wait_minutes=config.execution.max_wait_minutes)
    return StoppableTrainer(
        partial(_train_worker, loop, config, sink, folder.child(f"{_RUN_NAME}/{KEPT_FOLDER}"), fallback),
        # For the set-up. `RaySession` sets the limits for the time until the first step, and after it.
        torch_config=TerminationConfig(
            timeout_s=math.ceil(collective_seconds(60 * config.execution.no_progress_minutes))
        ),
        scaling_config=ScalingConfig(
            num_workers=counts[-1] if len(counts) == 1 else (counts[0], counts[-1]),  # type: ignore[arg-type]  # mypy sees Ray Train V1, which takes no pair
            use_gpu=bool(workers.num_gpus),
            resources_per_worker={"CPU": workers.num_cpus, "GPU": workers.num_gpus},
        ),
        run_config=RunConfig(  # type: ignore[call-arg]  # mypy sees Ray Train V1
            name=_RUN_NAME,
            storage_path=path,
            storage_filesystem=filesystem,
            failure_config=FailureConfig(  # type: ignore[call-arg]  # mypy sees Ray Train V1
                max_failures=-1,
                controller_failure_limit=-1,  # `EpochRecorder` and `StartWatch` have the limits
            ),
            # `mend_snapshot` falls back to the one before the newest.
            checkpoint_config=CheckpointConfig(num_to_keep=2),
            callbacks=[recorder, starts],  # type: ignore[list-item]  # mypy sees Ray Train V1
            logging_config=LoggingConfig(log_level=logging.getLevelName(log_level(logging.ERROR))),
            worker_runtime_env={"env_vars": worker_variables(config.execution)},
        ),
    )


@contextmanager
def _health_checks(num_workers: int) -> Iterator[None]:
    """Say how often Ray Train's controller looks at its workers, unless the user has: at most 80 looks per second.

    An epoch's report waits for the next look. The controllers of all trainings are on the heads of clusters.
    """
    if _HEALTH_CHECK_SECONDS in os.environ:
        yield
        return
    os.environ[_HEALTH_CHECK_SECONDS] = f"{0.2 * max(1, num_workers / 16):g}"
    try:
        yield
    finally:
        del os.environ[_HEALTH_CHECK_SECONDS]


@contextmanager
def _orderly_end(trainer: StoppableTrainer, folder: Storage, pump: RecordPump) -> Iterator[None]:
    """Raise the worker's error that ended a training. On Ctrl-C, let the workers save first."""
    try:
        yield
    except train.ControllerError as error:
        failure = error.controller_failure
        raise _explained(failure.error if isinstance(failure, FinalError) else failure, pump.stuck()) from None
    except train.WorkerGroupError as error:
        raise _explained(root_cause(error.worker_failures), pump.stuck()) from None
    except KeyboardInterrupt:
        seconds = _SECONDS_AT_ONCE  # after a second one
        try:
            folder.require_writable()
            pump.stop_training(_SECONDS_TO_SAVE)
            seconds = _SECONDS_TO_CLEAN_UP
        finally:
            trainer.stop(seconds)
        raise


def _explained(error: Exception, stuck: Record | None) -> Exception:
    """Return the error, or a `NoProgressError` if a worker ended itself because it made no progress.

    Args:
        error: The error that ended the retries.
        stuck: The newest attempt's report of a worker that made no progress.
    """
    if stuck is None or isinstance(error, InputError | ExplainedError | OSError):
        return error
    return NoProgressError(
        f"worker {stuck['rank']} made no step for {stuck['seconds'] / 60:g} minutes; it was at\n{stuck['place']}"
        f"If a step may take that long, set execution.no_progress_minutes to more than {stuck['seconds'] / 60:g}."
    )


def _train_worker(loop: Loop[Config], config: Config, sink: Sink, kept_folder: Storage, fallback: Path | None) -> None:
    context = train.get_context()
    num_threads = config.execution.num_compute_threads
    torch.set_num_threads(num_threads or max(len(os.sched_getaffinity(0)) // context.get_local_world_size(), 1))
    # The workers of a node share one working directory. A mapped file outlives its name, so the first worker to
    # finish may delete the masks while the others use them.
    cache_folder = Path.cwd() / "cache"
    try:
        session = RaySession(
            sink,
            kept_folder=kept_folder,
            cache_folder=cache_folder,
            no_progress_seconds=60 * config.execution.no_progress_minutes,
            fallback=fallback,
        )
        with session.running():
            loop(config, session)
    except StoppedError:
        sink.push.remote({"kind": "stopped"})
        raise
    except Exception as error:
        error.add_note(f"On worker {context.get_world_rank()}:\n{traceback.format_exc()}")
        if _may_pass(error):
            raise
        raise FinalError(error) from error
    finally:
        shutil.rmtree(cache_folder, ignore_errors=True)


def _may_pass(error: Exception) -> bool:
    """Return whether a retry can help: a lost peer is a RuntimeError, unreachable storage an OSError."""
    if isinstance(error, ExplainedError | torch.OutOfMemoryError):
        return False
    return isinstance(error, RuntimeError | OSError)


def mend_snapshot(run: Storage) -> Path | None:
    """Remove Ray Train's list of checkpoints if a kill has left it half written.

    Ray Train writes the list in place and refuses to start with half a list. Object stores replace it as a whole.

    Returns:
        If the list is missing, the checkpoint to continue from. This is the last whole one before the newest, since the
        newest counts as complete only once it is in the list.
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
    # Files are uploaded in no certain order. Checkpoints of an earlier version have no hashes.
    names = [EPOCHS_NAME, *([HASH_NAME] if any((folder / HASH_NAME).exists() for folder in folders) else [])]
    whole = (folder for folder in reversed(folders[:-1]) if all((folder / name).exists() for name in names))
    return next((folder for folder in whole if fits_hash(folder / STATE_NAME)), None)


def delete_unlisted(run: Storage, listed: Sequence[str]) -> None:
    """Delete checkpoints that are not in Ray Train's list, which lost workers have left half uploaded.

    Ray Train deletes only what it has listed.
    """
    for name in run.list_entries():
        if name.startswith("epoch_") and name not in listed:
            run.child(name).delete_all()


def saved_checkpoints(run: Storage) -> list[str]:
    """Return the names of the checkpoints in Ray Train's list, oldest first."""
    if not run.exists(_SNAPSHOT):
        return []
    path, filesystem = ray_storage(run)
    result = train.Result.from_path(path, storage_filesystem=filesystem)
    return [PurePosixPath(checkpoint.path).name for checkpoint, _ in result.best_checkpoints or ()]


def saved_epochs(run: Storage, checkpoint: str) -> list[Record]:
    """Return the records of all epochs up to a checkpoint, the first epoch first."""
    return [{"kind": "epoch", **epoch} for epoch in run.child(checkpoint).read_json(EPOCHS_NAME)]


def ray_storage(folder: Storage) -> tuple[str, fs.FileSystem | None]:
    """Return a folder for Ray; a local one with its file system, so that `%` and `#` are not read as a URI's."""
    local = folder.local_path()
    return (folder.uri, None) if local is None else (str(local), fs.LocalFileSystem())


class TerminationBackend(TorchConfig().backend_cls):  # type: ignore[misc]  # Ray gives it no type
    """Set up PyTorch for Ray Train on the network of Ray's nodes, with workers that handle SIGTERM.

    Training runs in a thread of a worker's process, where Python cannot set handlers. This class runs in the main one.
    """

    def on_start(self, worker_group: Any, backend_config: TorchConfig) -> None:  # noqa: ANN401 - as Ray declares it
        """Set up the process group, then replace Ray's SIGTERM handler, which ends the process.

        SIGTERM then asks training to stop (`honour_termination`).
        """
        worker_group.execute(use_rays_interface)
        super().on_start(worker_group, backend_config)
        worker_group.execute(honour_termination)


class TerminationConfig(TorchConfig):
    """Name the backend for Ray Train."""

    @property
    def backend_cls(self) -> type[TerminationBackend]:
        """Return `TerminationBackend`."""
        return TerminationBackend


class StoppableTrainer(TorchTrainer):
    """Run Ray Train's trainer so that Ctrl-C raises an ordinary `KeyboardInterrupt`.

    Ray Train's own handler of Ctrl-C, which this replaces, ends the process without clean-up.
    """

    _controller: Any = None

    # Nothing public replaces the handler, or returns the controller that `stop` asks to end.
    def _register_sigint_handler(self, controller: Any) -> None:  # noqa: ANN401 - Ray's handles are Any
        self._controller = controller

    def stop(self, seconds: float) -> None:
        """End the training's workers and controller, and release their CPUs and GPUs.

        Ask the controller first. If it were killed while it restarts workers, it would leave a placement group behind
        that no worker names, until this process ends.

        Args:
            seconds: Longest wait for the controller.
        """
        if self._controller is None:
            return
        try:
            get(self._controller.abort.remote(), timeout=seconds)
        except RayActorError:
            pass  # the controller ends itself when it has finished
        except RayError as error:  # such as GetTimeoutError
            _logger.warning("the training's controller does not end and is killed (%s)", error)
        finally:
            kill(self._controller)
            wait_and_remove_abandoned_groups(_SECONDS_TO_DIE)


def use_rays_interface() -> None:
    """Make gloo use the network interface by which Ray's nodes know this one, unless the user has named one.

    By default gloo takes the address of the host's name. On Debian and Ubuntu that is 127.0.1.1, which no other machine
    can reach. NCCL chooses among the interfaces itself.
    """
    interface = interface_of(util.get_node_ip_address())  # type: ignore[no-untyped-call]
    if interface is not None:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
