"""A run that was stopped at any step ends as the one that was not, to the bit."""

import os
import signal
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.multiprocessing as mp

from objectaware.methods.checkpoint import load_state
from objectaware.training import loop
from objectaware.training.optimizers.lars import LARSConfig
from objectaware.training.pretraining import Trainer
from objectaware.training.session import LocalSession, StoppedError, honour_termination, is_terminated
from training_fixtures import make_method, make_trainer, training_state
from two_workers import resuming_worker

# Two epochs of four steps.
NUM_STEPS = 8


class StoppingSession(LocalSession):
    """Is told to end at a step of the run, counted from 1 over all epochs."""

    def __init__(self, folder: Path, stop_at: int | None = None) -> None:
        super().__init__(folder)
        self.num_steps = 0
        self.saved: list[tuple[int, int]] = []
        self.waited: list[bool] = []
        self._stop_at = stop_at

    def should_stop(self) -> bool:
        self.num_steps += 1
        return self.num_steps == self._stop_at

    def save(self, checkpoint: Path | None, *, epoch: int, step: int, wait: bool) -> None:
        self.saved.append((epoch, step))
        self.waited.append(wait)
        super().save(checkpoint, epoch=epoch, step=step, wait=wait)


def _trainer(session: LocalSession, method: str = "moco", interval: int | None = None) -> Trainer:
    return make_trainer(make_method(method), session, checkpoint_interval_steps=interval)


def _assert_equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    assert one.keys() == other.keys()
    for name, value in one.items():
        assert torch.equal(value, other[name]), name


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[dict[str, torch.Tensor], list[float]]]:
    """State and losses of the epochs of the run that nobody stopped, by method."""
    results = {}
    for method in ("moco", "byol"):
        session = LocalSession(tmp_path_factory.mktemp(method))
        trainer = _trainer(session, method)
        trainer.run()
        results[method] = training_state(trainer), [epoch["loss"] for epoch in session.history]
    return results


@pytest.mark.parametrize("method", ["moco", "byol"])
@pytest.mark.parametrize("step", [1, 3, 4, 5, 8])
def test_told_to_end_at_any_step_it_resumes_to_the_bit(
    whole: dict[str, tuple[dict[str, torch.Tensor], list[float]]], tmp_path: Path, method: str, step: int
) -> None:
    """Steps 4 and 8 are the last of an epoch, whose report is still to come."""
    stopped = StoppingSession(tmp_path, stop_at=step)
    with pytest.raises(StoppedError, match=f"epoch {(step - 1) // 4}, step {(step - 1) % 4 + 1}"):
        _trainer(stopped, method).run()
    resumed = StoppingSession(tmp_path)
    trainer = _trainer(resumed, method)
    trainer.run()
    assert resumed.num_steps == NUM_STEPS - step  # no step twice
    state, losses = whole[method]
    _assert_equal(state, training_state(trainer))
    history = stopped.history + resumed.history
    assert [(epoch["epoch"], epoch["loss"]) for epoch in history] == list(enumerate(losses))


EVERY_OPTION = {
    "optimizer": LARSConfig,
    "learning_rate_schedule": "cosine_step",
    "num_warmup_epochs": 1,
    "num_accumulation_steps": 2,
    "learning_rate": 1.0,
    "batch_size": 16,  # in two parts of four parts of two
}


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("supervised", {}),
        ("simsiam", {}),
        ("shuffled", {"optimization": EVERY_OPTION}),
        ("moco", {"policy": "cutmix"}),
        ("byol", {"policy": "mixup"}),
        ("moco", {"policy": "official_background"}),
    ],
)
def test_options_and_policies_resume_inside_an_epoch_to_the_bit(
    tmp_path: Path, method: str, options: dict[str, Any]
) -> None:
    def trainer(session: LocalSession) -> Trainer:
        return make_trainer(make_method(method), session, **options)

    whole = trainer(LocalSession(tmp_path / "whole"))
    whole.run()
    with pytest.raises(StoppedError):
        trainer(StoppingSession(tmp_path / "stopped", stop_at=3)).run()
    resumed = trainer(LocalSession(tmp_path / "stopped"))
    resumed.run()
    _assert_equal(training_state(whole), training_state(resumed))


def test_checkpoints_inside_an_epoch_change_nothing_and_lie_between_its_ends(
    whole: dict[str, tuple[dict[str, torch.Tensor], list[float]]], tmp_path: Path
) -> None:
    session = StoppingSession(tmp_path)
    trainer = _trainer(session, interval=2)
    trainer.run()
    assert session.saved == [(0, 2), (1, 2)]
    _assert_equal(whole["moco"][0], training_state(trainer))


def test_a_run_that_is_killed_goes_on_from_the_last_interval(
    whole: dict[str, tuple[dict[str, torch.Tensor], list[float]]], tmp_path: Path
) -> None:
    killed = _trainer(LocalSession(tmp_path), interval=3)
    step = killed._update_weights
    calls = []

    def die_at_the_eighth(*views: torch.Tensor) -> torch.Tensor:
        calls.append(None)
        if len(calls) == NUM_STEPS:
            raise ConnectionError
        return step(*views)

    killed._update_weights = die_at_the_eighth  # type: ignore[method-assign]
    with pytest.raises(ConnectionError):
        killed.run()
    session = StoppingSession(tmp_path)
    trainer = _trainer(session, interval=3)
    trainer.run()
    assert session.num_steps == 1  # it was saved at step 3 of the second epoch
    _assert_equal(whole["moco"][0], training_state(trainer))


