"""The pretraining loop: epochs of steps, the same for one worker or many."""

from __future__ import annotations

import math
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor, nn

from objectaware.augment.color import augment_colors
from objectaware.data.images import IMAGENET_MEAN, IMAGENET_STD
from objectaware.methods.backbones import channels_last
from objectaware.methods.batch_norm import synchronise_batch_norm
from objectaware.methods.byol import BYOL
from objectaware.methods.checkpoint import load_state, save_checkpoint
from objectaware.methods.gather import num_workers
from objectaware.methods.moco import MoCo
from objectaware.training.preemption import StoppedError, any_worker
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
    """Sums over an epoch's steps; saved with a checkpoint inside an epoch, of which `num_steps` is the position.

    Attributes:
        seconds_before: What the steps took that were made before a restart.
        started: When this process began with the epoch.
    """

    loss: float = 0.0
    num_steps: int = 0
    num_images: int = 0
    waiting_seconds: float = 0.0
    seconds_before: float = 0.0
    started: float = field(default_factory=time.perf_counter)

    @property
    def seconds(self) -> float:
        """What the epoch has taken so far."""
        return self.seconds_before + time.perf_counter() - self.started

    def state(self) -> dict[str, float]:
        """Plain values; `EpochTotals(**state)` goes on from them."""
        values = {**asdict(self), "seconds_before": self.seconds}
        del values["started"]
        return values

    def metrics(self) -> dict[str, float]:
        """Mean loss, images a second and the share of the time spent waiting for data."""
        seconds = self.seconds
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
        batches: An epoch's samples, (steps, batch size); by default `epoch_batches`.
        checkpoint_interval_steps: Steps between checkpoints inside an epoch; None makes none but on termination.
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
        checkpoint_interval_steps: int | None = None,
        batches: Callable[[int], NDArray[np.int64]] | None = None,
        evaluate: Callable[[nn.Module], Mapping[str, float]] | None = None,
        evaluation_interval: int = 1,
        num_unreadable: Callable[[], int] | None = None,
    ) -> None:
        self._optimization = optimization
        self._session = session
        self._loader = loader
        self._batches = batches or (
            lambda epoch: epoch_batches(num_samples, optimization.batch_size, seed=optimization.seed, epoch=epoch)
        )
        self._config = config
        self._precision = precision
        self._checkpoint_interval = checkpoint_interval
        self._checkpoint_interval_steps = checkpoint_interval_steps
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
        self._begun: EpochTotals | None = None
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
        if state.get("totals") is not None:
            self._begun = EpochTotals(**state["totals"])

    def run(self) -> None:
        """Trains from where the restored checkpoint stands, also inside an epoch, to the last epoch.

        Raises:
            TrainingDivergedError: Where the loss is not a number any more.
            StoppedError: Where a worker was told to end; all of them end after the same step, which is saved.
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
        share = worker_share(self._batches(epoch), self._session.rank, self._session.world_size)
        self.method.train()
        totals, self._begun = self._begun or EpochTotals(), None
        views = self._prepared(self._loader.epoch(epoch, list(share[totals.num_steps :])))
        while True:
            asked = time.perf_counter()
            pair = next(views, None)
            totals.waiting_seconds += time.perf_counter() - asked
            if pair is None:
                break
            totals.loss += self._step(*pair)
            totals.num_steps += 1
            totals.num_images += settings.batch_size
            self._session.progress(
                {"epoch": epoch, "step": totals.num_steps, "num_steps": len(share), **totals.metrics()}
            )
            self._save_inside(epoch, totals, len(share))
        metrics = {**totals.metrics(), "learning_rate": learning_rate, "chance_loss": self._chance_loss}
        if self._num_unreadable is not None:
            metrics["unreadable_images"] = float(self._num_unreadable())
        return metrics

    def _save_inside(self, epoch: int, totals: EpochTotals, num_steps: int) -> None:
        """Saves inside an epoch, where that is due or a worker was told to end."""
        stop = any_worker(self._session.should_stop(), self._session.device)
        interval = self._checkpoint_interval_steps
        # The epoch's own checkpoint follows its last step.
        due = interval is not None and totals.num_steps % interval == 0 and totals.num_steps < num_steps
        if stop or due:
            with self._checkpoint(next_epoch=epoch, totals=totals) as folder:
                self._session.save(folder, epoch=epoch, step=totals.num_steps)
        if stop:
            raise StoppedError(f"training was told to end and is saved at epoch {epoch}, step {totals.num_steps}")

    def _prepared(self, batches: Iterator[ViewBatch]) -> Iterator[tuple[Tensor, Tensor]]:
        """Prepares each batch's views in a thread of its own while the batch before it trains.

        On a CPU one core then works on colours and another on convolutions; two threads on each operation in turn
        were slower than one, as most operations are too short to share.
        """
        with ThreadPoolExecutor(1, thread_name_prefix="colours") as pool:
            waiting: Future[tuple[Tensor, Tensor]] | None = None
            for batch in batches:
                upcoming = pool.submit(self._prepare_pair, batch)
                if waiting is not None:
                    yield waiting.result()
                waiting = upcoming
            if waiting is not None:
                yield waiting.result()

    def _prepare_pair(self, batch: ViewBatch) -> tuple[Tensor, Tensor]:
        return self.prepare(batch.views[0], batch, 0), self.prepare(batch.views[1], batch, 1)

    def _step(self, view1: Tensor, view2: Tensor) -> float:
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast(self._session.device.type, torch.bfloat16, enabled=self._precision == "bf16"):
            loss = self._step_module(view1, view2)
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
        with self._checkpoint(next_epoch=epoch + 1) as folder:
            self._session.report(metrics, epoch=epoch, checkpoint=folder)

    @contextmanager
    def _checkpoint(self, *, next_epoch: int, totals: EpochTotals | None = None) -> Iterator[Path | None]:
        """Rank 0's checkpoint in a folder that goes away afterwards; None for the other workers.

        Nothing of a random generator is in it: what is drawn is a function of seed, epoch and sample, and the
        order of an epoch of seed and epoch.
        """
        if self._session.rank != 0:
            yield None
            return
        folder = Path(tempfile.mkdtemp(prefix="checkpoint-"))
        try:
            state = {
                "optimizer": self.optimizer.state_dict(),
                "next_epoch": next_epoch,
                "totals": None if totals is None else totals.state(),
            }
            save_checkpoint(folder, self.method, self._config, state)
            yield folder
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
