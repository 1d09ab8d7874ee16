"""One process and two are the same training."""

from pathlib import Path

import pytest
import torch
import torch.multiprocessing as mp

from objectaware.training.session import LocalSession
from training_fixtures import make_method, make_trainer
from two_workers import batch_norm_worker, in_double, norm_batch, norm_weights, run_losses, training_worker


@pytest.mark.parametrize(
    ("method", "policy"), [("moco", "none"), ("byol", "none"), ("moco", "mixup"), ("byol", "cutmix")]
)
def test_two_workers_compute_what_one_does(tmp_path: Path, method: str, policy: str) -> None:
    mp.spawn(training_worker, (tmp_path, method, policy), nprocs=2)
    results = [torch.load(tmp_path / f"result-{rank}.pt", weights_only=True) for rank in range(2)]
    torch.set_num_threads(1)
    alone = in_double(make_trainer(make_method(method).double(), LocalSession(tmp_path), policy=policy))
    expected = run_losses(alone, 2)
    for result in results:
        assert result["losses"][0] == pytest.approx(expected[0], abs=1e-12)
        assert result["losses"] == pytest.approx(expected, abs=1e-6)
    for name, value in results[0]["state"].items():
        # Keys of all workers are in the queue, in one order; weights and batch statistics are the same.
        assert torch.equal(value, results[1]["state"][name]), name
        if value.is_floating_point():
            torch.testing.assert_close(value, alone.method.state_dict()[name], atol=1e-5, rtol=1e-5)


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
