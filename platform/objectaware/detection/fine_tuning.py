"""Fine-tuning of a detector: its learning rate, its iterations and their statistics."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from objectaware.config import DetectionConfig
from objectaware.detection.data import Batch, BatchPlan, TrainingImages, load_batches, open_coco
from objectaware.detection.network import MaskRCNN, require_resnet
from objectaware.errors import InputError
from objectaware.methods.checkpoint import Encoder, load_encoder, local_checkpoint
from objectaware.training.loop import Place, Totals, TrainingLoop, autocast, require_precision
from objectaware.training.session import Session

_FIRST_FRACTION = 0.001
_DECAY = 0.1


def learning_rate_at(config: DetectionConfig, iteration: int) -> float:
    """Return the learning rate of an iteration, which counts from 0.

    It rises linearly from a thousandth of the full rate, and falls to a tenth at each of the decay iterations.

    Source:
        detectron2, solver/lr_scheduler.py, `WarmupMultiStepLR` with its defaults.
    """
    rate = config.learning_rate * _DECAY ** sum(iteration >= step for step in config.decay_iterations)
    if iteration >= config.num_warmup_iterations:
        return rate
    progress = iteration / config.num_warmup_iterations
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


class FineTuner(TrainingLoop[DetectionConfig, Batch]):
    """Fine-tune a network on one worker's share of the batches. An epoch of it is a log interval.

    Args:
        config: How the weights are fitted.
        session: This worker's place among the others.
        images: The images to learn from.
        network: The network.
        backbone: Name of its backbone.
    """

    def __init__(
        self, config: DetectionConfig, session: Session, images: TrainingImages, network: MaskRCNN, backbone: str
    ) -> None:
        self._images = images
        self._plan = BatchPlan(images.are_wide(), config.batch_size, seed=config.seed)
        self._stream: Iterator[Batch] | None = None
        self.description = {"backbone": backbone, "category_names": list(images.category_names)}
        self.learning_rate_text = f"learning_rate (now {config.learning_rate:g})"
        self.epoch_size = config.log_interval
        super().__init__(config, session, network)

    def build_optimizer(self) -> torch.optim.Optimizer:
        """Build SGD with momentum."""
        groups = parameter_groups(self._network, self._config.weight_decay)
        return torch.optim.SGD(groups, lr=self._config.learning_rate, momentum=self._config.sgd_momentum)

    def restore(self, state: Mapping[str, Any]) -> int:
        """Return the interval to continue with."""
        first = int(state["iteration"]) - int(state["totals"]["num_iterations"])
        # Rounded up: the last interval may be shorter, and after it `first` is the number of all iterations.
        return -(-first // self._config.log_interval)

    def batches(self, epoch: int, first: int) -> tuple[int, Generator[Batch, None, None]]:
        """Take the images of an interval from one stream, which loads ahead from one interval to the next."""
        start = epoch * self._config.log_interval
        num_steps = min(self._config.log_interval, self._config.num_iterations - start)
        if self._stream is None:
            num_threads = self._config.execution.num_loader_threads
            self._stream = load_batches(self._images, self._plan, start + first, self._session, num_threads)
        stream = self._stream
        return num_steps, (next(stream) for _ in range(first, num_steps))

    def step(self, place: Place, batch: Batch) -> dict[str, Tensor]:
        """Set the learning rate of the iteration, and train on the images."""
        learning_rate = learning_rate_at(self._config, self.position(place)["iteration"])
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        self.optimizer.zero_grad(set_to_none=True)
        with autocast(self._config.precision, self._session.device):
            losses: dict[str, Tensor] = self._step_module(*batch)
        loss = torch.stack(list(losses.values())).sum()
        torch.autograd.backward(loss)
        self.optimizer.step()
        return {name: value.detach() for name, value in {"loss": loss, **losses}.items()}

    def position(self, place: Place) -> dict[str, int]:
        """Name the iteration of the whole training."""
        iteration = place.epoch * self._config.log_interval + place.step
        return {"iteration": iteration, "num_iterations": self._config.num_iterations}

    def metrics(self, totals: Totals) -> dict[str, float]:
        """Return mean losses, seconds per iteration, images per second and the share of time spent waiting for data."""
        elapsed = totals.elapsed
        seconds = (elapsed - totals.waiting_seconds) / totals.num_iterations
        return {
            **totals.means(),
            "seconds_per_iteration": seconds,
            "images_per_second": self._config.batch_size / seconds,
            "data_wait_share": totals.waiting_seconds / elapsed,
        }

    def end_epoch(self, place: Place, metrics: dict[str, float]) -> dict[str, float]:
        """Take the precise statistics of batch norm after the last iteration."""
        iteration = self.position(place)["iteration"]
        if iteration == self._config.num_iterations and self._config.num_precise_batches:
            assert self._stream is not None, "the epoch's batches opened it"
            with autocast(self._config.precision, self._session.device):
                take_statistics(self._network, self._stream, self._config.num_precise_batches)
        return {"iteration": float(iteration), **metrics}

    def checkpoint(self, next_epoch: int, totals: Totals | None = None) -> AbstractContextManager[Path | None]:
        """Save the network with its iteration."""
        totals = totals or Totals()
        iteration = min(next_epoch * self._config.log_interval + totals.num_iterations, self._config.num_iterations)
        return self.saved({"iteration": iteration, "totals": totals.state()})


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
    require_resnet(encoder.backbone)
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
        StoppedError: A worker was asked to end. The training is saved.
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
    FineTuner(config, session, images, network, encoder.config["backbone"]).run()