@pytest.mark.parametrize(
    ("interval", "minutes_per_step", "saved"),
    [
        # The epoch's own checkpoint starts the time again.
        (1, 4, [(0, 3), (1, 3)]),
        # It is late after the last step of an epoch that makes no checkpoint.
        (2, 2.5, [(1, 1)]),
    ],
)
def test_checkpoints_by_time_are_not_waited_for_and_a_killed_run_goes_on_from_them_to_the_bit(
    whole: dict[str, tuple[dict[str, torch.Tensor], list[float]]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    interval: int,
    minutes_per_step: float,
    saved: list[tuple[int, int]],
) -> None:
    class Timed(StoppingSession):
        def should_stop(self) -> bool:
            """Called after each step, before the loop looks at its clock."""
            now[0] += 60 * minutes_per_step
            return super().should_stop()

        def progress(self, state: Mapping[str, float]) -> None:
            """Called before the loop saves."""
            if self.num_steps == NUM_STEPS:
                raise ConnectionError

    now = [0.0]
    clock = SimpleNamespace(perf_counter=time.perf_counter, monotonic=lambda: now[0])
    monkeypatch.setattr(loop, "time", clock)
    killed = Timed(tmp_path)
    with pytest.raises(ConnectionError):
        make_trainer(make_method("moco"), killed, checkpoint_interval=interval, checkpoint_minutes=10).run()
    assert killed.saved == saved
    assert killed.waited == [False] * len(saved)
    session = StoppingSession(tmp_path)
    trainer = make_trainer(make_method("moco"), session, checkpoint_interval=interval, checkpoint_minutes=None)
    trainer.run()
    assert session.num_steps == 4 - saved[-1][1]
    _assert_equal(whole["moco"][0], training_state(trainer))


def test_the_time_before_a_restart_counts(tmp_path: Path) -> None:
    with pytest.raises(StoppedError):
        _trainer(StoppingSession(tmp_path, stop_at=3)).run()
    resumed = _trainer(LocalSession(tmp_path))
    assert resumed._begun is not None
    assert resumed._begun.seconds > 0
    assert resumed._begun.num_iterations == 3


def test_training_draws_from_no_generator_that_a_checkpoint_would_have_to_hold(tmp_path: Path) -> None:
    trainer = _trainer(LocalSession(tmp_path))
    before = torch.get_rng_state()
    trainer.run()
    assert torch.equal(before, torch.get_rng_state())


def _assert_two_workers_resume(folder: Path, method: str, **options: Any) -> dict[str, torch.Tensor]:
    """Two epochs of four steps, of which the sixth is the one to stop after; gives rank 0's final state."""
    mp.spawn(resuming_worker, (folder, method, options), nprocs=2)
    results = [torch.load(folder / f"result-{rank}.pt", weights_only=True) for rank in range(2)]
    for result in results:
        assert result["stopped_after"] == 6
        assert result["resumed_for"] == 2
        assert result["saved"] == [(0, 2), (1, 2)]  # the first by the clock of one of them
        _assert_equal(result["whole"], result["resumed"])
    state: dict[str, torch.Tensor] = results[0]["whole"]
    return state


def test_two_workers_of_which_one_is_told_to_end_stop_at_one_step_and_resume_to_the_bit(tmp_path: Path) -> None:
    """And where one of them is gone, the other goes on alone with the same batches."""
    state = _assert_two_workers_resume(tmp_path, "moco")
    alone = _trainer(LocalSession(tmp_path / "handed over"))
    alone.run()
    for name, value in training_state(alone).items():
        torch.testing.assert_close(value, state[name], atol=1e-4, rtol=1e-4, msg=name)


def test_workers_with_statistics_of_their_own_resume_with_them(tmp_path: Path) -> None:
    """Shuffled batch norm: a checkpoint inside an epoch shows the mean of the workers, and changes none of them."""
    _assert_two_workers_resume(tmp_path, "shuffled", num_pictures=64, batch_size=16)
    state = load_state(tmp_path / "handed over" / "checkpoint")
    assert len(state["statistics"]) > 10
    for name, statistics in state["statistics"].items():
        assert not torch.equal(*statistics), name
        torch.testing.assert_close(state["method"][name], statistics.mean(dim=0))


@pytest.fixture
def handler() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def test_the_first_sigterm_is_a_wish_and_the_second_what_it_was(handler: None, tmp_path: Path) -> None:
    received: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: received.append(number))
    honour_termination()
    assert not is_terminated()
    os.kill(os.getpid(), signal.SIGTERM)
    assert is_terminated()
    with pytest.raises(StoppedError, match="step 1"):
        _trainer(LocalSession(tmp_path)).run()
    assert not received
    os.kill(os.getpid(), signal.SIGTERM)
    assert received == [signal.SIGTERM]
    honour_termination()  # a process that goes on starts with a clean slate
    assert not is_terminated()
