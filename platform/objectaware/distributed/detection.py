"""Fine-tuning a detector on Ray Train, and finding objects in shares of images as tasks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from objectaware.config import DetectionConfig, DetectionExecution
from objectaware.data.storage import Storage
from objectaware.detection.fine_tuning import run_fine_tuning
from objectaware.distributed.cluster import Need
from objectaware.distributed.ray_train import train_on_ray
from objectaware.distributed.records import Record
from objectaware.distributed.train_session import RaySession


def fine_tuning_needs(execution: DetectionExecution) -> list[Need]:
    """Processes that fine-tuning runs; on a GPU the CPUs are for decoding."""
    if execution.use_gpu:
        return [Need("num_workers", execution.num_workers, execution.num_loader_threads, 1)]
    return [Need("num_workers", execution.num_workers, max(execution.num_compute_threads, 1))]


def fine_tune(config: DetectionConfig, *, name: str, storage: Storage, on_record: Callable[[Record], None]) -> str:
    """Fine-tunes under Ray Train; see `train_on_ray`. An epoch is a log interval.

    Raises:
        InputError: The checkpoint or the images do not fit, or the cluster is too small.
    """
    needs = fine_tuning_needs(config.execution)
    return train_on_ray(
        _fine_tuning,
        config,
        needs=needs,
        least_needs=needs,
        name=name,
        storage=storage,
        on_record=on_record,
    )


def _fine_tuning(config: DetectionConfig, session: RaySession, cache_folder: Path, kept_folder: Storage) -> None:
    run_fine_tuning(config, session)
