from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from objectaware.studies.sweep_config import SweepConfig
from tiny_sweep import sweep_fields

ASHA = {"stage": "network", "metric": "loss", "mode": "min"}
RANDOM: dict[str, Any] = {"search": "random", "num_samples": 3}


def test_a_list_is_a_grid_and_a_name_is_its_path() -> None:
    config = SweepConfig.model_validate(sweep_fields(parameters={"network.seed": [1, 2]}))
    assert config.parameters["network.seed"].paths == ("network.seed",)
    assert config.parameters["network.seed"].grid == (1, 2)


def test_the_metric_is_a_column_once() -> None:
    assert SweepConfig.model_validate(sweep_fields()).all_columns() == {"accuracy": "linear.accuracies.val"}
    without = SweepConfig.model_validate(sweep_fields(columns={"penalty": "linear.penalty"}))
    assert list(without.all_columns()) == ["linear.accuracies.val", "penalty"]


def test_a_configuration_is_read_back_from_its_dump() -> None:
    config = SweepConfig.model_validate(sweep_fields(scheduler=ASHA, seeds=[0, 1]))
    assert SweepConfig.model_validate(config.model_dump(mode="json")) == config


def _stages(**fields: Any) -> dict[str, Any]:
    stages = sweep_fields()["stages"]
    return {"stages": {**stages, "linear": {**stages["linear"], "fields": fields}}}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (_stages(checkpoint={"from": "linear"}), "not an earlier stage"),
        (_stages(tests={"val": {"from": "nothing"}}), r"stages.linear.tests.val is taken from 'nothing'"),
        ({"parameters": {"masks.seed": [1]}}, "not a field of a stage"),
        ({"parameters": {"linear": [1]}}, "not a field of a stage"),
        ({"parameters": {"linear.seed": {"grid": [1], "choice": [1]}}}, "give one of"),
        ({"parameters": {"linear.seed": {}}}, "not none"),
        ({"parameters": {"linear.seed": {"uniform": [1, 1]}}, **RANDOM}, "not below"),
        ({"parameters": {"linear.seed": {"loguniform": [0, 1]}}, **RANDOM}, "greater than 0"),
        ({"parameters": {"linear.seed": []}}, "at least 1"),
        ({"parameters": {"linear.seed": {"choice": [1]}}}, "takes a grid"),
        (RANDOM, "takes choice, uniform or loguniform"),
        ({"search": "random"}, "num_samples is missing"),
        ({"num_samples": 3}, "num_samples has no meaning"),
        ({"seeds": [1, 1]}, "a seed twice"),
        (
            {"parameters": {"linear.seed": {"choice": [1]}}, **RANDOM, "search": "optuna", "seeds": [0, 1]},
            "optuna searches with one seed",
        ),
        ({"metric": "accuracy"}, "write STAGE.value"),
        ({"columns": {"x": "masks.miou"}}, "columns.x"),
        ({"scheduler": {**ASHA, "stage": "linear"}}, "is not a pretraining"),
        ({"plot": "accuracy"}, "is not a parameter"),
        ({"paper": [{"table": "loc-iter", "rows": ["t"], "columns": {"miou": "CUB"}}]}, "t, miou is neither"),
        ({"name": "x", "schedule": "asha"}, "Extra inputs"),
    ],
)
def test_what_would_fail_later_or_be_ignored_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        SweepConfig.model_validate(sweep_fields(**changes))
