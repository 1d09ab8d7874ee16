from collections.abc import Callable

import pytest
import torch

from objectaware.training.loop import Trainer, TrainingDivergedError, blur_kernel_size
from objectaware.training.session import LocalSession


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
