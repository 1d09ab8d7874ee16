"""One worker with two images and two workers with one each are the same training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.multiprocessing as mp

from objectaware.config import DetectionConfig
from objectaware.detection.run import run_fine_tuning
from objectaware.training.session import LocalSession
from two_detectors import fine_tuning_worker


@pytest.mark.slow
def test_two_workers_compute_what_one_does(small: dict[str, Any], tmp_path: Path) -> None:
    """Scenes are of one size and have two objects or more, so that every image gives as many regions and masks."""
    fields = {**small, "short_sides": (64,), "num_iterations": 2, "log_interval": 1, "num_precise_batches": 0}
    config = DetectionConfig(**fields)
    alone = LocalSession(tmp_path / "alone")
    run_fine_tuning(config, alone)
    together = config.model_copy(update={"execution": config.execution.model_copy(update={"num_workers": 2})})
    mp.spawn(fine_tuning_worker, (tmp_path, together.model_dump()), nprocs=2)
    histories = [torch.load(tmp_path / f"{rank}.pt") for rank in range(2)]
    # The second loss is of weights that the gradients of both workers have changed.
    for place, expected in enumerate(alone.history):
        for history in histories:
            for name in ("loss", "loss_objectness", "loss_classifier", "loss_box_reg", "loss_mask"):
                assert history[place][name] == pytest.approx(expected[name], rel=2e-3), (place, name)
    one, other = (
        torch.load(folder / "checkpoint" / "state.pt", weights_only=True)["method"]
        for folder in (tmp_path / "alone", tmp_path / "0")
    )
    for name, value in one.items():
        torch.testing.assert_close(other[name], value, rtol=1e-2, atol=1e-3, msg=name)
