from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from objectaware.config import PretrainConfig
from objectaware.errors import InputError
from objectaware.methods.byol import BYOLConfig
from objectaware.methods.moco import MoCoConfig
from objectaware.stages.linear import LinearConfig
from objectaware.studies.sweep_config import (
    SweepConfig,
    Trial,
    check_trial,
    parameters_of,
    planned_trials,
    stage_config,
    value_of,
)
from tiny_sweep import sweep_fields

TWO = {
    "backbone": {"paths": ["network.backbone"], "grid": ["resnet18", "resnet50"]},
    "holdout": {"paths": ["linear.holdout_size"], "grid": [20, 30]},
}
DRAWN = {
    "network.optimizer.base_learning_rate": {"loguniform": [1e-3, 1e-1]},
    "network.min_crop_scale": {"uniform": [0.1, 0.4]},
    "network.method": {"choice": ["moco", "byol"]},
}


def _config(**changes: Any) -> SweepConfig:
    return SweepConfig.model_validate(sweep_fields(**changes))


def test_a_grid_is_every_combination_for_every_seed() -> None:
    trials = planned_trials(_config(parameters=TWO, seeds=[0, 7]))
    found = [(trial.seed, trial.values["backbone"], trial.values["holdout"]) for trial in trials]
    networks = ("resnet18", "resnet50")
    assert found == [(seed, network, size) for seed in (0, 7) for network in networks for size in (20, 30)]
    assert len({trial.key for trial in trials}) == 8


def test_one_at_a_time_leaves_the_others_as_the_fields_say_and_has_nothing_twice() -> None:
    grids = {"network.batch_size": [16, 32], "network.method.queue_size": [64, 128, 256]}
    points = [trial.values for trial in planned_trials(_config(parameters=grids, search="one_at_a_time"))]
    assert [tuple(point.values()) for point in points] == [(16, 64), (32, 64), (32, 128), (32, 256)]


def test_one_at_a_time_needs_a_value_for_when_others_are_varied() -> None:
    grids = {"network.batch_size": [16, 32], "network.method.temperature": [0.1, 0.2]}
    with pytest.raises(InputError, match=r"Write network\.method\.temperature among the fields"):
        planned_trials(_config(parameters=grids, search="one_at_a_time"))


@given(search_seed=st.integers(0, 100), number=st.integers(1, 30))
def test_random_values_lie_within_their_limits_and_go_by_the_seed(search_seed: int, number: int) -> None:
    drawn = {"search": "random", "num_samples": number, "search_seed": search_seed, "parameters": DRAWN}
    trials = planned_trials(_config(**drawn))
    assert trials == planned_trials(_config(**drawn))
    assert len(trials) == number
    for trial in trials:
        rate, scale, method = trial.values.values()
        assert 1e-3 <= rate <= 1e-1
        assert 0.1 <= scale <= 0.4
        assert method in ("moco", "byol")
    # More samples begin with the same ones, so that a search can be widened.
    assert planned_trials(_config(**{**drawn, "num_samples": number + 5}))[:number] == trials


def test_a_logarithm_is_drawn_evenly() -> None:
    trials = planned_trials(_config(search="random", num_samples=400, parameters=DRAWN))
    below = sum(trial.values["network.optimizer.base_learning_rate"] < 1e-2 for trial in trials)
    assert 160 < below < 240


def test_a_stage_gets_the_trials_values_seed_and_what_was_computed_before() -> None:
    config = _config(parameters=TWO)
    trial = Trial({"backbone": "resnet50", "holdout": 30}, 5)
    network = stage_config(config, trial, "network", {})
    assert isinstance(network, PretrainConfig)
    assert (network.backbone, network.seed, network.batch_size) == ("resnet50", 5, 32)
    linear = stage_config(config, trial, "linear", {"network": {"checkpoint": "/runs/x/epoch_0000"}})
    assert isinstance(linear, LinearConfig)
    assert (linear.checkpoint, linear.holdout_size, linear.seed) == ("/runs/x/epoch_0000", 30, 5)
    assert config.stages["network"].fields["batch_size"] == 32


def test_any_address_among_the_values_of_an_earlier_stage_can_be_taken() -> None:
    fields = sweep_fields()
    fields["stages"]["linear"]["fields"]["checkpoint"] = {"from": "network.kept.last"}
    config = SweepConfig.model_validate(fields)
    outcomes = {"network": {"checkpoint": "/c", "kept": {"last": "/kept"}}}
    linear = stage_config(config, Trial({"holdout": 20}, 0), "linear", outcomes)
    assert isinstance(linear, LinearConfig)
    assert linear.checkpoint == "/kept"


def test_a_value_that_a_stage_does_not_take_is_refused_with_the_trial() -> None:
    config = _config(parameters={"network.method.queue_size": [64, 0]})
    good, bad = planned_trials(config)
    assert list(check_trial(config, good)) == ["network", "linear"]
    with pytest.raises(
        InputError, match=r"stages\.network\.method\.queue_size = 0.*network\.method\.queue_size=0 seed=0"
    ):
        check_trial(config, bad)


def test_another_method_drops_the_fields_of_the_one_before_whichever_is_set_first() -> None:
    grids = {
        "m": {"paths": ["network.method.momentum"], "grid": [0.5]},
        "network.method": ["moco", "byol", {"name": "byol", "momentum_schedule": "cosine"}],
    }
    config = _config(parameters=grids)
    methods = [check_trial(config, trial)["network"].method.model_dump() for trial in planned_trials(config)]
    assert methods[0] == {**MoCoConfig(queue_size=64, momentum=0.5).model_dump()}
    assert methods[1] == BYOLConfig(momentum=0.5).model_dump()
    assert methods[2] == BYOLConfig(momentum=0.5, momentum_schedule="cosine").model_dump()


def test_one_at_a_time_takes_the_method_that_the_fields_name() -> None:
    fields = sweep_fields(parameters={"network.method": ["byol", "moco"], "network.seed": [0]}, search="one_at_a_time")
    for method in ("byol", {"name": "byol"}):
        fields["stages"]["network"]["fields"].update(method=method, seed=0)
        points = [trial.values["network.method"] for trial in planned_trials(SweepConfig.model_validate(fields))]
        assert points == ["byol", "moco"]


def test_a_stage_depends_on_its_own_parameters_and_those_of_what_it_takes_from() -> None:
    config = _config(parameters=TWO)
    assert parameters_of(config, "network") == ["backbone"]
    assert parameters_of(config, "linear") == ["backbone", "holdout"]


def test_a_missing_value_is_named_with_those_that_there_are() -> None:
    with pytest.raises(InputError, match=r"no 'test'.*Its values are: val, original"):
        value_of({"linear": {"accuracies": {"val": 1.0, "original": 2.0}}}, "linear.accuracies.test")
