"""The pretraining loop: epochs of steps, the same for one worker or many."""

from __future__ import annotations

import math
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn

from objectaware.augment.color import augment_colors
from objectaware.data.images import IMAGENET_MEAN, IMAGENET_STD
from objectaware.methods.backbones import channels_last
from objectaware.methods.batch_norm import synchronise_batch_norm
from objectaware.methods.byol import BYOL
from objectaware.methods.checkpoint import load_state, save_checkpoint
from objectaware.methods.gather import gather_batch, num_workers
from objectaware.methods.moco import MoCo
from objectaware.training.schedule import cosine_learning_rate, epoch_batches, worker_share
from objectaware.training.session import Session
from objectaware.training.views import ViewBatch, ViewLoader


class TrainingDivergedError(RuntimeError):
    """The loss is no longer a number."""


@dataclass(frozen=True)
class Optimization:
    """How the weights are fitted.

    Attributes:
        num_epochs: Epochs in all.
        batch_size: Samples a step, over all workers.
        learning_rate: Learning rate of the first epoch, already scaled to the batch size.
        final_learning_rate: Where the cosine ends.
        momentum: Of SGD.
        weight_decay: Of SGD, on every parameter.
        seed: Seed of the run.
    """

    num_epochs: int
    batch_size: int
    learning_rate: float
    final_learning_rate: float
    momentum: float
    weight_decay: float
    seed: int


@dataclass
class EpochTotals:
    """Sums over an epoch's steps."""

    loss: float = 0.0
    num_steps: int = 0
    num_images: int = 0
    waiting_seconds: float = 0.0
    started: float = field(default_factory=time.perf_counter)

    def metrics(self) -> dict[str, float]:
        """Mean loss, images a second and the share of the time spent waiting for data."""
        seconds = time.perf_counter() - self.started
        return {
            "loss": self.loss / self.num_steps,
            "images_per_second": self.num_images / seconds,
            "data_wait_share": self.waiting_seconds / seconds,
            "epoch_seconds": seconds,
        }


