from __future__ import annotations

from pathlib import Path

import pytest
import torch

from objectaware.methods.checkpoint import save_checkpoint
from objectaware.methods.moco import MoCo


@pytest.fixture(scope="session")
def tiny_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of an untrained network."""
    folder = tmp_path_factory.mktemp("checkpoint")
    torch.manual_seed(0)
    save_checkpoint(
        folder,
        MoCo("resnet10_narrow", queue_size=8),
        {"backbone": "resnet10_narrow"},
        {"optimizer": {}, "next_epoch": 0},
    )
    return folder
