"""The sweeps of the repository, pinned to the paper."""

from __future__ import annotations

from pathlib import Path

import pytest

from objectaware.commands.stages import read_sweep
from objectaware.config import PRESETS, LocalizeConfig, PretrainConfig
from objectaware.data.published import published_data
from objectaware.paper import load_table
from objectaware.paper.plan import contracam
from objectaware.recipes import read_recipe
from objectaware.stages.localization import LocalizationConfig
from objectaware.studies.sweep import paper_numbers
from objectaware.studies.sweep_config import SweepConfig, check_sweep, planned_trials

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
        assert (baseline.policy.name, debiased.policy.name) == ("none", "background_mixup")
        momentum = {"moco": 0.999, "byol": 0.996}[baseline.method.name]
        assert baseline.method.momentum == debiased.method.momentum == momentum
        assert isinstance(masks, LocalizeConfig)
        preset = LocalizeConfig.model_validate({**PRESETS["mixup"], "data": masks.data, "checkpoint": masks.checkpoint})
        assert masks == preset


ITERATIONS = {
    "iterations": "ImageNet-9",
    "iterations_cub": "CUB",
    "iterations_flowers": "Flowers",
    "iterations_coco": "COCO",
}


def test_each_column_of_the_tables_of_iterations_and_negatives_has_a_sweep() -> None:
    for label in ("loc-iter", "loc-batch"):
        assert {name for (name,) in load_table(label).columns} == set(ITERATIONS.values())
    assert {path.stem for path in SWEEPS.glob("iterations*.yaml")} == set(ITERATIONS)


def _column(label: str, name: str) -> dict[str, float]:
    table = load_table(label)
    place = table.columns.index((name,))
    return {row.name[0]: cell.mean for row in table.rows if (cell := row.cells[place]) is not None}


@pytest.mark.parametrize("name", ITERATIONS)
def test_iterations_are_a_column_of_the_papers_two_tables_with_one_training(name: str) -> None:
    config = _load(name)
    checked = check_sweep(config)
    assert len({stages["network"].model_dump_json() for stages in checked}) == 1
    trials = [dict(trial.values) for trial in planned_trials(config)]
    iterations, negatives = _column("loc-iter", ITERATIONS[name]), _column("loc-batch", ITERATIONS[name])
    assert [each["num_iterations"] for each in trials if each["group_size"] == 64] == [*map(int, iterations)]
    assert {each["group_size"] for each in trials if each["num_iterations"] == 10} == {*map(int, negatives)}
    assert len(trials) == 8
    for each in trials:
        in_table = (
            iterations[str(each["num_iterations"])] if each["group_size"] == 64 else negatives[str(each["group_size"])]
        )
        assert paper_numbers(config, each) == {"miou": in_table}


@pytest.mark.parametrize("name", ITERATIONS)
def test_iterations_are_found_and_scored_as_the_paper_does(name: str) -> None:
    for trial, stages in zip(planned_trials(_load(name)), check_sweep(_load(name)), strict=True):
        network, masks, scores = stages["network"], stages["masks"], stages["scores"]
        assert isinstance(network, PretrainConfig)
        assert isinstance(masks, LocalizeConfig)
        assert isinstance(scores, LocalizationConfig)
        # As the study of the tables does it, whose plan has the data set's published name.
        planned = contracam(ITERATIONS[name])
        recipe = read_recipe(SWEEPS.parent / "jobs" / "recipes" / f"{planned.fields['checkpoint'].recipe}.yaml")
        assert network == PretrainConfig.model_validate(recipe)
        images = planned.fields["data"]
        data = published_data(images.name, images.part, "data")
        assert masks.data == scores.data == data
        localizer = {**planned.fields["localizer"], "num_iterations": trial.values["num_iterations"]}
        fields = {**planned.fields, "data": data, "checkpoint": masks.checkpoint, "localizer": localizer}
        fields["group_size"] = trial.values["group_size"]
        assert masks == LocalizeConfig.model_validate(fields)


def test_crop_scale_goes_from_the_papers_value_past_mocos() -> None:
    scales = [trial.values["min_crop_scale"] for trial in planned_trials(_load("crop_scale"))]
    assert scales == sorted(scales)
    assert (scales[0], scales[-1]) == (0.08, 0.4)
    assert 0.2 in scales
