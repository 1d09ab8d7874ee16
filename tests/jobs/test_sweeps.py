"""The sweeps of the repository, pinned to the paper."""

from __future__ import annotations

from pathlib import Path

import pytest

from objectaware.commands.sweep import read_sweep
from objectaware.config import LocalizeConfig, PretrainConfig, localize_setting
from objectaware.config.sweep import SweepConfig
from objectaware.paper import load_table
from objectaware.stages.sweep import check_sweep
from objectaware.stages.sweep_points import planned_trials
from objectaware.stages.sweep_table import paper_numbers

SWEEPS = Path(__file__).parents[2] / "sweeps"


def _load(name: str) -> SweepConfig:
    return SweepConfig.model_validate(read_sweep(SWEEPS / f"{name}.yaml", []))


@pytest.mark.parametrize("name", sorted(path.stem for path in SWEEPS.glob("*.yaml")))
def test_every_trial_of_a_sweep_is_valid(name: str) -> None:
    config = _load(name)
    assert config.name == name
    assert len(check_sweep(config)) == len(planned_trials(config))


def test_p_mix_is_the_papers_table() -> None:
    config = _load("p_mix")
    trials = planned_trials(config)
    assert {trial.values["p_mix"] for trial in trials} == {0, 0.2, 0.3, 0.4, 0.5}
    table = load_table("bg-probability")
    assert len(trials) == len(table.rows) == 10
    names = {"moco": "MoCov2", "byol": "BYOL"}
    for trial in trials:
        (row,) = [row for row in table.rows if row.name == (names[trial.values["method"]], str(trial.values["p_mix"]))]
        assert list(paper_numbers(config, trial.values).values()) == [cell.mean for cell in row.cells if cell]
    for stages in check_sweep(config):
        baseline, masks, debiased = stages["baseline"], stages["masks"], stages["debiased"]
        assert isinstance(baseline, PretrainConfig)
        assert isinstance(debiased, PretrainConfig)
        assert baseline.method == debiased.method
        assert (baseline.policy, debiased.policy) == ("none", "background_mixup")
        momentum = {"moco": 0.999, "byol": 0.996}[baseline.method]
        assert baseline.momentum == debiased.momentum == momentum
        assert isinstance(masks, LocalizeConfig)
        setting = localize_setting("mixup", "contracam")
        assert {name: getattr(masks, name) for name in setting} == setting


def test_iterations_are_the_papers_two_tables_with_one_training() -> None:
    config = _load("iterations")
    checked = check_sweep(config)
    assert len({stages["network"].model_dump_json() for stages in checked}) == 1
    values = [dict(trial.values) for trial in planned_trials(config)]
    assert [each["num_iterations"] for each in values if each["group_size"] == 64] == [1, 2, 3, 5, 10, 20]
    assert [each["group_size"] for each in values if each["num_iterations"] == 10] == [64, 4, 16]
    assert len(values) == 8
    expected = [0.090, 0.220, 0.328, 0.417, 0.427, 0.419, 0.428, 0.429]
    assert [paper_numbers(config, each)["miou"] for each in values] == expected
    masks = checked[0]["masks"]
    assert isinstance(masks, LocalizeConfig)
    setting = localize_setting("crop", "contracam")
    assert {name: getattr(masks, name) for name in setting if name != "num_iterations"} == {
        name: value for name, value in setting.items() if name != "num_iterations"
    }


def test_crop_scale_goes_from_the_papers_value_past_mocos() -> None:
    scales = [trial.values["min_crop_scale"] for trial in planned_trials(_load("crop_scale"))]
    assert scales == sorted(scales)
    assert (scales[0], scales[-1]) == (0.08, 0.4)
    assert 0.2 in scales
