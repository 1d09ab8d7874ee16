"""A pretraining small enough for a test: steps of a tenth of a second."""

from __future__ import annotations

from pathlib import Path

from objectaware.config import DataConfig, PretrainConfig, PretrainExecution
from objectaware.methods.moco import MoCoConfig


def tiny_training(
    data: Path | DataConfig, *, num_epochs: int, batch_size: int = 16, queue_size: int = 64, **execution: object
) -> PretrainConfig:
    """A recipe on one thread, in 32 bits, so that it computes the same everywhere.

    Args:
        data: Images, or a folder of them.
        num_epochs: Epochs.
        batch_size: Images an update of the weights.
        queue_size: Length of the queue.
        execution: Fields of `PretrainExecution`.
    """
    fields = {"num_loader_threads": 1, "num_compute_threads": 1, "cache_mib": 8, **execution}
    return PretrainConfig(
        data=data if isinstance(data, DataConfig) else DataConfig(root=str(data)),
        backbone="resnet10_narrow",
        image_size=32,
        num_epochs=num_epochs,
        batch_size=batch_size,
        method=MoCoConfig(queue_size=queue_size),
        execution=PretrainExecution.model_validate(fields),
    )
