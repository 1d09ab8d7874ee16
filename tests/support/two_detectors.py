"""Worker processes of detection's two-worker test: in a module that a spawned process can import."""

from __future__ import annotations

from pathlib import Path

import torch
import torch.distributed as dist

from objectaware.config import DetectionConfig
from objectaware.detection.fine_tuning import run_fine_tuning
from objectaware.training.session import LocalSession


class WorkerSession(LocalSession):
    """One of two workers."""

    def __init__(self, folder: Path, rank: int) -> None:
        super().__init__(folder / str(rank))
        self.rank = rank
        self.world_size = 2


def fine_tuning_worker(rank: int, folder: Path, fields: dict[str, object]) -> None:
    """Fine-tunes and leaves `<rank>.pt`: the history."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/group", rank=rank, world_size=2)
    session = WorkerSession(folder, rank)
    run_fine_tuning(DetectionConfig.model_validate(fields), session)
    torch.save(session.history, folder / f"{rank}.pt")
    dist.destroy_process_group()
