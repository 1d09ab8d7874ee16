"""One worker's fine-tuning from its configuration."""

from __future__ import annotations

import torch

from objectaware.config import DetectionConfig
from objectaware.detection.data import TrainingImages, open_coco
from objectaware.detection.loader import BatchLoader
from objectaware.detection.loop import FineTuner
from objectaware.detection.network import MaskRCNN
from objectaware.detection.order import BatchPlan
from objectaware.errors import InputError
from objectaware.methods.checkpoint import Encoder, load_encoder, local_checkpoint
from objectaware.training.precision import require_precision
from objectaware.training.session import Session


def open_training(config: DetectionConfig) -> tuple[TrainingImages, Encoder]:
    """Opens what a configuration fine-tunes, and on what.

    Args:
        config: What to train; has a checkpoint.

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
    """Fine-tunes as one of the session's workers.

    Args:
        config: What to train; has a checkpoint.
        session: This worker's place among the others.

    Raises:
        InputError: The checkpoint cannot be read, the images do not fit the configuration, or this worker's processor
            does not compute in its precision.
        TrainingDivergedError: A loss is not a number any more.
        StoppedError: A worker was told to end; where training stood is saved.
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
