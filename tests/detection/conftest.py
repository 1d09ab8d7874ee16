"""A small COCO of scenes, a checkpoint of an untrained network, and a configuration that fits them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from objectaware.config import DataConfig, DetectionConfig
from objectaware.data.scenes import build_scenes


@pytest.fixture(scope="session")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("scenes")
    build_scenes(folder, variant="multi-object", num_train=10, num_val=9, image_size=64)
    return folder


@pytest.fixture(scope="session")
def small(scenes: Path, tiny_checkpoint: Path) -> dict[str, Any]:
    """Fields of a fine-tuning of seconds."""
    return {
        "checkpoint": str(tiny_checkpoint),
        "data": DataConfig(root=str(scenes), layout="coco", split="train"),
        "test": DataConfig(root=str(scenes), layout="coco", split="val"),
        "num_iterations": 4,
        "decay_iterations": (),
        "num_warmup_iterations": 0,
        "batch_size": 2,
        "short_sides": (64, 48),
        "test_short_side": 64,
        "max_side": 96,
        "num_regions": 8,
        "num_train_proposals": 50,
        "num_test_proposals": 20,
        "num_precise_batches": 1,
        "log_interval": 2,
    }


@pytest.fixture(scope="session")
def small_config(small: dict[str, Any]) -> DetectionConfig:
    return DetectionConfig(**small)
