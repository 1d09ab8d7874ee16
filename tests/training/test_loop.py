from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torchvision.transforms import functional as tvf

from objectaware.augment.color import NUM_COLOR_DRAWS, ColorDistribution, sample_colors
from objectaware.training.loop import Trainer, TrainingDivergedError, blur_kernel_size
from objectaware.training.session import LocalSession
from training_fixtures import make_method, make_trainer


def _states(trainer: Trainer) -> dict[str, torch.Tensor]:
    momenta = trainer.optimizer.state_dict()["state"]
    buffers = {f"momentum {key}": value["momentum_buffer"] for key, value in momenta.items()}
    return {**trainer.method.state_dict(), **buffers, **trainer._loader.policy.state()}


@pytest.mark.parametrize(
    ("method", "policy"),
    [("moco", "none"), ("byol", "none"), ("moco", "cutmix"), ("byol", "mixup"), ("moco", "official_background")],
)
def test_a_resumed_run_is_bit_identical(trainer_in: Callable[..., Trainer], method: str, policy: str) -> None:
    whole = trainer_in("whole", method, num_epochs=3, policy=policy)
    whole.run()
    stopped = trainer_in("stopped", method, num_epochs=3, policy=policy)
    # Stopped after the second epoch, in the middle of the run as planned.
    for epoch in range(2):
        stopped._report(epoch, stopped._train_epoch(epoch))
    resumed = trainer_in("stopped", method, num_epochs=3, policy=policy)
    assert resumed.next_epoch == 2
    resumed.run()
    expected, seen = _states(whole), _states(resumed)
    assert expected.keys() == seen.keys()
    for name, value in expected.items():
        assert torch.equal(value, seen[name]), name


def test_each_worker_gets_its_own_policys_state_back(trainer_in: Callable[..., Trainer], tmp_path: Path) -> None:
    """Rank 0 alone writes the checkpoint; what the others' next batches depend on has to be in it, too."""
    trainer_in("run", num_epochs=1, policy="official_background").run()
    path = tmp_path / "run" / "checkpoint" / "state.pt"
    state = torch.load(path, weights_only=True)
    of_two = {name: torch.cat([values, values + 1]) for name, values in state["policy"].items()}
    torch.save({**state, "policy": of_two}, path)
    for rank in range(2):
        session = LocalSession(tmp_path / "run")
        session.rank = rank
        resumed = make_trainer(make_method("moco"), session, policy="official_background")
        for name, value in resumed._loader.policy.state().items():
            assert torch.equal(value, of_two[name][rank])


def test_views_are_normalised_as_torchvision_does(trainer_in: Callable[..., Trainer]) -> None:
    trainer = trainer_in("run")
    (batch,) = trainer._loader.epoch(0, [np.arange(4)])
    nothing = ColorDistribution(jitter_probability=0, grayscale_probability=0, blur_probability=0)
    plain = replace(batch, colors=(sample_colors(np.zeros((4, NUM_COLOR_DRAWS)), nothing),) * 2)
    expected = tvf.normalize(batch.views[0].float() / 255, [0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
    torch.testing.assert_close(trainer.prepare(batch.views[0], plain, 0).contiguous(), expected)


def test_a_finished_run_trains_no_more(trainer_in: Callable[..., Trainer]) -> None:
    trainer_in("run").run()
    again = trainer_in("run")
    before = {name: value.clone() for name, value in again.method.state_dict().items()}
    again.run()
    assert all(torch.equal(value, before[name]) for name, value in again.method.state_dict().items())


def test_an_epoch_reports_what_a_user_watches(trainer_in: Callable[..., Trainer]) -> None:
    trainer = trainer_in("run")
    trainer.run()
    session = trainer._session
    assert isinstance(session, LocalSession)
    assert [record["epoch"] for record in session.history] == [0, 1]
    assert {
        "loss",
        "chance_loss",
        "images_per_second",
        "learning_rate",
        "data_wait_share",
    } <= session.history[0].keys()


def test_a_loss_that_is_no_number_stops_the_run(trainer_in: Callable[..., Trainer]) -> None:
    trainer = trainer_in("run")
    with torch.no_grad():
        trainer.method.projector[0].weight.fill_(float("nan"))
    with pytest.raises(TrainingDivergedError, match="base_learning_rate"):
        trainer.run()


def test_blur_keeps_the_papers_proportion() -> None:
    assert blur_kernel_size(224) == 23
    assert [blur_kernel_size(size) % 2 for size in range(16, 300)] == [1] * 284
