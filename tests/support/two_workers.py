"""Worker processes of the two-worker tests: in a module that a spawned process can import."""

import contextlib
import shutil
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist

from objectaware.methods import moco
from objectaware.methods.workers import AllReduceBatchNorm
from objectaware.training import loop
from objectaware.training.pretraining import Trainer
from objectaware.training.session import LocalSession, StoppedError
from training_fixtures import make_method, make_trainer, training_state


class WorkerSession(LocalSession):
    def __init__(self, folder: Path, rank: int) -> None:
        super().__init__(folder / str(rank))
        self.rank = rank
        self.world_size = 2


class SharedSession(WorkerSession):
    """Both workers restore rank 0's checkpoint; rank 1 is told to end at a step."""

    def __init__(self, folder: Path, rank: int, stop_at: int | None = None) -> None:
        super().__init__(folder, rank)
        self.num_steps = 0
        self.saved: list[tuple[int, int]] = []
        self._stop_at = stop_at
        self._folder = folder

    def should_stop(self) -> bool:
        self.num_steps += 1
        return self.rank == 1 and self.num_steps == self._stop_at

    def save(self, checkpoint: Path | None, *, epoch: int, step: int, wait: bool) -> None:
        super().save(checkpoint, epoch=epoch, step=step, wait=wait)
        self.saved.append((epoch, step))
        dist.barrier()


def in_double(trainer: Trainer) -> Trainer:
    """Views in 64 bits, so that a difference of the arithmetic is told from one of its rounding."""
    step = trainer._update_weights
    trainer._update_weights = lambda views, batch: step([view.double() for view in views], batch)  # type: ignore[method-assign]
    return trainer


def run_losses(trainer: Trainer, num_epochs: int) -> tuple[list[float], dict[str, float]]:
    """Losses of each step, over all workers, and the metrics of the last epoch."""
    losses: list[float] = []
    add = trainer._add
    trainer._add = lambda place, values, totals: losses.append(values["loss"]) or add(place, values, totals)  # type: ignore[func-returns-value, method-assign]
    for epoch in range(num_epochs):
        metrics = trainer._train_epoch(epoch)
    return losses, metrics


def method_of(case: str) -> str:
    """The method that a case's name begins with."""
    return case.split()[0].rstrip(",")


UNGATHERED = "moco, its keys ungathered"
"""A planted bug: each worker's queue takes its own keys alone."""


def training_worker(rank: int, folder: Path, cases: dict[str, dict[str, Any]], num_epochs: int) -> None:
    """Trains each case, a method's name and what is special of it, and leaves `<case>-<rank>.pt`."""
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


def resuming_worker(rank: int, folder: Path, method: str, options: dict[str, Any]) -> None:
    """Trains as a whole; stopped at the second step of the second epoch, copied as it is then, and resumed.

    A step takes five minutes by the clock of rank 1, and none by that of rank 0.
    """
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/group", rank=rank, world_size=2)
    whole = make_trainer(make_method(method), SharedSession(folder / "whole", rank), **options)
    whole.run()
    stopped = SharedSession(folder / "parts", rank, stop_at=6)
    loop.time = SimpleNamespace(perf_counter=time.perf_counter, monotonic=lambda: rank * 300 * stopped.num_steps)
    with contextlib.suppress(StoppedError):
        make_trainer(make_method(method), stopped, **options).run()
    if rank == 0:
        shutil.copytree(folder / "parts", folder / "handed over", symlinks=True)
    dist.barrier()
    resumed = SharedSession(folder / "parts", rank)
    trainer = make_trainer(make_method(method), resumed, **options)
    trainer.run()
    result = {
        "whole": training_state(whole),
        "resumed": training_state(trainer),
        "stopped_after": stopped.num_steps,
        "saved": stopped.saved,
        "resumed_for": resumed.num_steps,
    }
    torch.save(result, folder / f"result-{rank}.pt")
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
