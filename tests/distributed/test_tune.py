"""Trials on Ray Tune, without trainings: what is told of them, how they are found, and what MLflow gets of eight."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from objectaware.distributed import room
from objectaware.distributed.room import Capacity, Need, NodeType
from objectaware.distributed.task import run_task
from objectaware.distributed.tune import Estimator, Report, Values, num_concurrent, require_room_for_one, run_trials
from objectaware.errors import InputError
from objectaware.process import CONFIG_VARIABLE, submission_id
from objectaware.tracking import Tracker, TrackingStore

slow = pytest.mark.slow
pytestmark = pytest.mark.timeout(900)
NUM_STEPS = 40


class _Events:
    """Notes what is told."""

    def __init__(self) -> None:
        self.lines: list[tuple[Any, ...]] = []
        self.ended_trials: list[Values] = []

    def started(self, trial: Values) -> None:
        self.lines.append((trial.get("number"), "started"))

    def reported(self, trial: Values, epoch: int, metrics: Mapping[str, float]) -> None:
        self.lines.append((trial.get("number"), epoch, dict(metrics)))

    def ended(self, trial: Values, status: str, error: str | None) -> None:
        self.lines.append((trial.get("number"), status))
        self.ended_trials.append(trial)


CLUSTER = Capacity([{"CPU": 10.0, "GPU": 4.0}], {})


@pytest.mark.parametrize(
    ("needs", "wanted", "number"),
    [
        ([[Need("num_workers", 2, 2)]], None, 2),
        ([[Need("num_workers", 2, 2)], [Need("readers", 3, 1), Need("num_cam_actors", 1, 2)]], None, 2),
        ([[Need("num_workers", 1, 1)]], None, 10),
        ([[Need("num_workers", 1, 1)]], 3, 3),
        ([[Need("num_workers", 1, 1)]], 99, 10),
        ([[Need("num_workers", 2, 1, 1)]], None, 2),
        ([[Need("num_workers", 1, 1)], [Need("task", 1, 1, 1)]], None, 4),
    ],
)
def test_as_many_trials_run_at_once_as_there_is_room_for(
    needs: list[list[Need]], wanted: int | None, number: int
) -> None:
    assert num_concurrent(needs, CLUSTER, wanted=wanted) == number


def test_a_cluster_that_grows_gets_trials_for_which_it_has_no_room_yet() -> None:
    needs, kinds = [[Need("num_workers", 2, 2)]], [NodeType({"CPU": 16}, 4)]
    at_first, later, full = (
        Capacity([{"CPU": 0}, *nodes], {}, can_grow=True, node_types=kinds)
        for nodes in ([], [{"CPU": 16.0}], [{"CPU": 16.0}] * 4)
    )
    assert [num_concurrent(needs, one, wanted=None) for one in (at_first, later, full)] == [1, 8, 16]
    assert num_concurrent(needs, later, wanted=5) == 5
    unknown = Capacity([{"CPU": 8}], {}, can_grow=True)
    assert num_concurrent(needs, unknown, wanted=None) == 4


@pytest.mark.parametrize(
    ("needs", "message"),
    [
        ([[Need("num_workers", 3, 4)]], r"one trial needs 3 num_workers × 4 = 12 CPUs, the cluster has 10"),
        ([[Need("num_workers", 1, 1)], [Need("num_workers", 8, 1, 1)]], r"8 num_workers × 1 = 8 GPUs, .* has 4"),
    ],
)
def test_no_room_for_one_trial_is_told_with_the_sum(
    needs: list[list[Need]], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "current_capacity", lambda: CLUSTER)
    with pytest.raises(InputError, match=message):
        require_room_for_one(needs)


@slow
def test_the_driver_is_told_of_every_trial(ray_session: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(CONFIG_VARIABLE, '{"metadata": {"job_submission_id": "ours"}}')

    def job(values: Values, report: Report) -> float:
        # In the driver's working directory.
        Path(f"here {values['number']}").write_text(json.dumps([submission_id(), os.getpid()]))
        if values["number"] == 1:
            raise InputError("number", 1, "is not taken", "Give another.")
        report(0, {"loss": 0.5})
        # A stage's tasks find their place outside the trial's placement group, which has no CPU.
        return float(run_task(lambda number: number, values["number"]))

    events = _Events()
    run_trials(job, [{"number": number} for number in range(3)], events, max_concurrent=lambda: 1)
    assert events.lines == [
        (0, "started"),
        (0, 0, {"loss": 0.5}),
        (0, "finished"),
        (1, "started"),
        (1, "failed"),
        (2, "started"),
        (2, 0, {"loss": 0.5}),
        (2, "finished"),
    ]
    written = [json.loads((tmp_path / f"here {number}").read_text()) for number in range(3)]
    assert [job_id for job_id, _ in written] == ["ours"] * 3
    first, second, third = (process for _, process in written)
    assert first == second != third  # a process runs further trials until one fails in it


@slow
def test_optuna_goes_on_from_what_is_known(ray_session: None) -> None:
    def job(values: Values, report: Report) -> float:
        report(0, {"loss": 1.0})
        return -((values["values"]["x"] - 0.3) ** 2)

    events = _Events()
    known = [({"x": x / 20, "kind": "a"}, -((x / 20 - 0.3) ** 2)) for x in range(20)]
    run_trials(
        job,
        Estimator(
            choices={"kind": ["a", "b"]},
            ranges={"x": (0.0, 1.0, False)},
            mode="max",
            seed=0,
            num_trials=3,
            known=known,
            fields={"seed": 7},
        ),
        events,
        max_concurrent=lambda: 1,
    )
    finished = [trial["values"]["x"] for trial in events.ended_trials]
    assert len(set(finished)) == 3
    assert all(trial["seed"] == 7 for trial in events.ended_trials)
    # With twenty known points it draws near the best one, and not evenly from [0, 1].
    assert all(0.05 < x < 0.55 for x in finished)


class _Recording(_Events):
    """Opens and closes a run for each trial, as a sweep does."""

    def __init__(self, store: TrackingStore, parent: Tracker) -> None:
        super().__init__()
        self._store, self._parent = store, parent
        self._open: dict[int, Tracker] = {}

    def started(self, trial: Values) -> None:
        number = trial["number"]
        self._open[number] = self._store.child_run(
            self._parent, name=f"trial {number}", key=f"t{number}", tags={"stage": "trial"}
        )

    def ended(self, trial: Values, status: str, error: str | None) -> None:
        super().ended(trial, status, error)
        self._open.pop(trial["number"]).finish("FINISHED", timeout_seconds=0)


@slow
def test_eight_trials_at_once_lose_no_run(ray_session: None, tmp_path: Path) -> None:
    store = TrackingStore.open(tmp_path / "runs")
    parent = store.parent_run(name="sweep", key="sweep", tags={})

    def job(values: Values, report: Report) -> float:
        number = values["number"]
        run = store.child_run(parent, name=f"stage {number}", key=f"s{number}", tags={"stage": "linear"})
        for step in range(NUM_STEPS):
            run.log_metrics({"loss": step}, step=step)
        run.log_table("linear", [{"accuracy": 1.0}])
        run.finish("FINISHED")
        return float(number)

    events = _Recording(store, parent)
    run_trials(job, [{"number": number} for number in range(8)], events, max_concurrent=lambda: 8)
    assert sorted(events.lines) == [(number, "finished") for number in range(8)]
    assert store.close_children(parent, timeout_seconds=60) == 0
    assert parent.finish("FINISHED", timeout_seconds=60)
    client = store.server.client
    runs = list(client.search_runs([store.server.experiment_id("objectaware")]))
    names = sorted(run.info.run_name for run in runs)
    assert names == sorted(["sweep", *(f"{kind} {n}" for kind in ("stage", "trial") for n in range(8))])
    assert {run.info.status for run in runs} == {"FINISHED"}
    for run in runs:
        if run.info.run_name.startswith("stage"):
            steps = [point.step for point in client.get_metric_history(run.info.run_id, "loss")]
            assert sorted(steps) == list(range(NUM_STEPS))
            assert [file.path for file in client.list_artifacts(run.info.run_id, "tables")]
