"""Pretraining: what a worker trains with, built from its configuration, and its steps, epochs and checkpoints."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer

from objectaware.config import PretrainConfig
from objectaware.errors import ExplainedError
from objectaware.evaluate.features import alignment, compute_features, feature_std, knn_accuracy, uniformity
from objectaware.methods.backbones import Backbone
from objectaware.methods.method import Method, Mixing
from objectaware.methods.workers import gather_batch, mean_over_workers, num_workers, running_statistics
from objectaware.training.inputs import TrainingInputs, build_loader, open_inputs, worker_share
from objectaware.training.loop import Place, Totals, TrainingLoop, autocast, require_precision
from objectaware.training.session import Session
from objectaware.training.views import PreparedViews, ViewBatch, ViewLoader, prepared_views

_MAX_FOR_UNIFORMITY = 512

MIN_FEATURE_STD = 0.01
"""Embeddings that spread less than this share of an even spread, on average over an epoch, have collapsed.

An untrained network with batch norm is far above it (a small MoCo: 0.3). A collapse goes to 0, or to what rounding
to bfloat16 leaves of it (2⁻⁹ at most).
"""


class TrainingCollapsedError(ExplainedError):
    """All images have the same embedding."""


def set_learning_rate(config: PretrainConfig, optimizer: Optimizer, step: int, steps_per_epoch: int) -> None:
    """Set the learning rate of each parameter group for a step of the whole run, counted from 0."""
    scheduled = learning_rate_at(config, step, steps_per_epoch)
    for group in optimizer.param_groups:
        group["lr"] = scaled_learning_rate(config) if group["has_constant_rate"] else scheduled


def learning_rate_at(config: PretrainConfig, step: int, steps_per_epoch: int) -> float:
    """Return the learning rate of a step.

    Args:
        config: Optimizer, schedule and warm-up.
        step: Step of the whole run, from 0.
        steps_per_epoch: Steps per epoch.
    """
    full = scaled_learning_rate(config)
    num_warmup_steps = config.num_warmup_epochs * steps_per_epoch
    if step < num_warmup_steps:
        return full * (step + 1) / num_warmup_steps
    position, end = step - num_warmup_steps, config.num_epochs * steps_per_epoch - num_warmup_steps
    if config.learning_rate_schedule == "cosine_epoch":
        position, end = position // steps_per_epoch, end // steps_per_epoch
    return cosine_learning_rate(position, end, initial=full, final=config.optimizer.final_learning_rate)


def cosine_learning_rate(position: int, end: int, *, initial: float, final: float) -> float:
    """Return the learning rate on a half cosine from initial towards final.

    Args:
        position: Epoch from 0, for a learning rate that is constant within the epoch; or step.
        end: Epochs in all, or steps.
        initial: Learning rate at 0.
        final: Learning rate that would be reached at `end`.

    Source:
        official-implementation §2 (per-epoch cosine to 0.001, no warm-up).
    """
    return final + (initial - final) * 0.5 * (1 + math.cos(math.pi * position / end))


def scaled_learning_rate(config: PretrainConfig) -> float:
    """Return the learning rate of the first epoch: base · B / 256, where B is the batch of all workers together."""
    return config.optimizer.base_learning_rate * config.batch_size / 256


def check_collapse(epoch: int, metrics: Mapping[str, float]) -> None:
    """Check that an epoch's embeddings differ.

    Args:
        epoch: Epoch, from 0.
        metrics: Metrics of the epoch; `feature_std` is checked, if the method has it.

    Raises:
        TrainingCollapsedError: The embeddings are nearly the same.
    """
    spread = metrics.get("feature_std")
    if spread is not None and spread < MIN_FEATURE_STD:
        raise TrainingCollapsedError(
            f"training has collapsed: in epoch {epoch + 1} all images had nearly the same embedding (feature_std = "
            f"{spread:.4f}; 1 is an even spread, below {MIN_FEATURE_STD} there is nothing left to learn from). Lower "
            "optimizer.base_learning_rate or optimizer.weight_decay, set num_warmup_epochs, or raise method.momentum; "
            "and check that the images differ from each other. Then start from scratch with --fresh, since the run's "
            "checkpoints may be bad already."
        )


def observe(method: Method) -> dict[str, Tensor]:
    """Compute metrics of a method's last forward pass, without waiting for the device.

    Args:
        method: After a forward pass; called on every worker.

    Returns:
        `alignment`, `uniformity` and `feature_std` of all workers' embeddings where the method has some, the latter
        two of the first view, uniformity of 512 of them at most; `top1_accuracy` of this worker's images in per cent
        where it classifies.
    """
    if method.embeddings is not None:
        first, second = gather_batch(torch.stack(method.embeddings, dim=1)).unbind(dim=1)
        # All pairs of a batch of thousands would be as much work as the loss. Samples are in random order.
        spread = {"uniformity": uniformity(first[:_MAX_FOR_UNIFORMITY]), "feature_std": feature_std(first)}
        return {"alignment": alignment(first, second), **spread}
    return {} if method.top1_accuracy is None else {"top1_accuracy": method.top1_accuracy}


def knn_metrics(inputs: TrainingInputs, size: int, backbone: Backbone) -> dict[str, float]:
    """Measure k-NN accuracy of the online backbone within the watched images: a tenth of them classified by the rest.

    Args:
        inputs: The training images and their labels.
        size: Side in pixels that they are resized to.
        backbone: The online backbone.

    Returns:
        `knn_accuracy` in per cent, and the number of classified images as `knn_num_images`. Images of classes that the
        rest does not show are left out. If fewer than two classes remain, both metrics are absent.
    """
    assert inputs.labels is not None, "only images with labels are watched"
    device, chosen = next(backbone.parameters()).device, inputs.watched
    features = compute_features(
        backbone, inputs.images, chosen.tolist(), size=size, center_crop=False, device=device
    ).values
    num_queries = max(len(features) // 10, 1)
    queries, bank_labels = torch.from_numpy(inputs.labels[chosen]).tensor_split([num_queries])
    is_known = torch.isin(queries, bank_labels)  # no neighbour could have the class of the others
    if not is_known.any() or bool((bank_labels == bank_labels[0]).all()):
        return {}
    accuracy = knn_accuracy(features[num_queries:], bank_labels, features[:num_queries][is_known], queries[is_known])
    return {"knn_accuracy": accuracy, "knn_num_images": float(is_known.sum())}


class Trainer(TrainingLoop[PretrainConfig, PreparedViews]):
    """Train a method on one worker's share of the batches.

    A checkpoint includes no random generator: draws are a function of seed, epoch and sample, and the order of an epoch
    is a function of seed and epoch.

    Args:
        config: How the weights are fitted, and when checkpoints are made.
        session: This worker's place among the others.
        inputs: The images and the order of their samples.
        method: What is trained.
        loader: Loader of the views.

    Attributes:
        method: What is trained.
        policy: What is done to the positives.
    """

    def __init__(
        self, config: PretrainConfig, session: Session, inputs: TrainingInputs, method: Method, loader: ViewLoader
    ) -> None:
        self.method, self.policy = method, loader.policy
        self._inputs, self._views = inputs, session.view_source(loader, config)
        # Whether another image stands in for each sample, as far as this worker has seen.
        self._is_unreadable = torch.zeros(len(inputs.images), dtype=torch.uint8)
        rate = scaled_learning_rate(config)
        self.learning_rate_text = f"optimizer.base_learning_rate (now {rate:g} after scaling)"
        self.syncs_batch_norm = not method.keeps_batch_norm_local
        self.interval_steps = config.execution.checkpoint_interval_steps
        self.keep_every = config.execution.keep_every
        self.record_every = config.execution.record_every_steps
        super().__init__(config, session, method)

    def build_optimizer(self) -> Optimizer:
        """Build the optimizer of the method's groups of parameters."""
        optimizer: Optimizer = self._config.optimizer.build(self.method.parameter_groups())
        return optimizer

    def restore(self, state: Mapping[str, Any]) -> int:
        """Restore the policy, and what differs between the workers."""
        rank, device = self._session.rank, self._session.device
        # If the number of workers changed, hand out the saved policy states round-robin.
        policy = {name: values[rank % len(values)].to(device) for name, values in state["policy"].items()}
        self.policy.load_state(policy)
        # If it changed, statistics are the mean of all workers, which the method's state holds.
        saved = state["statistics"].items()
        own = {name: values[rank] for name, values in saved if len(values) == self._session.world_size}
        self.method.load_state_dict(own, strict=False)
        self._is_unreadable[state["unreadable"]] = 1
        return int(state["next_epoch"])

    def batches(self, epoch: int, first: int) -> tuple[int, Generator[PreparedViews, None, None]]:
        """Cut the views of an epoch's samples."""
        share = worker_share(self._inputs.batches(epoch), self._session.rank, self._session.world_size)
        views = self._views.epoch(epoch, list(share), first=first)
        network = self.method.backbone
        return len(share), prepared_views(views, self._session.device, network.mean, network.std)

    def step(self, place: Place, batch: PreparedViews) -> dict[str, Tensor]:
        """Set the rates of the step, and train on the views."""
        set_learning_rate(self._config, self.optimizer, place.number, place.num_steps)
        self.method.begin_step(place.number, self._config.num_epochs * place.num_steps)
        values = {"loss": self._update_weights(*batch), **observe(self.method)}
        samples = batch[1]
        self._is_unreadable[samples.indices[samples.unreadable]] = 1
        return values

    def _update_weights(self, views: list[Tensor], batch: ViewBatch) -> Tensor:
        # Mix here and not ahead of the step, so that the policy's state is always that of the steps taken.
        mixed, mixing = self.policy.mix_batch(views[0], batch.mix_draws, batch.masks)
        labels = None
        if self._config.method.needs_labels:
            assert self._inputs.labels is not None, "opening the inputs refuses images without labels"
            labels = torch.from_numpy(self._inputs.labels[batch.indices]).to(mixed.device, non_blocking=True)
        self.optimizer.zero_grad(set_to_none=True)
        loss = self._accumulate_gradients([mixed, *views[1:]], labels, mixing)
        self.optimizer.step()
        return loss

    def _accumulate_gradients(self, views: list[Tensor], labels: Tensor | None, mixing: Mixing | None) -> Tensor:
        """Compute the gradients of a batch, one part at a time. Return its mean loss, without gradient."""
        num_parts = self._config.num_accumulation_steps
        assert mixing is None or num_parts == 1, "the configuration refuses parts of a batch of mixtures"
        parts = zip(*(view.chunk(num_parts) for view in views), strict=True)
        labels_of_parts = [None] * num_parts if labels is None else labels.chunk(num_parts)
        module = self._step_module
        # Workers sum their gradients in the last part.
        waits = module.no_sync if isinstance(module, nn.parallel.DistributedDataParallel) else nullcontext
        losses = []
        for number, (part, its_labels) in enumerate(zip(parts, labels_of_parts, strict=True), start=1):
            with waits() if number < num_parts else nullcontext():
                with autocast(self._config.precision, self._session.device):
                    loss = module(list(part), labels=its_labels, mixing=mixing) / num_parts
                loss.backward()
            losses.append(loss.detach())
            self.method.continue_step()
        return torch.stack(losses).sum()

    def metrics(self, totals: Totals) -> dict[str, float]:
        """Return mean loss and metrics, images per second, and the share of the time spent waiting for data."""
        seconds = totals.elapsed
        return {
            **totals.means(),
            "images_per_second": totals.num_iterations * self._config.batch_size / seconds,
            "data_wait_share": totals.waiting_seconds / seconds,
            "epoch_seconds": seconds,
            "chance_loss": self.method.chance_loss,
        }

    def end_epoch(self, place: Place, metrics: dict[str, float]) -> dict[str, float]:
        """Check and evaluate the network.

        Raises:
            TrainingCollapsedError: All images have the same embedding.
        """
        self._share_statistics()
        last_step = (place.epoch + 1) * place.num_steps - 1
        metrics["learning_rate"] = learning_rate_at(self._config, last_step, place.num_steps)
        metrics["unreadable_images"] = float(len(self._gather_unreadable()))
        check_collapse(place.epoch, metrics)
        number = place.epoch + 1
        due = number % self._config.execution.evaluation_interval == 0 or number == self._config.num_epochs
        if len(self._inputs.watched) and due and self._session.rank == 0:
            metrics |= knn_metrics(self._inputs, self._config.image_size, self.method.backbone)
        return metrics

    @contextmanager
    def checkpoint(self, next_epoch: int, totals: Totals | None = None) -> Iterator[Path | None]:
        """Save the method with the mean running statistics of all workers, if each keeps its own on purpose.

        The statistics of each worker, (world size, C) by name, are saved too. The method gets its own back afterwards,
        so that a run that was stopped inside an epoch continues like one that was not.
        """
        keeps_own = self.method.keeps_batch_norm_local
        own = {name: value.clone() for name, value in running_statistics(self.method).items()} if keeps_own else {}
        state = {
            "next_epoch": next_epoch,
            "totals": None if totals is None else totals.state(),
            "policy": {name: gather_batch(value[None]) for name, value in self.policy.state().items()},
            "statistics": {name: gather_batch(value[None]) for name, value in own.items()},
            "unreadable": self._gather_unreadable(),
        }
        self._share_statistics()
        with self.saved(state) as folder:
            yield folder
        if own:
            self.method.load_state_dict(own, strict=False)

    def _share_statistics(self) -> None:
        """Give all workers their mean running statistics, if each keeps its own on purpose."""
        if self.method.keeps_batch_norm_local:
            own = running_statistics(self.method)
            averaged = {name: mean_over_workers(values) for name, values in own.items()}
            self.method.load_state_dict(averaged, strict=False)

    def _gather_unreadable(self) -> Tensor:
        """Return the indices of the samples that other images stand in for, on all workers and since the run began."""
        if num_workers() > 1:
            total = self._is_unreadable.to(self._session.device)
            dist.all_reduce(total, dist.ReduceOp.MAX)
            self._is_unreadable = total.cpu()
        return self._is_unreadable.nonzero().flatten()


def compile_networks(method: nn.Module, backend: str = "inductor") -> None:
    """Compile each of a method's networks in place, at its first call.

    The networks alone: moving averages, the queue and what workers exchange lie between them, and the names of the
    weights stay as they are.

    Args:
        method: Its children are networks.
        backend: Of torch.compile.
    """
    for network in method.children():
        network.compile(backend=backend)


def run_pretraining(config: PretrainConfig, session: Session) -> None:
    """Pretrain as one of the session's workers.

    Args:
        config: What to train.
        session: This worker's place among the others.

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
    loader = build_loader(config, inputs.images, session.cache_folder)
    Trainer(config, session, inputs, method, loader).run()
