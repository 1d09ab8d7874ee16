import math
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from objectaware.config import ViewConfig
from objectaware.methods.checkpoint import load_encoder, load_state
from objectaware.methods.moco import MoCo
from objectaware.training.loop import TrainingDivergedError
from objectaware.training.pretraining import Trainer, TrainingCollapsedError
from objectaware.training.session import LocalSession, StoppedError
from training_fixtures import Pictures, make_method, make_trainer


def test_each_worker_gets_its_own_policys_state_back(trainer_in: Callable[..., Trainer], tmp_path: Path) -> None:
    """Rank 0 alone writes the checkpoint; what the others' next batches depend on has to be in it, too."""
    trainer_in("run", num_epochs=1, policy="official_background").run()
    path = tmp_path / "run" / "checkpoint" / "state.pt"
    state = torch.load(path, weights_only=True)
    of_two = {name: torch.cat([values, values + 1]) for name, values in state["policy"].items()}
    torch.save({**state, "policy": of_two}, path)
    path.with_suffix(".sha256").unlink()
    for rank in range(2):
        session = LocalSession(tmp_path / "run")
        session.rank = rank
        resumed = make_trainer(make_method("moco"), session, policy="official_background")
        for name, value in resumed.policy.state().items():
            assert torch.equal(value, of_two[name][rank])


class ThreeViews(MoCo):
    """A method with a third, smaller view, whose features are to agree with the key, too."""

    def forward(self, views: Sequence[torch.Tensor], **options: object) -> torch.Tensor:
        assert [view.shape[-1] for view in views] == [32, 32, 16]
        small = F.normalize(self.projector(self.backbone(views[2])), dim=1)
        return super().forward(views[:2], **options) - (small * self.embeddings[1]).sum(dim=1).mean()


def test_a_method_of_three_views_of_two_sizes_needs_no_other_change(tmp_path: Path) -> None:
    """Loader, colours, parts of a batch and loop take the views as they are."""
    method = ThreeViews("resnet10_narrow", queue_size=48)
    views = [ViewConfig(32, 0.2), ViewConfig(32, 0.2), ViewConfig(16, 0.05, 0.2)]
    session = LocalSession(tmp_path)
    make_trainer(method, session, views=views, optimization={"num_accumulation_steps": 2}).run()
    assert [math.isfinite(epoch["loss"]) for epoch in session.history] == [True, True]


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
        "alignment",
        "uniformity",
        "feature_std",
    } <= session.history[0].keys()
    assert 0.05 < session.history[0]["feature_std"] < 1.2


def test_metrics_by_step_are_means_since_the_last_record(trainer_in: Callable[..., Trainer]) -> None:
    records = {}
    for interval in (1, 3):
        trainer = trainer_in(f"every {interval}")
        trainer.record_every = interval
        trainer.run()
        session = trainer._session
        assert isinstance(session, LocalSession)
        records[interval] = session.records
    losses = [record["loss"] for record in records[1]]
    assert [record["step"] for record in records[1]] == list(range(1, len(losses) + 1))
    assert [record["step"] for record in records[3]] == list(range(3, len(losses) + 1, 3))
    for record in records[3]:
        step = int(record["step"])
        assert record["loss"] == pytest.approx(sum(losses[step - 3 : step]) / 3)
        assert {"learning_rate", "images_per_second", "data_wait_share"} <= record.keys()
        assert not record.keys() & {"epoch_seconds", "chance_loss"}


class SomeUnreadable(Pictures):
    """Pictures of which three are stood in for, as far as they were asked about."""

    def is_unreadable(self, index: int) -> bool:
        return index in (3, 17, 21)


def test_unreadable_images_are_counted_once_and_over_restarts(tmp_path: Path) -> None:
    def trainer(session: LocalSession, images: Pictures) -> Trainer:
        return make_trainer(make_method("moco"), session, images=images)

    whole = LocalSession(tmp_path / "whole")
    trainer(whole, SomeUnreadable(32)).run()
    assert [epoch["unreadable_images"] for epoch in whole.history] == [3, 3]

    class StopsInside(LocalSession):
        steps = 0

        def should_stop(self) -> bool:
            self.steps += 1
            return self.steps == 4 + 1  # the first step of the second epoch

    with pytest.raises(StoppedError):
        trainer(StopsInside(tmp_path / "parts"), SomeUnreadable(32)).run()
    resumed = LocalSession(tmp_path / "parts")
    trainer(resumed, Pictures(32)).run()
    assert [epoch["unreadable_images"] for epoch in resumed.history] == [3]


def test_a_loss_that_is_no_number_stops_the_run(trainer_in: Callable[..., Trainer]) -> None:
    trainer = trainer_in("run")
    with torch.no_grad():
        trainer.method.projector[0].weight.fill_(float("nan"))
    with pytest.raises(TrainingDivergedError, match="base_learning_rate"):
        trainer.run()


def test_embeddings_that_are_all_the_same_stop_the_run(trainer_in: Callable[..., Trainer]) -> None:
    """A planted collapse: of the last layer nothing but the bias is left."""
    trainer = trainer_in("run")
    with torch.no_grad():
        weight = trainer.method.projector[3].weight
        weight.zero_()
    weight.requires_grad_(False)
    with pytest.raises(TrainingCollapsedError, match=r"collapsed.*epoch 1 .*feature_std = 0\.0.*base_learning_rate"):
        trainer.run()
    # The run's checkpoints are those from before.
    assert trainer._session.restored() is None


def test_progress_tells_the_chance_level(trainer_in: Callable[..., Trainer]) -> None:
    trainer = trainer_in("run", num_epochs=1)
    states: list[dict[str, float]] = []
    trainer._session.progress = states.append
    trainer.run()
    assert [state["step"] for state in states] == [1, 2, 3, 4]
    assert states[0]["chance_loss"] == pytest.approx(math.log(49))


def test_checkpoints_of_every_nth_epoch_are_kept(trainer_in: Callable[..., Trainer], tmp_path: Path) -> None:
    kept = tmp_path / "run" / "kept"
    # The interval of the ordinary checkpoints does not matter.
    trainer_in("run", num_epochs=3, keep_every=2, checkpoint_interval=3).run()
    assert [folder.name for folder in kept.iterdir()] == ["epoch_0001"]
    assert load_state(kept / "epoch_0001")["next_epoch"] == 2
    assert load_encoder(kept / "epoch_0001").config["backbone"] == "resnet10_narrow"


def test_the_target_network_moves_once_a_batch(trainer_in: Callable[..., Trainer]) -> None:
    """Two parts of a batch must not move it twice."""
    trainer = trainer_in("run", num_epochs=1, num_pictures=8, optimization={"num_accumulation_steps": 2})
    online = next(trainer.method.backbone.parameters()).detach().clone()
    target = next(trainer.method.target_backbone.parameters())
    with torch.no_grad():
        target.add_(1.0)
    start = target.clone()
    trainer.run()
    torch.testing.assert_close(target, online + 0.999 * (start - online), rtol=0, atol=1e-6)


def test_parts_of_a_batch_add_up_to_its_gradient(trainer_in: Callable[..., Trainer]) -> None:
    """Where batch norm takes its running statistics, a batch in four parts is the batch in one."""
    weights = []
    for num_parts in (1, 4):
        optimization = {"num_accumulation_steps": num_parts}
        trainer = trainer_in(f"{num_parts}", "supervised", num_epochs=1, num_pictures=8, optimization=optimization)
        trainer.method.eval()
        trainer.method.train = lambda: None
        trainer.run()
        weights.append([parameter.detach().clone() for parameter in trainer.method.parameters()])
    for one, other in zip(*weights, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)
