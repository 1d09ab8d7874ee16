"""Pretraining: what a worker trains with, built from its configuration, and the loop over epochs and steps."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from objectaware.config import PretrainConfig
from objectaware.data.storage import Storage
from objectaware.methods.backbones import Backbone, channels_last
from objectaware.methods.method import Method, Mixing
from objectaware.methods.workers import mean_over_workers, synchronise_batch_norm
from objectaware.training.checkpoints import KeptCheckpoints
from objectaware.training.inputs import build_loader, open_inputs, worker_share
from objectaware.training.optimization import Optimization
from objectaware.training.policies import Policy
from objectaware.training.precision import autocast, compile_networks, require_precision
from objectaware.training.preemption import StoppedError, any_worker
from objectaware.training.session import Session
from objectaware.training.state import EpochTotals, TrainingState, UnreadableSamples
from objectaware.training.views import PreparedViews, ViewBatch, ViewLoader, ViewSource, prepared_views
from objectaware.training.watch import KnnWatch, TrainingDivergedError, check_collapse, observe


@dataclass(frozen=True)
class Checkpointing:
    """When checkpoints are made, and how they are described.

    Attributes:
        description: What `config.json` beside a checkpoint holds.
        interval: Epochs between checkpoints; the last epoch always makes one.
        interval_steps: Steps between checkpoints inside an epoch; None makes none but on termination.
        kept: Where some checkpoints are kept permanently.
    """

    description: Mapping[str, object]
    interval: int = 1
    interval_steps: int | None = None
    kept: KeptCheckpoints | None = None


@dataclass(frozen=True)
class Pretraining:
    """Hold everything that one worker trains with.

    Attributes:
        method: What is trained.
        policy: What is done to the positives.
        loader: Where the views come from.
        batches: The samples of an epoch, by its number: (steps, batch size of all workers).
        num_samples: Size of the data set.
        optimization: How the weights are fitted.
        session: This worker's place among the others.
        checkpointing: When checkpoints are made.
        precision: `fp32` or `bf16`.
        labels: Class index of each sample, (N,), for a method that is given them.
        evaluate: Called after some epochs by rank 0 with the online backbone, for metrics such as k-NN accuracy.
        evaluation_interval: Epochs between those calls.
    """

    method: Method
    policy: Policy
    loader: ViewSource
    batches: Callable[[int], NDArray[np.int64]]
    num_samples: int
    optimization: Optimization
    session: Session
    checkpointing: Checkpointing
    precision: str = "fp32"
    labels: NDArray[np.int64] | None = None
    evaluate: Callable[[Backbone], Mapping[str, float]] | None = None
    evaluation_interval: int = 1


class Trainer:
    """Train a method on one worker's share of the batches.

    Args:
        training: Everything that it trains with.

    Attributes:
        training: Everything that it trains with.
        method: What is trained.
        optimizer: Fits it.
        next_epoch: Epoch in which training starts or resumes.
    """

    def __init__(self, training: Pretraining) -> None:
        self.training = training
        self._session = training.session
        self._optimization = training.optimization
        self.method = training.method
        if not self.method.keeps_batch_norm_local:
            synchronise_batch_norm(self.method, self._session.device)
        channels_last(self.method, self._session.device)
        self.optimizer = self._optimization.build_optimizer(self.method)
        self._unreadable = UnreadableSamples(training.num_samples, self._session.device)
        self._state = TrainingState(
            self.method,
            self.optimizer,
            training.policy,
            self._unreadable,
            self._session,
            training.checkpointing.description,
        )
        self._step_module = self._distributed(self.method)
        # After DistributedDataParallel, which gives all workers the buffers of rank 0.
        self.next_epoch, self._begun = self._state.restore()

    def _distributed(self, method: nn.Module) -> nn.Module:
        if self._session.world_size == 1:
            return method
        # Buffers are equal on all workers already: batch statistics and keys are those of the whole batch. Where
        # they are a worker's own on purpose, training does not read them.
        return nn.parallel.DistributedDataParallel(method, forward_sync_buffers=False)

    def run(self) -> None:
        """Train from the restored checkpoint, which may be inside an epoch, to the last epoch.

        Raises:
            TrainingDivergedError: The loss is not finite.
            TrainingCollapsedError: All images have the same embedding after an epoch.
            StoppedError: A worker was asked to end. All workers end after the same step, which is saved.
        """
        for epoch in range(self.next_epoch, self._optimization.num_epochs):
            metrics = self._train_epoch(epoch)
            check_collapse(epoch, metrics)
            metrics |= self._evaluation(epoch)
            self._report(epoch, metrics)

    def _train_epoch(self, epoch: int) -> dict[str, float]:
        share = worker_share(self.training.batches(epoch), self._session.rank, self._session.world_size)
        self.method.train()
        totals, self._begun = self._begun or EpochTotals(), None
        batches = self.training.loader.epoch(epoch, list(share), first=totals.num_steps)
        network = self.method.backbone
        with closing(prepared_views(batches, self._session.device, network.mean, network.std)) as views:
            while True:
                asked = time.perf_counter()
                prepared = next(views, None)
                totals.waiting_seconds += time.perf_counter() - asked
                if prepared is None:
                    break
                self._train_step(epoch, len(share), prepared, totals)
        self._state.share_statistics()
        last_step = (epoch + 1) * len(share) - 1
        return {
            **totals.metrics(),
            "chance_loss": self.method.chance_loss,
            "learning_rate": self._optimization.learning_rate_at(last_step, len(share)),
            "unreadable_images": float(len(self._unreadable.gather())),
        }

    def _train_step(self, epoch: int, num_steps: int, prepared: PreparedViews, totals: EpochTotals) -> None:
        """Train on one batch, add it to the totals, report progress, and save if a checkpoint is due."""
        self._set_schedules(epoch * num_steps + totals.num_steps, num_steps)
        totals.loss += self._step(*prepared)
        totals.observe(observe(self.method))
        self._unreadable.add(prepared[1])
        totals.num_steps += 1
        totals.num_images += self._optimization.batch_size
        place = {"epoch": epoch, "step": totals.num_steps, "num_steps": num_steps}
        self._session.progress({**place, **totals.metrics(), "chance_loss": self.method.chance_loss})
        self._save_inside(epoch, totals, num_steps)

    def _set_schedules(self, step: int, steps_per_epoch: int) -> None:
        """Set the learning rate and the method's own schedules for a step of the whole run, counted from 0."""
        self._optimization.set_learning_rate(self.optimizer, step, steps_per_epoch)
        self.method.begin_step(step, self._optimization.num_epochs * steps_per_epoch)

    def _save_inside(self, epoch: int, totals: EpochTotals, num_steps: int) -> None:
        """Save inside an epoch, if a checkpoint is due or a worker was asked to end."""
        stop = any_worker(self._session.should_stop(), self._session.device)
        interval = self.training.checkpointing.interval_steps
        # The epoch's own checkpoint follows its last step.
        due = interval is not None and totals.num_steps % interval == 0 and totals.num_steps < num_steps
        if stop or due:
            with self._state.checkpoint(next_epoch=epoch, totals=totals) as folder:
                self._session.save(folder, epoch=epoch, step=totals.num_steps)
        if stop:
            raise StoppedError(f"training was told to end and is saved at epoch {epoch}, step {totals.num_steps}")

    def _step(self, views: list[Tensor], batch: ViewBatch) -> float:
        # Mix here and not ahead of the step, so that the policy's state is always that of the steps taken.
        mixed, mixing = self.training.policy.mix_batch(views[0], batch.mix_draws, batch.masks)
        labels = None
        if self.training.labels is not None:
            labels = torch.from_numpy(self.training.labels[batch.indices]).to(mixed.device)
        self.optimizer.zero_grad(set_to_none=True)
        loss = self._accumulate_gradients([mixed, *views[1:]], labels, mixing)
        self.optimizer.step()
        value = float(mean_over_workers(loss))
        if not math.isfinite(value):
            raise TrainingDivergedError(
                f"the loss is {value}: training has diverged. Lower optimizer.base_learning_rate (now "
                f"{self._optimization.learning_rate:g} after scaling) or use precision fp32."
            )
        return value

    def _accumulate_gradients(self, views: list[Tensor], labels: Tensor | None, mixing: Mixing | None) -> Tensor:
        """Compute the gradients of a batch, one part at a time. Return its mean loss, without gradient."""
        num_parts = self._optimization.num_accumulation_steps
        assert mixing is None or num_parts == 1, "the configuration refuses parts of a batch of mixtures"
        parts = zip(*(view.chunk(num_parts) for view in views), strict=True)
        labels_of_parts = [None] * num_parts if labels is None else labels.chunk(num_parts)
        losses = []
        for number, (part, its_labels) in enumerate(zip(parts, labels_of_parts, strict=True), start=1):
            with self._without_exchange() if number < num_parts else nullcontext():
                with autocast(self.training.precision, self._session.device):
                    loss = self._step_module(list(part), labels=its_labels, mixing=mixing) / num_parts
                loss.backward()
            losses.append(loss.detach())
            self.method.continue_step()
        return torch.stack(losses).sum()

    def _without_exchange(self) -> AbstractContextManager[None]:
        """Return a context in which workers do not sum their gradients yet."""
        module = self._step_module
        return module.no_sync() if isinstance(module, nn.parallel.DistributedDataParallel) else nullcontext()

    def _evaluation(self, epoch: int) -> dict[str, float]:
        last = epoch + 1 == self._optimization.num_epochs
        due = (epoch + 1) % self.training.evaluation_interval == 0 or last
        if self.training.evaluate is None or not due or self._session.rank != 0:
            return {}
        return dict(self.training.evaluate(self.method.backbone))

    def _report(self, epoch: int, metrics: Mapping[str, float]) -> None:
        last = epoch + 1 == self._optimization.num_epochs
        kept = self.training.checkpointing.kept
        keep = kept if kept is not None and kept.is_due(epoch) else None
        if not last and keep is None and (epoch + 1) % self.training.checkpointing.interval:
            self._session.report(metrics, epoch=epoch, checkpoint=None)
            return
        with self._state.checkpoint(next_epoch=epoch + 1) as folder:
            if keep is not None and folder is not None:
                # First: a run that is stopped between the two makes this checkpoint again.
                keep.keep(folder, epoch)
            self._session.report(metrics, epoch=epoch, checkpoint=folder)


