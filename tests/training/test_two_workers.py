"""One process and two are the same training."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.multiprocessing as mp

from objectaware.training.pretraining import Trainer
from objectaware.training.session import LocalSession
from training_fixtures import make_method, make_trainer
from two_workers import (
    UNGATHERED,
    batch_norm_worker,
    in_double,
    method_of,
    norm_batch,
    norm_weights,
    run_losses,
    training_worker,
)

# Batch norm over two samples is close to their order alone: there, rounding would grow a thousandfold a step.
CASES: dict[str, dict[str, Any]] = {
    "moco": {},
    "byol": {},
    "shuffled": {"batch_size": 16},
    "supervised": {},
    "simsiam": {},
    "moco with mixup": {"policy": "mixup"},
    "byol with cutmix": {"policy": "cutmix"},
}
WATCHED = {"loss", "alignment", "uniformity", "feature_std", "top1_accuracy"}


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What two workers computed in each case, and with a planted bug: processes are slow to start."""
    folder = tmp_path_factory.mktemp("together")
    mp.spawn(training_worker, (folder, {**CASES, UNGATHERED: {}}, 2), nprocs=2)
    return folder


def _results(folder: Path, case: str) -> list[dict[str, Any]]:
    return [torch.load(folder / f"{case}-{rank}.pt", weights_only=True) for rank in range(2)]


def _alone(case: str, folder: Path, **options: Any) -> tuple[Trainer, list[float], dict[str, float]]:
    trainer = in_double(make_trainer(make_method(method_of(case)).double(), LocalSession(folder), **options))
    return trainer, *run_losses(trainer, options.get("num_epochs", 2))


@pytest.mark.parametrize("case", CASES)
def test_two_workers_compute_what_one_does(together: Path, tmp_path: Path, case: str) -> None:
    alone, expected, metrics = _alone(case, tmp_path, **CASES[case])
    results = _results(together, case)
    for result in results:
        assert result["losses"][0] == pytest.approx(expected[0], abs=1e-12)
        assert result["losses"] == pytest.approx(expected, abs=1e-6)
        for name in WATCHED & metrics.keys():
            assert result["metrics"][name] == pytest.approx(metrics[name], abs=1e-5), name
    for name, value in results[0]["state"].items():
        # Keys of all workers are in the queue, in one order; weights and batch statistics are the same.
        assert torch.equal(value, results[1]["state"][name]), name
        if value.is_floating_point():
            torch.testing.assert_close(value, alone.method.state_dict()[name], atol=1e-5, rtol=1e-5)


def test_keys_that_are_not_gathered_are_found(together: Path, tmp_path: Path) -> None:
    """The planted bug that the test above is there for."""
    _, expected, _ = _alone("moco", tmp_path)
    losses = _results(together, UNGATHERED)[0]["losses"]
    assert losses[0] == pytest.approx(expected[0], abs=1e-12)  # the queue is still random
    assert abs(losses[1] - expected[1]) > 1e-3


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("method", ["moco", "byol"])
def test_one_worker_of_32_is_two_of_16_over_20_steps(
    tmp_path: Path, method: str, record_property: Callable[[str, object], None]
) -> None:
    options = {"num_pictures": 160, "batch_size": 32, "num_epochs": 4}
    mp.spawn(training_worker, (tmp_path, {method: options}, 4), nprocs=2)
    _, expected, _ = _alone(method, tmp_path, **options)
    assert len(expected) == 20
    trainer = in_double(make_trainer(make_method(method).double(), LocalSession(tmp_path), **options))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in trainer.method.parameters():
            signs = torch.randint(0, 2, weight.shape, generator=generator, dtype=weight.dtype) * 2 - 1
            weight.mul_(1 + signs * torch.finfo(weight.dtype).eps)
    nudged, _ = run_losses(trainer, 4)
    together = _results(tmp_path, method)[0]["losses"]
    differences, drift = (np.abs(np.subtract(losses, expected)) for losses in (together, nudged))
    shown = f"first step {differences[0]:.1e}, 20 steps {differences.max():.1e}; weights off by a bit {drift.max():.1e}"
    record_property("difference", shown)
    print(f"{method}: {shown}")
    assert differences[0] < 1e-12
    assert differences.max() < 1e-6


def test_batch_norm_over_workers_equals_one_over_the_whole_batch(tmp_path: Path) -> None:
    mp.spawn(batch_norm_worker, (tmp_path,), nprocs=2)
    parts = [torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in range(2)]
    norm = torch.nn.BatchNorm2d(3).double()
    batch = norm_batch().requires_grad_()
    output = norm(batch)
    (output * norm_weights()).sum().backward()
    torch.testing.assert_close(torch.cat([part["output"] for part in parts]), output.detach())
    torch.testing.assert_close(torch.cat([part["gradient"] for part in parts]), batch.grad)
    torch.testing.assert_close(parts[0]["var"], norm.running_var)
