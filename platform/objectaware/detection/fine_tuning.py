"""Fine-tuning of a detector: the learning rate, the iterations, the same for one worker or many."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from objectaware.config import DetectionConfig
from objectaware.detection.data import Batch, BatchLoader, BatchPlan, TrainingImages, open_coco
from objectaware.detection.network import MaskRCNN
from objectaware.errors import InputError
from objectaware.methods.backbones import channels_last
from objectaware.methods.checkpoint import Encoder, load_encoder, load_state, local_checkpoint
from objectaware.methods.workers import mean_over_workers, synchronise_batch_norm
from objectaware.training.checkpoints import passing_checkpoint
from objectaware.training.precision import autocast, require_precision
from objectaware.training.preemption import StoppedError, any_worker
from objectaware.training.session import Session
from objectaware.training.watch import TrainingDivergedError

_FIRST_FRACTION = 0.001
_DECAY = 0.1


def learning_rate_at(
    iteration: int, learning_rate: float, *, decay_iterations: Sequence[int], num_warmup_iterations: int
) -> float:
    """Return the learning rate of an iteration, which counts from 0.

    It rises linearly from a thousandth of the full rate, and falls to a tenth at each of the decay iterations.

    Source:
        detectron2, solver/lr_scheduler.py, `WarmupMultiStepLR` with its defaults.
    """
    rate = learning_rate * _DECAY ** sum(iteration >= step for step in decay_iterations)
    if iteration >= num_warmup_iterations:
        return rate
    progress = iteration / num_warmup_iterations
    return rate * (_FIRST_FRACTION * (1 - progress) + progress)


def parameter_groups(network: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Return a network's parameters for an optimizer, with no weight decay for batch norm.

    Source:
        detectron2's default WEIGHT_DECAY_NORM 0.
    """
    norms = [one for module in network.modules() if isinstance(module, _BatchNorm) for one in module.parameters()]
    names = {id(parameter) for parameter in norms}
    others = [parameter for parameter in network.parameters() if id(parameter) not in names]
    return [{"params": others, "weight_decay": weight_decay}, {"params": norms, "weight_decay": 0.0}]


@torch.no_grad()
def take_statistics(network: nn.Module, batches: Iterator[Batch], number: int) -> None:
    """Set every batch norm's running statistics to their mean over some batches of one set of weights.

    Args:
        network: In training mode, on all workers.
        batches: This worker's share of each batch, on the network's device.
        number: Number of batches, at least 1.

    Source:
        detectron2's TEST.PRECISE_BN, which MoCo's configuration turns on; fvcore, nn/precise_bn.py.
    """
    norms = [module for module in network.modules() if isinstance(module, _BatchNorm)]
    before = [norm.momentum for norm in norms]
    for place in range(number):
        for norm in norms:
            norm.momentum = 1 / (place + 1)  # a running mean of all batches so far
        network(*next(batches))
    for norm, momentum in zip(norms, before, strict=True):
        norm.momentum = momentum


@dataclass
class IntervalTotals:
    """Sums over the iterations of a log interval; saved with a checkpoint inside an interval."""

    losses: dict[str, float] = field(default_factory=dict)
    num_iterations: int = 0
    seconds: float = 0.0
    waiting_seconds: float = 0.0

    def add(self, losses: Mapping[str, float], seconds: float) -> None:
        """Add one iteration."""
        self.num_iterations += 1
        self.seconds += seconds
        for name, value in losses.items():
            self.losses[name] = self.losses.get(name, 0.0) + value

    def metrics(self, batch_size: int) -> dict[str, float]:
        """Return mean losses, seconds per iteration, images per second and the share of time spent waiting for data."""
        means = {name: value / self.num_iterations for name, value in self.losses.items()}
        seconds = self.seconds / self.num_iterations
        return {
            **means,
            "seconds_per_iteration": seconds,
            "images_per_second": batch_size / seconds,
            "data_wait_share": self.waiting_seconds / (self.waiting_seconds + self.seconds),
        }