def run_pretraining(
    config: PretrainConfig,
    session: Session,
    *,
    cache_folder: Path,
    kept_folder: Storage,
    feed: Callable[[ViewLoader], ViewSource] = lambda loader: loader,
) -> None:
    """Pretrain as one of the session's workers.

    Args:
        config: What to train.
        session: This worker's place among the others.
        cache_folder: Local folder that the workers of a node share, for the copy of the mask store.
        kept_folder: Where permanently kept checkpoints go.
        feed: Function from the loader to the source of views: by default the loader itself, in threads of this
            process.

    Raises:
        InputError: The images, their labels or the masks do not fit the configuration, or this worker's processor
            does not compute in its precision.
        TrainingDivergedError: The loss is not finite.
        TrainingCollapsedError: All images have the same embedding.
        StoppedError: A worker was asked to end. The training is saved.
    """
    require_precision(config.precision, session.device)
    inputs = open_inputs(config)
    # Weights and the queue's first negatives come from the seed; nothing after that draws from this generator.
    torch.manual_seed(config.seed)
    method = config.method.build(config.backbone, num_classes=inputs.num_classes)
    assert isinstance(method, Method)
    if config.compile:
        compile_networks(method)
    watch = None
    if inputs.labels is not None:
        watch = KnnWatch(inputs.images, inputs.labels, config.image_size, inputs.watched)
    loader = build_loader(config, inputs.images, cache_folder)
    training = Pretraining(
        method=method,
        policy=loader.policy,
        loader=feed(loader),
        batches=inputs.batches,
        num_samples=len(inputs.images),
        optimization=Optimization(
            num_epochs=config.num_epochs,
            batch_size=config.batch_size,
            optimizer=config.optimizer,
            learning_rate_schedule=config.learning_rate_schedule,
            num_warmup_epochs=config.num_warmup_epochs,
            num_accumulation_steps=config.num_accumulation_steps,
        ),
        session=session,
        checkpointing=Checkpointing(
            description=config.model_dump(mode="json"),
            interval=config.execution.checkpoint_interval,
            interval_steps=config.execution.checkpoint_interval_steps,
            kept=KeptCheckpoints(kept_folder, config.execution.keep_every),
        ),
        precision=config.precision,
        labels=inputs.labels if config.method.needs_labels else None,
        evaluate=watch,
        evaluation_interval=config.execution.evaluation_interval,
    )
    Trainer(training).run()
