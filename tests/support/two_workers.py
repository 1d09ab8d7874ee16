"""Worker processes of the two-worker tests: in a module that a spawned process can import."""

from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from objectaware.methods import moco
from objectaware.methods.batch_norm import AllReduceBatchNorm
from objectaware.training.loop import Trainer
from objectaware.training.session import LocalSession
from training_fixtures import make_method, make_trainer


class WorkerSession(LocalSession):
    def __init__(self, folder: Path, rank: int) -> None:
        super().__init__(folder / str(rank))
        self.rank = rank
        self.world_size = 2


def in_double(trainer: Trainer) -> Trainer:
    """Views in 64 bits, so that a difference of the arithmetic is told from one of its rounding."""
    prepare = trainer.prepare
    trainer.prepare = lambda *arguments: prepare(*arguments).double()  # type: ignore[method-assign]
    return trainer


def run_losses(trainer: Trainer, num_epochs: int) -> tuple[list[float], dict[str, float]]:
    """Losses of each step, and the metrics of the last epoch."""
    losses: list[float] = []
    step = trainer._step
    trainer._step = lambda *views: losses.append(step(*views)) or losses[-1]  # type: ignore[func-returns-value, method-assign]
    for epoch in range(num_epochs):
        metrics = trainer._train_epoch(epoch)
    return losses, metrics


def method_of(case: str) -> str:
    """The method that a case's name begins with."""
    return case.split()[0].rstrip(",")


UNGATHERED = "moco, its keys ungathered"
"""A planted bug: each worker's queue takes its own keys alone."""


def training_worker(rank: int, folder: Path, cases: dict[str, dict[str, Any]], num_epochs: int) -> None:
    """Trains each case, the name of a method with something behind it, and leaves `<case>-<rank>.pt` with the result."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/group", rank=rank, world_size=2)
    for case, options in cases.items():
        if case == UNGATHERED:
            moco.gather_batch = lambda keys: keys
        method = make_method(method_of(case)).double()
        trainer = in_double(make_trainer(method, WorkerSession(folder, rank), **options))
        losses, metrics = run_losses(trainer, num_epochs)
        result = {"losses": losses, "metrics": metrics, "state": trainer.method.state_dict()}
        torch.save(result, folder / f"{case}-{rank}.pt")
    dist.destroy_process_group()


def batch_norm_worker(rank: int, folder: Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/group", rank=rank, world_size=2)
    norm = AllReduceBatchNorm(3).double()
    batch = norm_batch().chunk(2)[rank].clone().requires_grad_()
    output = norm(batch)
    (output * norm_weights().chunk(2)[rank]).sum().backward()
    torch.save({"output": output.detach(), "gradient": batch.grad, "var": norm.running_var}, folder / f"{rank}.pt")
    dist.destroy_process_group()


def norm_batch() -> torch.Tensor:
    return torch.randn(8, 3, 5, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 3 + 50


def norm_weights() -> torch.Tensor:
    return torch.randn(8, 3, 5, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
