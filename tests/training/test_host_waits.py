"""A training step gives a GPU its work without waiting for it."""

from __future__ import annotations

import math
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from kernels import KernelCount
from objectaware.augment.color import NUM_COLOR_DRAWS, ColorDistribution, sample_colors
from objectaware.config.variants import OptimizerConfig
from objectaware.training import loop
from objectaware.training.loop import Place, TrainingDivergedError
from objectaware.training.optimizers.lars import LARSConfig
from objectaware.training.optimizers.sgd import SGDConfig
from objectaware.training.pretraining import Trainer
from objectaware.training.session import LocalSession, StoppedError
from objectaware.training.views import ViewBatch, prepared_views
from training_fixtures import make_method, make_trainer

META = torch.device("meta")


def _batch(size: int = 8) -> ViewBatch:
    random = np.random.default_rng(0)
    colors = sample_colors(random.random((size, NUM_COLOR_DRAWS)), ColorDistribution())
    return ViewBatch(
        views=(torch.zeros(size, 3, 32, 32, dtype=torch.uint8),) * 2,
        colors=(colors, colors),
        mix_draws=torch.from_numpy(random.random((size, 4))),
        masks=torch.from_numpy(random.integers(0, 256, (size, 1, 32, 32), dtype=np.uint8)),
        unreadable=np.zeros(size, dtype=np.bool_),
        indices=np.arange(size),
    )


@pytest.mark.parametrize(
    ("method", "policy", "optimizer"),
    [
        ("moco", "none", SGDConfig),
        ("moco", "mixup", SGDConfig),
        ("moco", "cutmix", SGDConfig),
        ("moco", "official_background", SGDConfig),
        ("shuffled", "none", SGDConfig),
        ("byol", "none", LARSConfig),
        ("simsiam", "none", SGDConfig),
        ("supervised", "none", SGDConfig),
    ],
)
def test_a_step_waits_for_nothing_on_the_device(
    method: str, policy: str, optimizer: type[OptimizerConfig], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: nullcontext())  # it knows no device `meta`
    session = LocalSession(tmp_path, META)
    trainer = make_trainer(make_method(method), session, policy=policy, optimization={"optimizer": optimizer})
    mean, std = trainer.method.backbone.mean, trainer.method.backbone.std
    with KernelCount() as count:
        for step, views in enumerate(prepared_views(iter([_batch()] * 2), META, mean, std)):
            values = trainer.step(Place(0, step, 4), views)
    assert all(value.is_meta and value.dim() == 0 for value in values.values())
    assert "loss" in values
    assert count.kernels.total() > 100


NUM_STEPS = 400


def _losses() -> list[float]:
    return np.random.default_rng(0).random(NUM_STEPS).astype(np.float32).tolist()


class Clock:
    """A clock that a test moves on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seconds = 0.0
        clock = SimpleNamespace(perf_counter=lambda: 1 + self.seconds, monotonic=lambda: self.seconds)
        monkeypatch.setattr(loop, "time", clock)


def _timed(session: LocalSession, clock: Clock, losses: list[float], *, seconds: float, num_epochs: int = 1) -> Trainer:
    """Make a trainer whose steps take some time and have given losses, and nothing else."""
    trainer = make_trainer(make_method("moco"), session, num_epochs=num_epochs, checkpoint_minutes=None)
    trainer.reads_each_step, trainer.record_every = False, None
    trainer.batches = lambda epoch, first: (NUM_STEPS, (None for _ in range(first, NUM_STEPS)))  # type: ignore[method-assign, misc, assignment, return-value]

    def step(place: Place, batch: object) -> dict[str, torch.Tensor]:
        clock.seconds += seconds
        return {"loss": torch.tensor(losses[place.step]), "feature_std": torch.tensor(1.0, dtype=torch.float64)}

    trainer.step = step  # type: ignore[method-assign, assignment]
    return trainer


def _count_reads(trainer: Trainer) -> list[int]:
    """Return a list that grows by the number of steps of each read."""
    numbers: list[int] = []
    read = trainer._read
    trainer._read = lambda totals: numbers.append(len(trainer._unread)) or read(totals)  # type: ignore[func-returns-value, method-assign]
    return numbers


@pytest.mark.parametrize(("seconds", "reads"), [(0.001, [1, *[50] * 7, 49]), (0.5, [1, *[10] * 39, 9]), (9, [1] * 400)])
def test_the_host_reads_every_50_steps_or_5_seconds(
    seconds: float, reads: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = _timed(LocalSession(tmp_path), Clock(monkeypatch), _losses(), seconds=seconds)
    numbers = _count_reads(trainer)
    trainer.run()
    assert numbers == reads


def test_what_is_read_late_is_summed_as_if_it_had_been_read_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions = {reads_each_step: LocalSession(tmp_path / str(reads_each_step)) for reads_each_step in (True, False)}
    for reads_each_step, session in sessions.items():
        trainer = _timed(session, Clock(monkeypatch), _losses(), seconds=0.001)
        trainer.reads_each_step, trainer.record_every = reads_each_step, 7
        trainer.run()
    names = ("loss", "feature_std", "learning_rate")
    for history in (lambda session: session.history, lambda session: session.records):
        one, other = ([[row[name] for name in names] for row in history(sessions[read])] for read in (True, False))
        assert one == other
    assert [record["step"] for record in sessions[False].records] == list(range(7, NUM_STEPS, 7))
    assert sessions[False].history[0]["loss"] == sum(_losses()) / NUM_STEPS


def test_a_wish_to_end_is_kept_until_the_next_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Asked(LocalSession):
        steps = 0

        def should_stop(self) -> bool:
            self.steps += 1
            return self.steps == 120

    session = Asked(tmp_path)
    with pytest.raises(StoppedError, match="step 151"):
        _timed(session, Clock(monkeypatch), _losses(), seconds=0.001).run()
    resumed = _timed(LocalSession(tmp_path), Clock(monkeypatch), _losses(), seconds=0.001)
    assert resumed._begun is not None
    assert resumed._begun.num_iterations == 151


def test_the_first_loss_that_is_not_finite_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    losses = _losses()
    losses[69], losses[80] = math.inf, math.nan
    with pytest.raises(TrainingDivergedError, match="the loss is inf at epoch 0, step 70"):
        _timed(LocalSession(tmp_path), Clock(monkeypatch), losses, seconds=0.001).run()
