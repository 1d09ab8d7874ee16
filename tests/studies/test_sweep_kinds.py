"""Every kind of stage in a sweep: its configuration, what it takes of earlier stages, what later ones take of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from contexts import next_command
from objectaware.config import Model
from objectaware.data.scenes import build_scenes
from objectaware.distributed.room import Capacity
from objectaware.errors import InputError
from objectaware.evaluate.linear import VARIANTS
from objectaware.stages.background import BackgroundConfig
from objectaware.stages.identity import STAND_IN, data_sets
from objectaware.stages.linear import LinearConfig
from objectaware.stages.localizers import LocalizersConfig
from objectaware.stages.registry import all_stages, stage_named, stage_needs
from objectaware.stages.runner import Context
from objectaware.studies import sweep
from objectaware.studies.sweep_config import SweepConfig, Trial, check_trial, stage_config, stage_parts
from stages_in_process import work_in_process
from tiny_sweep import NETWORK, scenes_data, sweep_fields

COCO = {"root": "coco", "layout": "coco", "split": "val"}
LABELLED = {"checkpoint": {"from": "network"}, "train": scenes_data("scenes", "train")}
TESTS = {"fog-1": scenes_data("scenes", "val"), "fog-2": scenes_data("scenes", "val")}
PAIR = {"checkpoint": {"from": "network"}, "data": {**COCO, "layout": "coco-crop"}}
FIELDS: dict[str, dict[str, Any]] = {
    "pretrain": {
        **NETWORK,
        "data": scenes_data("scenes", "train"),
        "policy": {"name": "object_crop", "masks": {"from": "masks"}},
    },
    "localize": {"data": COCO, "checkpoint": {"from": "network"}},
    "localization": {"data": COCO, "masks": {"found": {"from": "masks"}}},
    "localizers": {
        "data": COCO,
        "checkpoint": {"from": "network"},
        "localizers": {"ours": {}, "cam": {"localizer": "classifier_cam"}},
        "linear": {"train": scenes_data("scenes", "train"), "tests": {}},
        "masks": {"others": {"from": "masks"}},
    },
    "linear": {**LABELLED, "tests": TESTS},
    "shift": {**LABELLED, "tests": TESTS},
    "background": {"root": "challenge", "checkpoint": {"from": "network"}},
    "knn": {**LABELLED, "tests": TESTS},
    "features": {"checkpoint": {"from": "network"}, "data": scenes_data("scenes", "val")},
    "few_shot": PAIR,
    "class_distance": PAIR,
    "detection": {
        "checkpoint": {"from": "network"},
        "data": {**COCO, "split": "train"},
        "test": COCO,
        "execution": {"use_gpu": False, "num_workers": 2, "num_compute_threads": 3},
    },
}
TRIAL = Trial({"seeds": 1}, 7)


def _config(kind: str, **fields: Any) -> SweepConfig:
    """A training, a localization with it, and then a stage of one kind."""
    stages = {
        "network": {"stage": "pretrain", "fields": {**NETWORK, "data": scenes_data("scenes", "train")}},
        "masks": {"stage": "localize", "fields": {"data": COCO, "checkpoint": {"from": "network"}}},
        "last": {"stage": kind, "fields": {**FIELDS[kind], **fields}},
    }
    parameters = {"seeds": {"paths": ["network.seed"], "grid": [1]}}
    return SweepConfig.model_validate(
        {"name": "kinds", "stages": stages, "parameters": parameters, "metric": "last.value"}
    )


def test_the_table_has_every_kind_that_a_sweep_may_name() -> None:
    assert set(all_stages()) == set(FIELDS)


@pytest.mark.parametrize("kind", FIELDS)
def test_a_kind_has_its_configuration_and_gets_what_was_computed_before_it(kind: str) -> None:
    config = _config(kind)
    checked = check_trial(config, TRIAL)["last"]
    assert type(checked) is stage_named(kind).config
    outcomes = {"network": {"checkpoint": "/runs/network"}, "masks": {"masks": "/runs/masks"}}
    made = stage_config(config, TRIAL, "last", outcomes)
    expected = {"checkpoint": {"/runs/network"}, "masks": {"/runs/masks"}}
    for name in ("checkpoint", "masks"):
        if name in FIELDS[kind]:
            assert _addresses(made, name) == expected[name]
            assert _addresses(checked, name) == {STAND_IN}
    assert not hasattr(made, "seed") or getattr(made, "seed") == 7  # noqa: B009 - not all models have one


def _addresses(config: Model, name: str) -> set[str]:
    value = getattr(config, name)
    return set(value.values()) if isinstance(value, dict) else {value}


@pytest.mark.parametrize("kind", FIELDS)
def test_a_kind_refuses_a_field_that_it_does_not_have(kind: str) -> None:
    with pytest.raises(InputError, match=r"stages\.last\.number_of_epochs = 1"):
        check_trial(_config(kind, number_of_epochs=1), TRIAL)


def test_a_kind_that_no_command_runs_is_refused() -> None:
    with pytest.raises(
        ValidationError, match="losses is not a kind of stage; choose one of background, class_distance"
    ):
        SweepConfig.model_validate(sweep_fields(stages={"network": {"stage": "losses"}}))


@pytest.mark.parametrize("kind", FIELDS)
def test_what_later_stages_take_of_a_kind(kind: str) -> None:
    outcome = {"checkpoint": "/c", "masks": "/m", "classifier": "/k"}
    taken = {
        "pretrain": "/c",
        "detection": "/c",
        "localize": "/m",
        **dict.fromkeys(("linear", "shift", "background"), "/k"),
    }
    fields = {"stage": "localization", "fields": {"data": COCO, "masks": {"found": {"from": "last"}}}}
    dumped = _config(kind).model_dump()
    config = SweepConfig.model_validate({**dumped, "stages": {**dumped["stages"], "after": fields}})
    if kind in taken:
        after = stage_config(config, TRIAL, "after", {"last": outcome})
        assert _addresses(after, "masks") == {taken[kind]}
    else:
        with pytest.raises(InputError, match=rf"from = last: is of the kind {kind}.*\{{from: last\.VALUE\}}"):
            check_trial(config, TRIAL)


def _needs(kind: str, *, has_gpus: bool) -> list[list[tuple[str, int, float, float]]]:
    config = _config(kind)
    parts = stage_parts(config, [{"last": check_trial(config, TRIAL)["last"]}])
    needs = stage_needs(parts, has_gpus=(has_gpus,))
    return [[(need.name, need.count, need.num_cpus, need.num_gpus) for need in stage] for stage in needs]


def test_room_is_counted_for_every_process_of_a_kind() -> None:
    # Its own configuration says that it computes on CPUs, whatever there is.
    assert _needs("detection", has_gpus=True) == [[("num_workers", 2, 3, 0)]]
    assert _needs("knn", has_gpus=True) == [[("task", 1, 1, 1)]]
    assert _needs("background", has_gpus=False) == [[("task", 1, 1, 0)]]
    assert _needs("localization", has_gpus=True) == [[("task", 1, 1, 0)]]
    ours, cam, linear, scoring = _needs("localizers", has_gpus=True)
    assert ours == cam
    assert [need[0] for need in ours] == ["readers", "num_cam_actors", "num_crf_actors"]
    assert (linear, scoring) == ([("task", 1, 1, 1)], [("task", 1, 1, 0)])


@pytest.mark.parametrize(("kind", "roots"), [("localizers", ["coco", "scenes"]), ("background", ["challenge"])])
def test_data_sets_inside_of_a_kind_are_part_of_the_sweeps_identity(kind: str, roots: list[str]) -> None:
    config = _config(kind)
    checked = check_trial(config, TRIAL)["last"]
    found = {Path(data.root).name for data in data_sets(stage_parts(config, [{"last": checked}]))}
    assert found == set(roots)


def test_a_seed_reaches_localizers_and_their_classifier() -> None:
    made = stage_config(_config("localizers"), TRIAL, "last", {})
    assert isinstance(made, LocalizersConfig)
    assert made.localize_config("ours", classifier="/k").seed == made.linear_config().seed == 7


def _one_after_another(
    job: Callable[..., float],
    search: Sequence[Mapping[str, Any]],
    events: Any,
    *,
    max_concurrent: Callable[[], int],
    halving: None,
) -> None:
    """Trials in this process, in place of Ray Tune's."""
    for trial in search:
        events.started(trial)
        job(trial, lambda epoch, metrics: None)
        events.ended(trial, "finished", None)


