from collections.abc import Callable

import pytest
import torch

from objectaware.training.loop import Trainer, TrainingDivergedError, blur_kernel_size
from objectaware.training.session import LocalSession


def _states(trainer: Trainer) -> dict[str, torch.Tensor]:
    momenta = trainer.optimizer.state_dict()["state"]
    buffers = {f"momentum {key}": value["momentum_buffer"] for key, value in momenta.items()}
    return {**trainer.method.state_dict(), **buffers}


@pytest.mark.parametrize("method", ["moco", "byol"])
def test_a_resumed_run_is_bit_identical(trainer_in: Callable[..., Trainer], method: str) -> None:
    whole = trainer_in("whole", method, num_epochs=3)
    whole.run()
    stopped = trainer_in("stopped", method, num_epochs=3)
    # Stopped after the second epoch, in the middle of the run as planned.
    for epoch in range(2):
        stopped._report(epoch, stopped._train_epoch(epoch))
    resumed = trainer_in("stopped", method, num_epochs=3)
    assert resumed.next_epoch == 2
    resumed.run()
    expected, seen = _states(whole), _states(resumed)
    assert expected.keys() == seen.keys()
    for name, value in expected.items():
        assert torch.equal(value, seen[name]), name


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
