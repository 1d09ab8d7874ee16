"""Steps of a study: their order, what they get of each other, what a failure takes along, and the parent run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from objectaware.config import PretrainConfig
from objectaware.errors import InputError
from objectaware.stages.runner import Context, StageResult, StageRun
from objectaware.studies import engine
from objectaware.studies.engine import Results, StagesFailedError, Step, open_study, run, study_key
from stage_runs import run_as

CONFIG = PretrainConfig.model_validate({"data": {"root": "photos"}})


class _Stages:
    """Stands in for the registry: stages whose value is their configuration's seed, of which some fail."""

    def __init__(self, failing: Mapping[int, Exception] | None = None) -> None:
        self.failing = failing or {}
        self.computed: list[int] = []

    def __call__(self, context: Context, config: PretrainConfig, *, title: str | None) -> StageResult:
        def compute(run: StageRun, config: PretrainConfig) -> Mapping[str, Any]:
            self.computed.append(config.seed)
            if config.seed in self.failing:
                raise self.failing[config.seed]
            return {"seed": config.seed}

        return run_as(context, "pretrain", title or "a stage", config, {}, compute, tags={})


@pytest.fixture
def stages(monkeypatch: pytest.MonkeyPatch) -> _Stages:
    found = _Stages()
    monkeypatch.setattr(engine, "stage_named", {"pretrain": found}.__getitem__)
    return found


def _of_seed(seed: int) -> PretrainConfig:
    return CONFIG.model_copy(update={"seed": seed})


def _after(*names: str) -> Step:
    """A step whose seed is the sum of those before it, plus one."""

    def config(results: Results) -> PretrainConfig:
        assert set(results) == set(names), "a step sees what it names, and nothing else"
        return _of_seed(sum(int(result.values["seed"]) for result in results.values()) + 1)

    return Step("after " + " and ".join(names), "pretrain", config, names)


def test_a_step_is_configured_by_the_results_that_it_names(context: Context, stages: _Stages) -> None:
    steps = [Step("a", "pretrain", _of_seed(3)), Step("b", "pretrain", _of_seed(4)), _after("a"), _after("a", "b")]
    results = run(context, steps).results
    assert {name: result.values["seed"] for name, result in results.items()} == {
        "a": 3,
        "b": 4,
        "after a": 4,
        "after a and b": 8,
    }
    # What "after a" asks for is what "b" has computed.
    assert stages.computed == [3, 4, 8]
    assert results["after a"].reused


def test_steps_can_go_by_the_results_so_far(context: Context, stages: _Stages) -> None:
    """Like a search that halves what it has measured."""

    def halving(results: Results) -> Iterator[Step]:
        candidates = [10, 11, 12, 13]
        while len(candidates) > 1:
            names = [f"{len(candidates)} candidates, {seed}" for seed in candidates]
            for name, seed in zip(names, candidates, strict=True):
                yield Step(name, "pretrain", _of_seed(seed))
            values = sorted(int(results[name].values["seed"]) for name in names)
            candidates = values[len(values) // 2 :]
        yield Step("best", "pretrain", _of_seed(candidates[0] + 100))

    assert run(context, halving).results["best"].values == {"seed": 113}
    assert stages.computed == [10, 11, 12, 13, 113]


def test_by_default_the_first_error_ends_a_study(context: Context, stages: _Stages) -> None:
    stages.failing = {1: InputError("checkpoint", "x", "does not exist", "Give another.")}
    with pytest.raises(InputError, match="does not exist"):
        run(context, [Step(str(seed), "pretrain", _of_seed(seed)) for seed in range(3)])
    assert stages.computed == [0, 1]


def test_a_study_that_keeps_going_skips_what_needs_a_failed_step(context: Context, stages: _Stages) -> None:
    stages.failing = {7: RuntimeError("out of memory")}
    steps = [Step("a", "pretrain", _of_seed(7), title="the first"), _after("a"), Step("b", "pretrain", _of_seed(9))]
    steps.append(_after("after a", "b"))
    outcome = run(context, steps, keep_going=True)
    assert list(outcome.results) == ["b"]
    assert stages.computed == [7, 9]
    reason = "the first: RuntimeError: out of memory"
    assert outcome.failures == dict.fromkeys(("a", "after a", "after after a and b"), reason)
    with pytest.raises(StagesFailedError, match=f"1 stages failed: {reason}") as info:
        outcome.raise_failures()
    assert info.value.__cause__ is outcome.errors["a"]
    # The same command again computes what is missing, and nothing else.
    stages.failing = {}
    resumed = run(context, steps, keep_going=True)
    resumed.raise_failures()
    assert stages.computed == [7, 9, 7, 8, 18]
    assert resumed.results["b"].reused


def test_two_steps_of_a_study_have_two_names(context: Context, stages: _Stages) -> None:
    with pytest.raises(AssertionError, match="two steps"):
        run(context, [Step("a", "pretrain", CONFIG), Step("a", "pretrain", CONFIG)])


def test_a_step_that_several_studies_share_is_linked_from_the_second(context: Context, stages: _Stages) -> None:
    parents = []
    for kind in ("demo", "paper"):
        with open_study(context, kind, name=kind, dataset="photos", config={"kind": kind}) as (inside, parent):
            run(inside, [Step("a", "pretrain", _of_seed(50))])
        parents.append(parent.run_id)  # known once the records have arrived
    assert context.parent is None
    store = context.services.tracking
    assert store.send_leftovers(30) == 0
    experiment = store.server.experiment_id(store.experiment)
    children = [
        store.server.client.search_runs([experiment], f"tags.`mlflow.parentRunId` = '{parent}'") for parent in parents
    ]
    assert [len(each) for each in children] == [1, 1]
    assert children[1][0].data.tags["source_run_id"] == children[0][0].info.run_id
    assert stages.computed == [50]


@pytest.mark.parametrize(("error", "status"), [(RuntimeError("broken"), "FAILED"), (KeyboardInterrupt(), "KILLED")])
def test_the_parent_run_ends_as_the_study_does(context: Context, error: BaseException, status: str) -> None:
    opened = open_study(context, "demo", name="a demo", dataset="photos", config={"ends": status})
    with pytest.raises(type(error)), opened as (_, parent):
        raise error
    client = context.services.tracking.server.client
    assert client.get_run(str(parent.run_id)).info.status == status
    # The same study continues in its run.
    with open_study(context, "demo", name="a demo", dataset="photos", config={"ends": status}) as (inside, again):
        assert inside == replace(context, parent=again)
    assert again.run_id == parent.run_id
    assert client.get_run(str(parent.run_id)).info.status == "FINISHED"


def test_the_order_of_a_studys_settings_does_not_name_another_study() -> None:
    assert study_key({"a": 1, "b": [2]}) == study_key({"b": [2], "a": 1}) != study_key({"a": 1, "b": [3]})
