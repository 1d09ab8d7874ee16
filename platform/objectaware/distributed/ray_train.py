"""A training loop on Ray Train: one worker or many, resumed after any failure."""

from __future__ import annotations

import math
import os
import shutil
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch
from ray import train
from ray.train import CheckpointConfig, FailureConfig, LoggingConfig, RunConfig, ScalingConfig

from objectaware.config import DetectionConfig, DetectionExecution, PretrainConfig, PretrainExecution
from objectaware.data.storage import Storage
from objectaware.distributed.cluster import Need, require_resources
from objectaware.distributed.records import Record, RecordPump
from objectaware.distributed.saved_checkpoints import mend_snapshot, ray_storage, saved_checkpoints, saved_epochs
from objectaware.distributed.stoppable import StoppableTrainer, TerminationConfig
from objectaware.distributed.train_session import EpochRecorder, FinalError, RaySession, root_cause
from objectaware.errors import ExplainedError, InputError
from objectaware.training.checkpoints import KEPT_FOLDER, checkpoint_name
from objectaware.training.no_progress import NoProgressError
from objectaware.training.preemption import StoppedError

Config = TypeVar("Config", PretrainConfig, DetectionConfig)
Loop = Callable[[Config, RaySession, Path, Storage], None]
"""What each worker runs: from the configuration, its session, a folder that the workers of a node share and that goes
away afterwards, and the folder of checkpoints that are kept for ever."""

_MAX_RETRIES = 3
_SECONDS_TO_SAVE = 30.0
_SECONDS_TO_CLEAN_UP = 60.0
_SECONDS_AT_ONCE = 5.0

_ENVIRONMENT = {
    # How often the controller looks at its workers. An epoch's report waits for that; the default is 2 s.
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.2",
    # Importing PyTorch in several workers at once takes longer than the default of 60 s on a loaded machine.
    "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "180",
    "RAY_TRAIN_ENABLE_PRINT_PATCH": "0",
}


def train_on_ray(
    loop: Loop[Config],
    config: Config,
    *,
    needs: Sequence[Need],
    least_needs: Sequence[Need],
    name: str,
    storage: Storage,
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
        storage: Folder that all nodes reach. Its guard is asked before each checkpoint is saved.
        on_record: Called with `{"kind": "epoch", "epoch", …metrics}` once an epoch is saved, and now and then
            with `{"kind": "progress", …}` and what the loop tells; with `{"kind": "stopping"}` while an
            interrupted training saves where it stands; with `{"kind": "stuck", "rank", "seconds", "place"}` by a
            worker that made no step for too long and ends itself. A resumed run begins with all saved epochs again,
            since some may not have been taken in before.

    Returns:
        Path or URI of the last epoch's checkpoint folder.

    Raises:
        InputError: The configuration does not fit the data, or the cluster is too small.
        TrainingDivergedError: The loss is not a number any more.
        NoProgressError: A worker made no step for `no_progress_minutes`, again and again.
        KeyboardInterrupt: On Ctrl-C or SIGTERM, after the workers have saved where they stood and were stopped;
            a second one does not wait for them. The same call resumes.
        Exception: Whatever else a worker raised, or ended its retries, with its traceback in its notes.
    """
    folder = storage
    run = folder.child(name)
    last = checkpoint_name(config.num_epochs - 1)
    fallback = mend_snapshot(run)
    saved = saved_checkpoints(run) or ([] if fallback is None else [fallback.name])
    for record in saved_epochs(run, saved[-1]) if saved else ():
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
    path, filesystem = ray_storage(folder)
    trainer = StoppableTrainer(
        _train_worker,
        train_loop_config={
            "loop": loop,
            "config": config,
            "sink": pump.sink,
            "fallback": fallback,
            "kept_folder": folder.child(f"{name}/{KEPT_FOLDER}"),
        },
        # Workers that wait for one that hangs must not give up before that one has told where.
        torch_config=TerminationConfig(timeout_s=2 * math.ceil(60 * config.execution.no_progress_minutes)),
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
            # The one before the newest is what `mend_snapshot` falls back to.
            checkpoint_config=CheckpointConfig(num_to_keep=2),
            callbacks=[EpochRecorder(pump.sink, max_failures=_MAX_RETRIES)],  # type: ignore[list-item]  # mypy sees Ray Train V1
            logging_config=LoggingConfig(log_level="ERROR"),
        ),
    )
    try:
        trainer.fit()
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
    """The error itself, unless it is only the death of a worker that ended itself.

    Args:
        error: What ended the retries.
        stuck: What the newest attempt's workers told of one that made no progress.
    """
    if stuck is None or isinstance(error, InputError | ExplainedError | OSError):
        return error
    return NoProgressError(
        f"worker {stuck['rank']} made no step for {stuck['seconds'] / 60:g} minutes; it was at\n{stuck['place']}"
        "If a step may take that long, raise execution.no_progress_minutes."
    )


def _num_workers(execution: PretrainExecution | DetectionExecution) -> Any:  # noqa: ANN401 - mypy sees Ray Train V1, which takes no pair
    """The number of workers as Ray Train takes it: one, or the least and the most."""
    counts = execution.worker_counts()
    return counts[-1] if len(counts) == 1 else (counts[0], counts[-1])


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
        with RaySession(
            settings["sink"],
            no_progress_seconds=60 * config.execution.no_progress_minutes,
            fallback=settings["fallback"],
            guard=settings["kept_folder"].require_writable,
        ) as session:
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
    if isinstance(error, ExplainedError | torch.OutOfMemoryError):
        return False
    return isinstance(error, RuntimeError | OSError)
