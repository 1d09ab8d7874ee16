"""Whose run is continued: that of the same storage and user, which is neither finished nor alive elsewhere."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from mlflow.entities import Run

from objectaware.data.storage import Storage
from objectaware.process import CONFIG_VARIABLE
from objectaware.tracking import Tracker, TrackingStore, spools, store
from objectaware.tracking.delivery import Sender
from objectaware.tracking.spool import milliseconds_now
from objectaware.tracking.spools import storage_id

# Several processes import mlflow, and each initialisation takes seconds of a free processor.
pytestmark = pytest.mark.timeout(300)

Open = Callable[[str], TrackingStore]


@pytest.fixture
def open_storage(two_drivers: tuple[Path, list[int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Open:
    """Opens storages by name, on one server and an experiment of the test's own."""
    database, experiment = two_drivers[0] / "mlflow.db", f"experiment-{uuid.uuid4().hex}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{database}")
    return lambda name: TrackingStore.open(tmp_path / name, experiment)


def be(patch: pytest.MonkeyPatch, *, host: str = "here", user: str = "1000") -> None:
    """Records as a user of a host from now on."""
    for module in (spools, store):
        patch.setattr(module, "this_host", lambda: host)
        patch.setattr(module, "this_user", lambda: user)


def runs(opened: TrackingStore) -> list[Run]:
    """All runs, the oldest first."""
    experiment = opened.server.experiment_id(opened.experiment)
    found: list[Run] = opened.server.client.search_runs([experiment], order_by=["attributes.start_time ASC"])
    return found


def losses(opened: TrackingStore, run: Run | Tracker) -> list[tuple[int, float]]:
    run_id = run.run_id if isinstance(run, Tracker) else run.info.run_id
    points = opened.server.client.get_metric_history(str(run_id), "loss")
    return sorted((point.step, point.value) for point in points)


def train(opened: TrackingStore, values: dict[int, float], *, leased: bool = True) -> Tracker:
    run = opened.child_run(None, name="stage", key="stage", tags={}, leased=leased)
    for step, value in values.items():
        run.log_metrics({"loss": value}, step=step)
    return run


def test_two_storages_on_one_server_have_a_run_each(open_storage: Open) -> None:
    mine, other = open_storage("mine"), open_storage("other")
    first = train(mine, {0: 5.0, 1: 4.0})
    assert first.finish("FINISHED", timeout_seconds=30)
    second = train(other, {0: 9.0, 1: 8.0})
    assert second.finish("FAILED", error="disk full", timeout_seconds=30)
    finished, failed = runs(mine)
    assert (finished.info.status, failed.info.status) == ("FINISHED", "FAILED")
    assert "error" not in finished.data.tags
    assert failed.data.tags["same_identity_as"] == finished.info.run_id
    assert losses(mine, finished) == [(0, 5.0), (1, 4.0)]
    assert losses(mine, failed) == [(0, 9.0), (1, 8.0)]
    # And each goes on in its own.
    again = train(open_storage("other"), {1: 7.0, 2: 6.0})
    assert again.finish("FINISHED", timeout_seconds=30)
    assert again.run_id == failed.info.run_id
    assert losses(mine, failed) == [(0, 9.0), (1, 8.0), (2, 6.0)]


