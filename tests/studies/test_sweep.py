"""Sweeps on a real Ray. A training costs a quarter of a minute: two sweeps, each asked several things."""

from __future__ import annotations

import re
import time
from collections import Counter
from pathlib import Path

import pytest
from mlflow.entities import Run

from actors import placement_groups
from contexts import make_context
from objectaware.data.scenes import build_scenes
from objectaware.errors import InputError
from objectaware.stages.runner import Context
from objectaware.studies.sweep import SweepResult, run_sweep
from objectaware.studies.sweep_config import SweepConfig
from tiny_sweep import sweep_fields

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("scenes")
    build_scenes(root, variant="single-object", num_train=144, num_val=45, image_size=48, seed=0)
    return root


def _runs(context: Context) -> list[Run]:
    store = context.services.tracking
    return list(store.server.client.search_runs([store.server.experiment_id(store.experiment)]))


def _left_over(before: set[str], seconds: float) -> set[str]:
    """Ray Train removes the groups of a training whose driver is gone a moment after it has noticed."""
    deadline = time.monotonic() + seconds
    while (groups := placement_groups() - before) and time.monotonic() < deadline:
        time.sleep(0.5)
    return groups


@pytest.fixture(scope="module")
def groups_before(ray_session: None) -> set[str]:
    """Those of other tests in the same Ray, asked for before the first sweep."""
    return placement_groups()


@pytest.fixture(scope="module")
def grid(
    groups_before: set[str], scenes: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Context, SweepConfig, SweepResult]:
    """Five trials that share a training, two at once; one of them holds out more images than there are."""
    parameters = {"holdout": {"paths": ["linear.holdout_size"], "grid": [20, 30, 40, 50, 10_000]}}
    fields = sweep_fields(scenes, parameters=parameters, execution={"max_concurrent": 2})
    config = SweepConfig.model_validate(fields)
    context = make_context(tmp_path_factory.mktemp("runs"))
    return context, config, run_sweep(context, config)


Grid = tuple[Context, SweepConfig, SweepResult]


def test_a_failing_trial_is_kept_with_its_error_and_the_others_finish(grid: Grid) -> None:
    _, _, result = grid
    assert (result.num_run, result.num_failed) == (5, 1)
    assert [row["status"] for row in result.trials] == [*["finished"] * 4, "failed"]
    # One line: the notes of a stage's error hold the process's id, and would differ when the trial runs again.
    assert re.fullmatch(r"InputError: holdout_size = 10000: .*", result.trials[-1]["error"])
    assert all(0 <= row["accuracy"] <= 100 for row in result.trials[:4])
    assert [row["failed"] for row in result.rows] == [0, 0, 0, 0, 1]
    assert result.best is not None
    assert result.best["holdout"] in (20, 30, 40, 50)


def test_a_shared_training_is_computed_once(grid: Grid) -> None:
    context, _, _ = grid
    assert len({name.split("/")[0] for name, _, _ in context.services.storage.child("pretrain").list_files()}) == 1
    assert [run.info.run_name for run in _runs(context)].count("network seed=0") == 1


def test_one_parent_has_a_child_a_trial_with_its_true_status(grid: Grid) -> None:
    context, _, result = grid
    runs = _runs(context)
    parent = next(run for run in runs if run.info.run_id == result.run_id)
    assert parent.info.status == "FINISHED"
    assert {run.data.tags.get("mlflow.parentRunId") for run in runs} == {None, result.run_id}
    trials = [run for run in runs if run.data.tags.get("stage") == "trial"]
    assert Counter(run.info.status for run in trials) == {"FINISHED": 4, "FAILED": 1}
    for run in trials:
        if run.info.status == "FINISHED":
            assert run.data.metrics["accuracy"] == pytest.approx(
                next(row["accuracy"] for row in result.trials if str(row["holdout"]) == run.data.params["holdout"])
            )
            assert (
                run.data.tags["run.network"] == next(r for r in runs if r.info.run_name == "network seed=0").info.run_id
            )
        else:
            assert "holdout_size = 10000" in run.data.tags["error"]
    files = {file.path for file in context.services.tracking.server.client.list_artifacts(str(result.run_id), "tables")}
    assert {"tables/comparison.json", "tables/trials.json"} <= files
    top = {file.path for file in context.services.tracking.server.client.list_artifacts(str(result.run_id))}
    assert "metric.png" in top


def test_started_again_it_runs_only_what_had_failed(grid: Grid) -> None:
    context, config, first = grid
    again = run_sweep(make_context(Path(context.services.storage.uri)), config)
    assert (again.num_run, again.num_failed) == (1, 1)
    assert again.trials == first.trials
    assert again.run_id == first.run_id


def test_no_placement_group_is_left(groups_before: set[str], grid: Grid) -> None:
    assert _left_over(groups_before, 60) == set()


def test_without_room_for_one_trial_the_message_shows_the_sum(ray_session: None, scenes: Path, tmp_path: Path) -> None:
    fields = sweep_fields(scenes)
    fields["stages"]["network"]["fields"]["execution"] = {"num_workers": 16, "num_compute_threads": 100}
    with pytest.raises(InputError, match=r"one trial needs 16 num_workers × 100 = 1600 CPUs, the cluster has"):
        run_sweep(make_context(tmp_path), SweepConfig.model_validate(fields))


def test_trials_that_are_behind_are_stopped_and_leave_nothing_open(
    groups_before: set[str], scenes: Path, tmp_path: Path
) -> None:
    fields = sweep_fields(
        scenes,
        # One after another, by a metric that goes by the configuration alone: the second is behind at its first epoch.
        parameters={"rate": {"paths": ["network.optimizer.base_learning_rate"], "grid": [0.5, 0.05]}},
        scheduler={"stage": "network", "metric": "learning_rate", "reduction_factor": 2},
        metric="network.loss",
        columns={"loss": "network.loss"},
        execution={"max_concurrent": 1},
    )
    del fields["stages"]["linear"]
    fields["stages"]["network"]["fields"] |= {"num_epochs": 4}
    context = make_context(tmp_path)
    config = SweepConfig.model_validate(fields)
    result = run_sweep(context, config)
    assert [row["status"] for row in result.trials] == ["finished", "stopped"]
    runs = _runs(context)
    assert {run.info.status for run in runs} == {"FINISHED", "KILLED"}
    (stopped,) = [run for run in runs if run.data.tags.get("trial_status") == "stopped"]
    assert stopped.info.status == "KILLED"
    assert "loss" in stopped.data.metrics
    # The trial and its training.
    assert sum(run.info.status == "KILLED" for run in runs) == 2
    assert _left_over(groups_before, 60) == set()
    # What was stopped is not run again.
    assert run_sweep(make_context(tmp_path), config).num_run == 0
