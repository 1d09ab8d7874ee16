"""Pretraining on Ray Train."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from objectaware.config import PretrainConfig, PretrainExecution
from objectaware.data.storage import Storage
from objectaware.distributed.cluster import Need
from objectaware.distributed.decoding import view_source
from objectaware.distributed.ray_train import train_on_ray
from objectaware.distributed.records import Record
from objectaware.distributed.train_session import RaySession
from objectaware.training.loop import run_pretraining


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


def pretrain(config: PretrainConfig, *, name: str, storage: Storage, on_record: Callable[[Record], None]) -> str:
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