class FineTuner:
    """Fine-tunes a network on one worker's share of the batches.

    It reports each log interval to its session as an epoch.

    Args:
        network: The network.
        loader: Loads this worker's images.
        config: How the weights are fitted.
        session: This worker's place among the others.
        description: Content of `config.json` in a checkpoint; has the key `backbone`.
    """

    def __init__(
        self,
        network: MaskRCNN,
        loader: BatchLoader,
        config: DetectionConfig,
        session: Session,
        *,
        description: Mapping[str, object],
    ) -> None:
        self._loader = loader
        self._config = config
        self._session = session
        self._description = description
        self.network = synchronise_batch_norm(network, session.device)
        channels_last(self.network, session.device)
        self.optimizer = torch.optim.SGD(
            parameter_groups(self.network, config.weight_decay),
            lr=config.learning_rate,
            momentum=config.sgd_momentum,
        )
        self.iteration = 0
        self._totals = IntervalTotals()
        self._restore()
        self._step_module: nn.Module = self.network
        if session.world_size > 1:
            # Batch norm's statistics are already those of all workers.
            self._step_module = nn.parallel.DistributedDataParallel(self.network, forward_sync_buffers=False)

    def _restore(self) -> None:
        folder = self._session.restored()
        if folder is None:
            return
        state = load_state(folder)
        self.network.load_state_dict(state["method"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.iteration = int(state["iteration"])
        self._totals = IntervalTotals(**state["totals"])

    def run(self) -> None:
        """Train from where the restored checkpoint stands to the last iteration.

        Raises:
            TrainingDivergedError: A loss is no longer finite.
            StoppedError: A worker was asked to stop; all workers stop after the same iteration, which is saved.
        """
        batches = self._batches()
        self.network.train()
        # An interval that a stop cut off at its very end still has to be reported.
        while self.iteration < self._config.num_iterations or self._totals.num_iterations:
            if not self._interval_is_whole():
                self._iterate(self._next(batches))
                self._report_progress()
                if any_worker(self._session.should_stop(), self._session.device):
                    self._stop()
            if self._interval_is_whole():
                self._end_interval(batches)

    def _interval_is_whole(self) -> bool:
        at_end = self.iteration % self._config.log_interval == 0 or self.iteration == self._config.num_iterations
        return at_end and self._totals.num_iterations > 0

    def _next(self, batches: Iterator[Batch]) -> Batch:
        """Return the next batch, and count how long it took."""
        asked = time.perf_counter()
        batch = next(batches)
        self._totals.waiting_seconds += time.perf_counter() - asked
        return batch

    def _batches(self) -> Iterator[Batch]:
        device = self._session.device
        for images, targets in self._loader.batches(self.iteration):
            moved = [
                {name: value if name == "key" else value.to(device) for name, value in one.items()} for one in targets
            ]
            yield [image.to(device) for image in images], moved

    def _iterate(self, batch: Batch) -> None:
        started = time.perf_counter()
        config = self._config
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate_at(
                self.iteration,
                config.learning_rate,
                decay_iterations=config.decay_iterations,
                num_warmup_iterations=config.num_warmup_iterations,
            )
        self.optimizer.zero_grad(set_to_none=True)
        with self._autocast():
            losses: dict[str, Tensor] = self._step_module(*batch)
        loss = torch.stack(list(losses.values())).sum()
        torch.autograd.backward(loss)
        self.optimizer.step()
        means = mean_over_workers(torch.stack([loss.detach(), *(one.detach() for one in losses.values())]))
        values = dict(zip(["loss", *losses], means.tolist(), strict=True))
        if not math.isfinite(values["loss"]):
            raise TrainingDivergedError(
                f"the loss is {values['loss']} at iteration {self.iteration}: fine-tuning has diverged. Lower "
                f"learning_rate (now {config.learning_rate:g}) or use precision fp32."
            )
        self.iteration += 1
        self._totals.add(values, time.perf_counter() - started)

    def _autocast(self) -> torch.autocast:
        return autocast(self._config.precision, self._session.device)

    def _report_progress(self) -> None:
        place = {"iteration": self.iteration, "num_iterations": self._config.num_iterations}
        self._session.progress({**place, **self._totals.metrics(self._config.batch_size)})

    def _stop(self) -> None:
        interval, step = divmod(self.iteration - 1, self._config.log_interval)
        with self._checkpoint() as folder:
            self._session.save(folder, epoch=interval, step=step)
        raise StoppedError(f"fine-tuning was asked to stop and is saved at iteration {self.iteration}")

    def _end_interval(self, batches: Iterator[Batch]) -> None:
        config = self._config
        interval = (self.iteration - 1) // config.log_interval
        metrics = {"iteration": float(self.iteration), **self._totals.metrics(config.batch_size)}
        first = self.iteration - self._totals.num_iterations
        self._totals = IntervalTotals()
        last = self.iteration == config.num_iterations
        due = self.iteration // config.execution.checkpoint_interval > first // config.execution.checkpoint_interval
        if last and config.num_precise_batches:
            with self._autocast():
                take_statistics(self.network, batches, config.num_precise_batches)
        if not (last or due):
            self._session.report(metrics, epoch=interval, checkpoint=None)
            return
        with self._checkpoint() as folder:
            self._session.report(metrics, epoch=interval, checkpoint=folder)

    def _checkpoint(self) -> AbstractContextManager[Path | None]:
        """Return rank 0's checkpoint in a folder that is deleted afterwards; None for the other workers."""
        state: dict[str, Any] = {
            "optimizer": self.optimizer.state_dict(),
            "iteration": self.iteration,
            "totals": asdict(self._totals),
        }
        return passing_checkpoint(self.network, self._description, state, rank=self._session.rank)


def open_training(config: DetectionConfig) -> tuple[TrainingImages, Encoder]:
    """Open the checkpoint to fine-tune and the images to learn from.

    Args:
        config: Configuration with a checkpoint.

    Raises:
        InputError: The checkpoint cannot be read, or the images do not fit the configuration.
    """
    assert config.checkpoint is not None
    assert config.data is not None
    coco = open_coco(config.data)
    images = TrainingImages(coco, short_sides=config.short_sides, max_side=config.max_side, seed=config.seed)
    if len(images) < config.batch_size:
        problem = f"is more than the {len(images)} images with objects"
        raise InputError("batch_size", config.batch_size, problem, "Lower it.")
    with local_checkpoint(config.checkpoint) as local:
        encoder = load_encoder(local)
    encoder.backbone.as_resnet()
    return images, encoder


def run_fine_tuning(config: DetectionConfig, session: Session) -> None:
    """Fine-tune as one of the session's workers.

    Args:
        config: Configuration with a checkpoint.
        session: This worker's place among the others.

    Raises:
        InputError: The checkpoint cannot be read, the images do not fit the configuration, or this worker's processor
            does not compute in its precision.
        TrainingDivergedError: A loss is no longer finite.
        StoppedError: A worker was asked to stop; the training is saved.
    """
    require_precision(config.precision, session.device)
    images, encoder = open_training(config)
    # The new parts' weights come from the seed; nothing after that draws from this generator.
    torch.manual_seed(config.seed)
    network = MaskRCNN(
        encoder.backbone,
        len(images.category_names),
        num_regions=config.num_regions,
        num_train_proposals=config.num_train_proposals,
        num_test_proposals=config.num_test_proposals,
    )
    loader = BatchLoader(
        images,
        BatchPlan(images.are_wide(), config.batch_size, seed=config.seed),
        rank=session.rank,
        world_size=session.world_size,
        num_threads=config.execution.num_loader_threads,
    )
    description = {
        **config.model_dump(mode="json"),
        "backbone": encoder.config["backbone"],
        "category_names": list(images.category_names),
    }
    FineTuner(network, loader, config, session, description=description).run()
