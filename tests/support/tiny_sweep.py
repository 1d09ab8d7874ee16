"""A sweep small enough for a test: one training on scenes, and a linear evaluation a trial."""

from __future__ import annotations

from pathlib import Path
from typing import Any

NETWORK = {
    "backbone": "resnet10_narrow",
    "image_size": 32,
    "num_epochs": 1,
    "batch_size": 32,
    "method": {"queue_size": 64},
    "execution": {"num_loader_threads": 1, "num_compute_threads": 1},
}


def scenes_data(root: Path | str, split: str) -> dict[str, Any]:
    """One split of a folder of scenes of single objects."""
    return {"root": str(root), "layout": "backgrounds-challenge", "variant": "original", "split": split}


def sweep_fields(root: Path | str = "scenes", **changes: Any) -> dict[str, Any]:
    """Fields of `SweepConfig`: four trials that share a training."""
    return {
        "name": "tiny",
        "stages": {
            "network": {"stage": "pretrain", "fields": {"data": scenes_data(root, "train"), **NETWORK}},
            "linear": {
                "stage": "linear",
                "fields": {
                    "checkpoint": {"from": "network"},
                    "train": scenes_data(root, "train"),
                    "tests": {"val": scenes_data(root, "val")},
                    "image_size": 32,
                    "num_penalties": 2,
                },
            },
        },
        "parameters": {"holdout": {"paths": ["linear.holdout_size"], "grid": [20, 30, 40, 50]}},
        "metric": "linear.accuracies.val",
        "columns": {"accuracy": "linear.accuracies.val"},
        **changes,
    }