class Trainer:
    """Trains one method on one worker's share of the batches.

    Args:
        method: MoCo or BYOL: a module from two views to a loss.
        loader: Loads views.
        num_samples: Size of the data set.
        optimization: How the weights are fitted.
        session: This worker's place among the others.
        config: What `config.json` beside a checkpoint holds.
        precision: `fp32` or `bf16`.
        checkpoint_interval: Epochs between checkpoints; the last epoch always makes one.
        evaluate: Called after some epochs by rank 0 with the online backbone, for metrics such as k-NN accuracy.
        evaluation_interval: Epochs between those calls.
        num_unreadable: Tells how many images could not be read so far.
    """

    def __init__(
        self,
        method: MoCo | BYOL,
        loader: ViewLoader,
        num_samples: int,
        optimization: Optimization,
        session: Session,
        *,
        config: Mapping[str, object],
        precision: str,
        checkpoint_interval: int,
        evaluate: Callable[[nn.Module], Mapping[str, float]] | None = None,
        evaluation_interval: int = 1,
        num_unreadable: Callable[[], int] | None = None,
    ) -> None:
        self._optimization = optimization
        self._session = session
        self._loader = loader
        self._num_samples = num_samples
        self._config = config
        self._precision = precision
        self._checkpoint_interval = checkpoint_interval
        self._evaluate = evaluate
        self._evaluation_interval = evaluation_interval
        self._num_unreadable = num_unreadable
        self._chance_loss = method.chance_loss
        self.method = channels_last(synchronise_batch_norm(method, session.device), session.device)
        self.optimizer = torch.optim.SGD(
            [parameter for parameter in self.method.parameters() if parameter.requires_grad],
            lr=optimization.learning_rate,
            momentum=optimization.momentum,
            weight_decay=optimization.weight_decay,
        )
        self.next_epoch = 0
        self._restore()
        self._step_module = self._distributed(self.method)

    def _distributed(self, method: nn.Module) -> nn.Module:
        if self._session.world_size == 1:
            return method
        # Buffers are equal on all workers already: batch statistics and keys are those of the whole batch.
        return nn.parallel.DistributedDataParallel(method, forward_sync_buffers=False)

    def _restore(self) -> None:
        folder = self._session.restored()
        if folder is None:
            return
        state = load_state(folder)
        self.method.load_state_dict(state["method"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.next_epoch = int(state["next_epoch"])
        # A policy's state is its worker's own; with another number of workers, one of those that there were.
        rank, device = self._session.rank, self._session.device
        policy = {name: values[rank % len(values)].to(device) for name, values in state["policy"].items()}
        self._loader.policy.load_state(policy)

    def run(self) -> None:
        """Trains from the next epoch to the last.

        Raises:
            TrainingDivergedError: Where the loss is not a number any more.
        """
        for epoch in range(self.next_epoch, self._optimization.num_epochs):
            metrics = self._train_epoch(epoch)
            metrics |= self._evaluation(epoch)
            self._report(epoch, metrics)

    def _train_epoch(self, epoch: int) -> dict[str, float]:
        settings = self._optimization
        learning_rate = cosine_learning_rate(
            epoch, settings.num_epochs, initial=settings.learning_rate, final=settings.final_learning_rate
        )
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        batches = epoch_batches(self._num_samples, settings.batch_size, seed=settings.seed, epoch=epoch)
        share = worker_share(batches, self._session.rank, self._session.world_size)
        self.method.train()
        totals = EpochTotals()
        views = self._prepared(self._loader.epoch(epoch, list(share)))
        while True:
            asked = time.perf_counter()
            prepared = next(views, None)
            totals.waiting_seconds += time.perf_counter() - asked
            if prepared is None:
                break
            totals.loss += self._step(*prepared)
            totals.num_steps += 1
            totals.num_images += settings.batch_size
            self._session.progress(
                {"epoch": epoch, "step": totals.num_steps, "num_steps": len(share), **totals.metrics()}
            )
        metrics = {**totals.metrics(), "learning_rate": learning_rate, "chance_loss": self._chance_loss}
        if self._num_unreadable is not None:
            metrics["unreadable_images"] = float(self._num_unreadable())
        return metrics

    def _prepared(self, batches: Iterator[ViewBatch]) -> Iterator[tuple[Tensor, Tensor, ViewBatch]]:
        """Prepares each batch's views in a thread of its own while the batch before it trains.

        On a CPU one core then works on colours and another on convolutions; two threads on each operation in turn
        were slower than one, as most operations are too short to share.
        """
        with ThreadPoolExecutor(1, thread_name_prefix="colours") as pool:
            waiting: Future[tuple[Tensor, Tensor, ViewBatch]] | None = None
            for batch in batches:
                upcoming = pool.submit(self._prepare_pair, batch)
                if waiting is not None:
                    yield waiting.result()
                waiting = upcoming
            if waiting is not None:
                yield waiting.result()

    def _prepare_pair(self, batch: ViewBatch) -> tuple[Tensor, Tensor, ViewBatch]:
        return self.prepare(batch.views[0], batch, 0), self.prepare(batch.views[1], batch, 1), batch

    def _step(self, view1: Tensor, view2: Tensor, batch: ViewBatch) -> float:
        # Here and not ahead of the step: a policy's state is then always that of the steps taken.
        view1, mixing = self._loader.policy.mix_batch(view1, batch.mix_draws, batch.masks)
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast(self._session.device.type, torch.bfloat16, enabled=self._precision == "bf16"):
            loss = self._step_module(view1, view2, mixing)
        loss.backward()
        self.optimizer.step()
        value = _mean_over_workers(loss.detach())
        if not math.isfinite(value):
            raise TrainingDivergedError(
                f"the loss is {value}: training has diverged. Lower base_learning_rate (now "
                f"{self._optimization.learning_rate:g} after scaling) or use precision fp32."
            )
        return value

    def prepare(self, view: Tensor, batch: ViewBatch, position: int) -> Tensor:
        """Moves one view to the device, changes its colours and normalises it: uint8 to float (N, 3, H, W)."""
        device = self._session.device
        images = view.to(device, non_blocking=True).float().div_(255).contiguous()
        kernel = blur_kernel_size(images.shape[-1])
        images = augment_colors(images, batch.colors[position].to(device), blur_kernel_size=kernel)
        mean, std = (images.new_tensor(values).view(1, 3, 1, 1) for values in (IMAGENET_MEAN, IMAGENET_STD))
        return images.sub_(mean).div_(std).contiguous(memory_format=torch.channels_last)

    def _evaluation(self, epoch: int) -> dict[str, float]:
        last = epoch + 1 == self._optimization.num_epochs
        due = (epoch + 1) % self._evaluation_interval == 0 or last
        if self._evaluate is None or not due or self._session.rank != 0:
            return {}
        return dict(self._evaluate(self.method.get_submodule("backbone")))

    def _report(self, epoch: int, metrics: Mapping[str, float]) -> None:
        last = epoch + 1 == self._optimization.num_epochs
        if not last and (epoch + 1) % self._checkpoint_interval:
            self._session.report(metrics, epoch=epoch, checkpoint=None)
            return
        policy = {name: gather_batch(value[None]) for name, value in self._loader.policy.state().items()}
        folder = Path(tempfile.mkdtemp(prefix="checkpoint-"))
        try:
            if self._session.rank == 0:
                state = {"optimizer": self.optimizer.state_dict(), "next_epoch": epoch + 1, "policy": policy}
                save_checkpoint(folder, self.method, self._config, state)
            self._session.report(metrics, epoch=epoch, checkpoint=folder if self._session.rank == 0 else None)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def blur_kernel_size(size: int) -> int:
    """Width of the blur: 23 pixels at 224 (paper, appendix B.1), in proportion at other sizes, odd."""
    return max(2 * round(11 * size / 224) + 1, 3)


def _mean_over_workers(loss: Tensor) -> float:
    if num_workers() > 1:
        dist.all_reduce(loss)
        loss = loss / num_workers()
    return float(loss)