@pytest.fixture
def added(tiny_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SweepConfig:
    """A sweep of two trials over neighbours, which share an evaluation under shift, in this process."""
    work_in_process(monkeypatch)
    monkeypatch.setattr(sweep, "run_trials", _one_after_another)
    monkeypatch.setattr(sweep, "require_room_for_one", lambda needs: None)
    monkeypatch.setattr(sweep, "current_capacity", lambda: Capacity([], {}))
    build_scenes(tmp_path / "scenes", variant="single-object", num_train=27, num_val=9, image_size=32, seed=0)
    train = scenes_data(tmp_path / "scenes", "train")
    # The same pictures as two severities, so that their mean is known.
    tests = dict.fromkeys(("fog-1", "fog-2"), scenes_data(tmp_path / "scenes", "val"))
    labelled = {"checkpoint": str(tiny_checkpoint), "image_size": 32, "train": train, "tests": tests}
    return SweepConfig.model_validate(
        {
            "name": "kinds",
            "stages": {
                "shift": {"stage": "shift", "fields": {**labelled, "num_penalties": 2}},
                "neighbours": {"stage": "knn", "fields": labelled},
            },
            "parameters": {"neighbours.num_neighbours": [1, 27]},
            "metric": "neighbours.accuracies.fog-1",
            "columns": {"near": "neighbours.accuracies.fog-1", "fog": "shift.accuracies.fog"},
        }
    )


def test_a_sweep_runs_and_compares_added_kinds(context: Context, added: SweepConfig) -> None:
    result = sweep.run_sweep(context, added)
    assert (result.num_run, result.num_failed) == (2, 0)
    assert [row["neighbours.num_neighbours"] for row in result.rows] == [1, 27]
    neighbours, linear = (_results(context, kind) for kind in ("knn", "linear"))
    near = sorted(each["values"]["accuracies"]["fog-1"] for each in neighbours)
    assert sorted(row["near"] for row in result.rows) == near
    # What does not go by the parameter is computed once.
    assert (len(neighbours), len(linear)) == (2, 1)
    assert [row["fog"] for row in result.rows] == [linear[0]["values"]["accuracies"]["fog-1"]] * 2


def test_a_trial_whose_process_dies_before_it_begins_has_failed(
    context: Context, added: SweepConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def one_dies(job: Any, search: Sequence[Mapping[str, Any]], events: Any, **options: Any) -> None:
        events.ended(search[0], "failed", "the process died")
        _one_after_another(job, search[1:], events, **options)

    monkeypatch.setattr(sweep, "run_trials", one_dies)
    result = sweep.run_sweep(context, added)
    assert (result.num_run, result.num_failed) == (2, 1)
    assert [(row["status"], row["error"]) for row in result.trials] == [
        ("failed", "the process died"),
        ("finished", None),
    ]


def test_a_fresh_sweep_computes_each_stage_anew_once(context: Context, added: SweepConfig) -> None:
    first = sweep.run_sweep(context, added)
    before = _run_ids(context)
    again = sweep.run_sweep(next_command(context), added)
    assert (again.num_run, _run_ids(context)) == (0, before)
    linear = _linear_runs(context)
    fresh = sweep.run_sweep(next_command(context, fresh=True), added)
    assert (fresh.num_run, fresh.rows) == (2, first.rows)
    assert len(before) == len(_run_ids(context)) == 3
    assert not before & _run_ids(context)
    # The one that both trials share is computed once, though a trial hears of the other's through storage alone.
    assert len(_linear_runs(context) - linear) == 1


def _run_ids(context: Context) -> set[str]:
    """Runs of the stages that are finished."""
    return {each["run_id"] for kind in ("knn", "linear") for each in _results(context, kind)}


def _linear_runs(context: Context) -> set[str]:
    """All that there ever were."""
    store = context.services.tracking
    experiments = [store.server.experiment_id(store.experiment)]
    return {run.info.run_id for run in store.server.client.search_runs(experiments, "tags.stage = 'linear'")}


def _results(context: Context, stage: str) -> list[dict[str, Any]]:
    folder = context.services.storage.child(stage)
    names = {name.split("/")[0] for name, _, _ in folder.list_files()}
    return [folder.child(name).read_json("result.json") for name in names]


def test_background_is_the_linear_evaluation_of_all_variants() -> None:
    (linear,) = stage_named("background").parts(
        BackgroundConfig(root="/challenge", checkpoint="/c", image_size=64, seed=3)
    )
    assert isinstance(linear, LinearConfig)
    assert (linear.checkpoint, linear.image_size, linear.seed) == ("/c", 64, 3)
    assert (linear.train.variant, linear.train.split) == ("original", "train")
    assert {name: (data.variant, data.split) for name, data in linear.tests.items()} == {
        name: (name, "val") for name in VARIANTS
    }
