"""One worker's pretraining from its configuration."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch

from objectaware.config import PretrainConfig
from objectaware.data.storage import Storage
from objectaware.methods.method import Method
from objectaware.training.checkpoints import KeptCheckpoints
from objectaware.training.compilation import compile_networks
from objectaware.training.inputs import build_loader, open_inputs
from objectaware.training.loop import Checkpointing, Pretraining, Trainer
from objectaware.training.optimization import Optimization
from objectaware.training.precision import require_precision
from objectaware.training.session import Session
from objectaware.training.views import ViewLoader, ViewSource
from objectaware.training.watch import KnnWatch


def run_pretraining(
    config: PretrainConfig,
    session: Session,
    *,
    cache_folder: Path,
    kept_folder: Storage,
    feed: Callable[[ViewLoader], ViewSource] = lambda loader: loader,
) -> None:
    """Pretrains as one of the session's workers.

    Args:
        config: What to train.
        session: This worker's place among the others.
        cache_folder: Local folder that the workers of a node share, for the mask store's copy.
        kept_folder: Where the checkpoints go that are kept for ever.
        feed: Gives the source of the views that the loader would load: by default the loader itself, in threads of
            this process.

    Raises:
        InputError: The images, their labels or the masks do not fit the configuration, or this worker's processor
            does not compute in its precision.
        TrainingDivergedError: The loss is not a number any more.
        TrainingCollapsedError: All images have the same embedding.
        StoppedError: A worker was told to end; where training stood is saved.
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