def test_two_users_of_one_storage_have_a_run_each(open_storage: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    be(monkeypatch, user="1000")
    first = train(open_storage("group"), {0: 5.0})
    assert first.flush(30)
    be(monkeypatch, user="1001")
    second = train(open_storage("group"), {0: 9.0})
    assert second.finish("KILLED", timeout_seconds=30)
    assert first.finish("FINISHED", timeout_seconds=30)
    finished, killed = runs(open_storage("group"))
    assert (finished.info.status, killed.info.status) == ("FINISHED", "KILLED")
    assert losses(open_storage("group"), finished) == [(0, 5.0)]
    assert losses(open_storage("group"), killed) == [(0, 9.0)]


def test_two_submitters_whose_jobs_run_as_one_user_have_a_run_each(
    open_storage: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, loss in (("anna", 5.0), ("ben", 9.0)):
        metadata = {"job_submission_id": f"job of {name}", "user": name}
        monkeypatch.setenv(CONFIG_VARIABLE, json.dumps({"metadata": metadata}))
        assert train(open_storage("group"), {0: loss}).finish("KILLED", timeout_seconds=30)
    annas, bens = runs(open_storage("group"))
    assert (annas.info.user_id, bens.info.user_id) == ("anna", "ben")
    assert (losses(open_storage("group"), annas), losses(open_storage("group"), bens)) == ([(0, 5.0)], [(0, 9.0)])


def test_the_run_of_a_finished_stage_is_not_opened_again(open_storage: Open) -> None:
    first = train(open_storage("mine"), {0: 5.0})
    assert first.finish("FINISHED", timeout_seconds=30)
    second = train(open_storage("mine"), {0: 9.0})
    assert second.finish("FAILED", timeout_seconds=30)
    assert [run.info.status for run in runs(open_storage("mine"))] == ["FINISHED", "FAILED"]
    # Nor where it still waits for the server.
    waiting = open_storage("mine")
    waiting.child_run(None, name="stage", key="other", tags={}).finish("FINISHED", timeout_seconds=0)
    waiting.child_run(None, name="stage", key="other", tags={}).finish("FAILED", timeout_seconds=30)
    assert open_storage("mine").send_leftovers(30) == 0
    others = [run.info.status for run in runs(waiting) if run.data.tags["identity"] == "other"]
    assert sorted(others) == ["FAILED", "FINISHED"]


def test_a_run_that_is_open_on_another_host_is_continued_only_under_a_lease(
    open_storage: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    be(monkeypatch, host="lost")
    lost = train(open_storage("shared"), {0: 5.0, 1: 4.0})
    assert lost.flush(30)
    lost.log_metrics({"unsent": 1.0})
    be(monkeypatch, host="another")
    other = train(open_storage("shared"), {0: 9.0}, leased=False)
    assert other.flush(30)
    assert other.run_id != lost.run_id
    assert other.finish("FINISHED", timeout_seconds=30)


@pytest.mark.parametrize("forgets", [False, True], ids=["progress known", "progress lost"])
def test_what_a_lost_host_had_to_send_does_not_end_the_run_that_another_continues(
    open_storage: Open, monkeypatch: pytest.MonkeyPatch, *, forgets: bool
) -> None:
    be(monkeypatch, host="lost")
    lost = train(open_storage("shared"), {0: 5.0, 1: 4.0})
    assert lost.flush(30)
    be(monkeypatch, host="another")
    other = train(open_storage("shared"), {1: 3.0, 2: 2.0})
    assert other.finish("FINISHED", timeout_seconds=30)
    assert other.run_id == lost.run_id
    be(monkeypatch, host="lost")
    lost._sender.stop(30)  # its process dies: nothing holds the spool any more, and a part is unsent
    lost.log_metrics({"loss": 1.0}, step=3)
    lost._alive.close()
    if forgets:  # all of it is sent again
        (lost._spool.folder / "progress.json").unlink()
    assert open_storage("shared").send_leftovers(30) == 0
    (run,) = runs(open_storage("shared"))
    assert run.info.status == "FINISHED"
    assert losses(open_storage("shared"), run) == [(0, 5.0), (1, 4.0), (2, 2.0), (3, 1.0)]


def test_commands_that_are_alive_at_once_on_one_host_have_a_study_each(open_storage: Open) -> None:
    first = open_storage("mine").parent_run(name="study", key="study", tags={})
    assert first.flush(30)
    second = open_storage("mine").parent_run(name="study", key="study", tags={})
    assert second.flush(30)
    assert first.finish("FINISHED", timeout_seconds=30)
    assert second.finish("FAILED", timeout_seconds=30)
    assert sorted(run.info.status for run in runs(open_storage("mine"))) == ["FAILED", "FINISHED"]


def test_a_study_goes_on_in_its_run_and_links_none_of_its_own_stages(open_storage: Open) -> None:
    study = open_storage("mine").parent_run(name="study", key="study", tags={})
    stage = open_storage("mine").child_run(study, name="stage", key="stage", tags={})
    assert study.flush(30)
    assert stage.finish("FINISHED", timeout_seconds=30)
    assert study.finish("FINISHED", timeout_seconds=30)
    opened = open_storage("mine")
    again = opened.parent_run(name="study", key="study", tags={})
    opened.link_run(again, name="stage", key="stage", tags={}, source_run_id=stage.run_id)
    assert again.finish("FINISHED", timeout_seconds=30)
    assert again.run_id == study.run_id
    assert opened.send_leftovers(30) == 0
    assert len(runs(opened)) == 2


def test_nothing_is_left_of_a_run_that_the_server_has_whole(open_storage: Open, tmp_path: Path) -> None:
    opened = open_storage("mine")
    run = train(opened, {0: 5.0})
    assert run.finish("FINISHED", timeout_seconds=30)
    assert [path.name for path in (tmp_path / "mine").rglob("*") if path.is_file()] == ["storage_id"]
    assert run.run_id == runs(opened)[0].info.run_id


def test_system_metrics_go_on_in_seconds_from_the_beginning_of_the_run(
    open_storage: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = open_storage("mine")
    began = milliseconds_now()
    for after in (0, 100):
        for module in ("run", "store"):
            monkeypatch.setattr(f"objectaware.tracking.{module}.milliseconds_now", lambda now=began + 1000 * after: now)
        run = opened.child_run(None, name="stage", key="stage", tags={})
        run.log_system_metrics({"system/cpu": 1.0})
        assert run.finish("KILLED", timeout_seconds=30)
    history = opened.server.client.get_metric_history(str(run.run_id), "system/cpu")
    assert sorted(point.step for point in history) == [0, 100]


def test_storages_are_told_apart_also_at_one_path_and_stay_themselves_when_moved(tmp_path: Path) -> None:
    place, moved = Storage.from_uri(tmp_path / "runs"), Storage.from_uri(tmp_path / "moved")
    first = storage_id(place)
    assert storage_id(place) == first
    (tmp_path / "runs").rename(tmp_path / "moved")
    assert storage_id(place) != first
    assert storage_id(moved) == first


@pytest.mark.parametrize("host", ["here", "elsewhere"])
@pytest.mark.parametrize("knows", [True, False], ids=["knows", "does not know"])
def test_a_command_that_lost_its_lease_leaves_the_run_to_the_one_that_took_over(
    host: str, knows: bool, open_storage: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    be(monkeypatch)
    suspended = train(open_storage("mine"), {0: 5.0})
    assert suspended.flush(30)
    be(monkeypatch, host=host)
    other = train(open_storage("mine"), {1: 4.0})
    assert other._spool.folder != suspended._spool.folder
    assert other.finish("FINISHED", timeout_seconds=30)
    be(monkeypatch)
    suspended.log_metrics({"loss": 9.0}, step=2)
    if knows:
        suspended.drop()
    else:
        suspended.finish("FAILED", error="disk full", timeout_seconds=0)
    assert suspended.flush(30)
    assert not suspended._spool.folder.exists()
    (run,) = runs(open_storage("mine"))
    assert (run.info.status, losses(open_storage("mine"), run)) == ("FINISHED", [(0, 5.0), (1, 4.0)])
    assert "error" not in run.data.tags


def test_what_was_dropped_unsent_is_never_sent(open_storage: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = open_storage("mine")
    run = train(opened, {0: 5.0})
    assert run.flush(30)
    with monkeypatch.context() as patch:
        patch.setattr(Sender, "_send", lambda *_: False)  # the server is away
        run.log_metrics({"loss": 9.0}, step=1)
        run.drop()
    assert open_storage("mine").send_leftovers(30) == 0
    again = train(open_storage("mine"), {2: 3.0})
    assert again.finish("FINISHED", timeout_seconds=30)
    assert again.run_id == run.run_id
    assert losses(opened, again) == [(0, 5.0), (2, 3.0)]


def test_studies_of_two_live_commands_keep_their_own_numbers_and_status(open_storage: Open) -> None:
    def begin(step: int) -> Tracker:
        run = open_storage("mine").parent_run(name="study", key="study", tags={})
        run.log_metrics({"loss": float(step)}, step=step)
        assert run.flush(30)
        return run

    first, second = begin(0), begin(1)
    assert second.finish("FAILED", error="disk full", timeout_seconds=30)
    first.log_metrics({"loss": 2.0}, step=2)
    assert first.finish("FINISHED", timeout_seconds=30)
    opened = open_storage("mine")
    found = {run.info.status: losses(opened, run) for run in runs(opened)}
    assert found == {"FINISHED": [(0, 0.0), (2, 2.0)], "FAILED": [(1, 1.0)]}
