from __future__ import annotations

import io
import json
import math
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pandas
import pytest
from mlflow.entities import Run
from mlflow.store.tracking.dbmodels.models import SqlDataset
from sqlalchemy import event

from objectaware.data.storage import Storage
from objectaware.errors import InputError
from objectaware.tracking import Tracker, TrackingStore
from objectaware.tracking.spool import DatasetUsed, Spool
from objectaware.tracking.spools import Spools

# Several processes import mlflow, and each initialisation takes seconds of a free processor.
pytestmark = pytest.mark.timeout(300)

Open = Callable[[], TrackingStore]

FOUR_WRITERS = """
import pickle, sys
store, parent = pickle.load(open(sys.argv[1], "rb"))
number = sys.argv[2]
run = store.child_run(parent, name="stage " + number, key="stage-" + number, tags={"stage": "pretrain"})
for step in range(40):
    run.log_metrics({"loss": step}, step=step)
    parent.log_metrics({"worker/" + number: step}, step=step)
assert run.finish("FINISHED", timeout_seconds=40) and parent.flush(40)
assert "ray" not in sys.modules
"""

KILLED_WHILE_RUNNING = """
import os, pathlib, signal, sys
from objectaware.tracking import Tracker, TrackingStore
store = TrackingStore.open(pathlib.Path(sys.argv[1]), sys.argv[2])
run = store.child_run(None, name="stage", key="stage", tags={})
assert run.flush(30)
run.log_metrics({"loss": 1.0}, step=7)
os.kill(os.getpid(), signal.SIGKILL)
"""


MANY = {f"field {number}": number for number in range(250)}


def all_runs(store: TrackingStore) -> list[Run]:
    return list(store.server.client.search_runs([store.server.experiment_id(store.experiment)]))


def run_of(store: TrackingStore, identity: str) -> Run:
    (run,) = [run for run in all_runs(store) if run.data.tags["identity"] == identity]
    return run


def steps(store: TrackingStore, run_id: str | None, key: str = "loss") -> list[int]:
    assert run_id is not None
    return sorted(point.step for point in store.server.client.get_metric_history(run_id, key))


def artifacts(store: TrackingStore, run_id: str, folder: str | None = None) -> set[str]:
    return {file.path for file in store.server.client.list_artifacts(run_id, folder)}


def content(store: TrackingStore, run_id: str, path: str) -> bytes:
    return (store.folder / "mlflow_artifacts" / run_id / "artifacts" / path).read_bytes()


def refused(run: Tracker) -> list[dict[str, object]]:
    file = run._spool.folder.parent / "rejected" / f"{run._spool.folder.name}.jsonl"
    return [json.loads(line)["record"] for line in file.read_text().splitlines()] if file.exists() else []


def test_two_commands_may_open_a_fresh_store_at_once(two_drivers: tuple[Path, list[int]]) -> None:
    folder, exit_codes = two_drivers
    assert exit_codes == [0, 0]
    assert (folder / "mlflow.db").is_file()


def test_four_processes_write_to_what_the_driver_opened(open_store: Open, tmp_path: Path) -> None:
    store = open_store()
    parent = store.parent_run(name="study", key="study", tags={})
    handles = tmp_path / "handles.pickle"
    handles.write_bytes(pickle.dumps((store, parent)))
    command = [sys.executable, "-c", FOUR_WRITERS, str(handles)]
    writers = [subprocess.Popen([*command, str(number)]) for number in range(4)]
    assert [writer.wait(timeout=90) for writer in writers] == [0, 0, 0, 0]
    assert parent.finish("FINISHED", timeout_seconds=30)
    assert len(all_runs(store)) == 5
    for number in range(4):
        child = run_of(store, f"stage-{number}")
        assert child.data.tags["mlflow.parentRunId"] == parent.run_id
        assert child.info.status == "FINISHED"
        assert steps(store, child.info.run_id) == list(range(40))
        assert steps(store, parent.run_id, f"worker/{number}") == list(range(40))


def test_everything_of_a_run_arrives(open_store: Open) -> None:
    store = open_store()
    run = store.child_run(None, name="stage one", key="stage", tags={"stage": "pretrain", "long": "x" * 9000})
    run.log_config({"optimizer": {"lr": 0.03}, "text": "y" * 7000, "n" * 300: 1, "many": MANY})
    for step in range(2500):
        run.log_metrics({"loss": float(step)}, step=step)
    run.log_metrics({"undefined": math.nan, "high": math.inf})
    run.log_table("background", [{"model": "baseline", "original": 60.0}, {"model": "mixup", "gap": math.nan}])
    run.log_table("localization", [{"miou": 0.5}])
    run.log_text("notes/a.txt", "größe")
    run.log_png("panels/a.png", b"png")
    run.log_report("# It works\n")
    assert run.finish("FINISHED", timeout_seconds=30)

    assert run.run_id is not None
    sent = store.server.client.get_run(run.run_id)
    assert sent.info.run_name == "stage one"
    assert sent.info.status == "FINISHED"
    assert sent.info.end_time >= sent.info.start_time
    assert sent.data.tags["stage"] == "pretrain"
    assert sent.data.tags["mlflow.note.content"] == "# It works\n"
    assert len(sent.data.params) == 253
    assert sent.data.params["optimizer.lr"] == "0.03"
    assert sent.data.params["text"] == "y" * 5997 + "..."
    assert steps(store, run.run_id) == list(range(2500))
    assert math.isnan(sent.data.metrics["undefined"])
    assert sent.data.metrics["high"] > 1e300
    assert artifacts(store, run.run_id) == {"config.json", "notes", "panels", "report.md", "tables"}
    assert artifacts(store, run.run_id, "panels") == {"panels/a.png"}
    names = ("background.csv", "background.json", "localization.csv", "localization.json")
    assert artifacts(store, run.run_id, "tables") == {f"tables/{name}" for name in names}
    assert json.loads(content(store, run.run_id, "config.json"))["text"] == "y" * 7000
    # As MLflow's own load_table reads it.
    table = pandas.read_json(io.BytesIO(content(store, run.run_id, "tables/background.json")), orient="split")
    assert json.loads(sent.data.tags["mlflow.loggedArtifacts"]) == [
        {"path": "tables/background.json", "type": "table"},
        {"path": "tables/localization.json", "type": "table"},
    ]
    assert table["model"].tolist() == ["baseline", "mixup"]
    assert not refused(run)


def test_sending_again_after_a_crash_doubles_nothing(open_store: Open) -> None:
    store = open_store()
    parent = store.parent_run(name="study", key="study", tags={})
    run = store.child_run(parent, name="stage", key="stage", tags={"stage": "pretrain"})
    for step in range(20):
        run.log_metrics({"loss": 1.0 if step % 2 else math.nan}, step=step)
    assert run.flush(30)
    # A process that dies between sending and noting it has sent more than it notes; here, everything.
    (run._spool.folder / "progress.json").unlink()
    again = open_store().child_run(parent, name="stage", key="stage", tags={"stage": "pretrain"}, leased=True)
    assert again.finish("FINISHED", timeout_seconds=30)
    assert steps(store, run_of(store, "stage").info.run_id) == list(range(20))
    assert run_of(store, "stage").info.status == "FINISHED"


def test_a_restarted_stage_goes_on_in_its_run_with_no_step_twice(open_store: Open) -> None:
    store = open_store()
    run = store.child_run(None, name="stage", key="stage", tags={})
    run.log_metrics({"loss": 1.0}, step=0)
    run.log_metrics({"loss": 1.0}, step=1)
    assert run.finish("FAILED", error="out of memory", timeout_seconds=30)
    failed = run_of(store, "stage")
    assert failed.info.status == "FAILED"
    assert failed.data.tags["error"] == "out of memory"

    again = open_store().child_run(None, name="stage", key="stage", tags={})
    assert again.flush(30)
    assert run_of(store, "stage").info.status == "RUNNING"
    for step in (1, 2):
        again.log_metrics({"loss": 2.0}, step=step)
    assert again.finish("FINISHED", timeout_seconds=30)
    assert again.run_id == run.run_id
    assert steps(store, run.run_id) == [0, 1, 2]
    assert run_of(store, "stage").info.status == "FINISHED"


def test_a_restart_finds_the_run_whose_spool_is_removed_by_its_identity(
    open_store: Open, caplog: pytest.LogCaptureFixture
) -> None:
    store = open_store()
    run = store.child_run(None, name="stage", key="stage", tags={})
    run.log_config({"lr": 0.1})
    for step in range(5):
        run.log_metrics({"loss": 1.0}, step=step)
    assert run.finish("KILLED", timeout_seconds=30)
    assert not run._spool.folder.exists()

    again = open_store().child_run(None, name="stage", key="stage", tags={})
    again.log_config({"lr": 0.2, "new": 1})
    for step in range(3, 8):
        again.log_metrics({"loss": 1.0}, step=step)
    assert again.finish("FINISHED", timeout_seconds=30)
    assert again.run_id == run.run_id
    assert steps(store, run.run_id) == list(range(8))
    # MLflow refuses to change a parameter.
    assert run_of(store, "stage").data.params == {"lr": "0.1", "new": "1"}
    assert "began with lr = 0.1 and continues with 0.2" in caplog.text
    assert not refused(again)


def test_a_changed_parameter_is_kept_as_first_logged_and_warned_of(
    open_store: Open, caplog: pytest.LogCaptureFixture
) -> None:
    store = open_store()
    run = store.child_run(None, name="stage", key="stage", tags={})
    run.log_config({"num_workers": 1, "seed": 0})
    run.log_config({"num_workers": 1, "seed": 0})
    run.log_config({"num_workers": 2, "seed": 0})
    (warning,) = [record.message for record in caplog.records if "began with" in record.message]
    assert "num_workers = 1" in warning
    assert run.finish("FINISHED", timeout_seconds=30)
    assert run.run_id is not None
    assert run_of(store, "stage").data.params == {"num_workers": "1", "seed": "0"}
    assert json.loads(content(store, run.run_id, "config.json")) == {"num_workers": 2, "seed": 0}


def test_a_fresh_start_begins_a_new_run(open_store: Open) -> None:
    store = open_store()
    parent = store.parent_run(name="study", key="study", tags={})
    first = store.child_run(parent, name="stage", key="stage", tags={})
    first.log_metrics({"loss": 1.0}, step=0)
    assert first.finish("KILLED", timeout_seconds=30)
    first_id = first.run_id
    fresh = open_store().child_run(parent, name="stage", key="stage", tags={}, fresh=True)
    fresh.log_metrics({"loss": 2.0}, step=0)
    assert fresh.finish("KILLED", timeout_seconds=30)
    fresh_id = fresh.run_id
    assert fresh_id != first_id
    assert steps(store, first_id) == steps(store, fresh_id) == [0]
    # What is started again from now on is the new one.
    again = open_store().child_run(parent, name="stage", key="stage", tags={})
    assert again.finish("FINISHED", timeout_seconds=30)
    assert again.run_id == fresh_id


def test_a_run_that_was_deleted_in_the_ui_is_made_anew_with_all_its_records(open_store: Open) -> None:
    store = open_store()
    run = store.child_run(None, name="stage", key="stage", tags={"stage": "pretrain"})
    run.log_metrics({"loss": 1.0}, step=0)
    run.log_text("a.txt", "a")
    assert run.flush(30)
    deleted = run.run_id
    assert deleted is not None
    store.server.client.delete_run(deleted)
    run._alive.close()  # its process was killed
    again = open_store().child_run(None, name="stage", key="stage", tags={"stage": "pretrain"}, leased=True)
    again.log_metrics({"loss": 1.0}, step=1)
    assert again.finish("FINISHED", timeout_seconds=30)
    made_anew = run_of(store, "stage")
    assert made_anew.info.run_id != deleted
    assert made_anew.data.tags["stage"] == "pretrain"
    assert steps(store, made_anew.info.run_id) == [0, 1]
    assert artifacts(store, made_anew.info.run_id) == {"a.txt"}


def test_a_stage_of_one_study_is_linked_from_another(open_store: Open) -> None:
    store = open_store()
    first = store.parent_run(name="first", key="first", tags={"study": "table1"})
    stage = store.child_run(first, name="stage", key="stage", tags={})
    assert stage.finish("KILLED", timeout_seconds=30)
    source = str(stage.run_id)
    second = store.parent_run(name="second", key="second", tags={})
    for _ in range(2):  # as when the study is started again
        store.link_run(second, name="stage", key="stage", tags={"stage": "pretrain"}, source_run_id=source)
    store.link_run(second, name="given", key="given", tags={}, source_run_id="0123abcd")
    assert second.finish("FINISHED", timeout_seconds=30)
    second_id = second.run_id  # asked for now, since a fresh start will move the spool
    assert open_store().send_leftovers(30) == 0

    children = {run.info.run_name: run for run in all_runs(store) if "source_run_id" in run.data.tags}
    assert set(children) == {"stage", "given"}
    link = children["stage"]
    assert link.data.tags["identity"] == "stage"
    assert link.data.tags["stage"] == "pretrain"
    assert link.data.tags["source_run_id"] == source
    assert link.data.tags["mlflow.parentRunId"] == second.run_id
    assert link.info.status == "FINISHED"
    assert children["given"].data.tags["source_run_id"] == "0123abcd"
    # A link, though newer, is not mistaken for the run that computed.
    again = open_store().child_run(first, name="stage", key="stage", tags={})
    assert again.finish("FINISHED", timeout_seconds=30)
    assert again.run_id == source
    # One level of nesting.
    parents = {run.info.run_id for run in all_runs(store) if "mlflow.parentRunId" not in run.data.tags}
    nested = [run.data.tags["mlflow.parentRunId"] for run in all_runs(store) if run.info.run_id not in parents]
    assert parents == {first.run_id, second.run_id}
    assert set(nested) <= parents
    # A study that starts afresh has links of its own.
    fresh = open_store().parent_run(name="second", key="second", tags={}, fresh=True)
    store.link_run(fresh, name="stage", key="stage", tags={}, source_run_id=source)
    assert fresh.flush(30)
    assert store.send_leftovers(30) == 0
    links = [run.data.tags["mlflow.parentRunId"] for run in all_runs(store) if run.info.run_name == "stage"]
    assert sorted(links) == sorted([first.run_id, second_id, fresh.run_id])


def test_what_a_killed_process_recorded_arrives_and_its_run_is_killed(open_store: Open) -> None:
    store = open_store()
    victim = subprocess.run([sys.executable, "-c", KILLED_WHILE_RUNNING, str(store.folder), store.experiment])
    assert victim.returncode == -9
    assert run_of(store, "stage").info.status == "RUNNING"
    assert store.send_leftovers(30) == 0
    killed = run_of(store, "stage")
    assert killed.info.status == "KILLED"
    assert steps(store, killed.info.run_id) == [7]


def test_leftovers_do_not_touch_a_run_that_is_alive(open_store: Open) -> None:
    store = open_store()
    run = store.child_run(None, name="stage", key="stage", tags={})
    assert run.flush(30)
    assert open_store().send_leftovers() == 0
    assert run_of(store, "stage").info.status == "RUNNING"
    assert run.finish("FINISHED", timeout_seconds=30)


def test_a_deleted_experiment_is_refused(open_store: Open) -> None:
    store = open_store()
    store.server.client.delete_experiment(store.server.experiment_id(store.experiment))
    with pytest.raises(InputError) as refusal:
        open_store()
    command = refusal.value.remedy.partition("run: ")[2]
    subprocess.run(command, shell=True, check=True, timeout=120, cwd="/", capture_output=True)
    open_store()


@pytest.mark.parametrize(
    ("uri", "remedy"),
    [
        ("./mlruns", "or unset it"),
        ("ftp://host/path", "or unset it"),
        ("127.0.0.1:5000", "Set it to http://127.0.0.1:5000."),
        ("mlflow.example.com", "Set it to http://mlflow.example.com."),
    ],
)
def test_an_address_that_mlflow_does_not_take_is_refused_in_a_line(
    uri: str, remedy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    with pytest.raises(InputError, match="MLFLOW_TRACKING_URI") as refusal:
        TrackingStore.open(tmp_path)
    assert remedy in str(refusal.value)
    assert "\n" not in str(refusal.value)
    assert len(str(refusal.value)) < 400


def test_an_experiment_opens_in_the_view_for_model_training(open_store: Open) -> None:
    store = open_store()

    def kind() -> str:
        return str(store.server.client.get_experiment_by_name(store.experiment).tags["mlflow.experimentKind"])

    assert kind() == "custom_model_development"
    for made_before, shown in (("", "custom_model_development"), ("genai_development", "genai_development")):
        experiment_id = store.server.experiment_id(store.experiment)
        store.server.client.set_experiment_tag(experiment_id, "mlflow.experimentKind", made_before)
        open_store()
        assert kind() == shown


def test_a_relative_sqlite_file_is_the_same_in_every_folder(open_store: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = open_store().folder
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///mlflow.db")
    monkeypatch.chdir(folder)
    store = TrackingStore.open(folder)
    assert store.server.tracking_uri == f"sqlite:///{folder}/mlflow.db"


def test_checkpoints_are_models_that_point_at_storage_and_data_sets_are_inputs(open_store: Open) -> None:
    store = open_store()
    run = store.child_run(None, name="stage", key="stage", tags={"method": "moco", "stage": "pretrain"})
    for step, loss in enumerate((7.0, 6.0)):
        run.log_metrics({"loss": loss, "undefined": math.nan}, step=step)
        run.log_step_metrics({"loss": loss}, step=100 * step)
    for _ in range(2):
        run.log_dataset("train", "COCO", "a" * 64, "/data/COCO")
        run.log_dataset("test", "COCO val", "b" * 64, "s3://data/COCO")
        run.log_model("moco-timm/vit-none", "s3://bucket/runs/pretrain/epoch_0799", model_type="backbone")
    assert run.flush(30)
    # As after a crash between sending and noting it: everything is sent once more.
    (run._spool.folder / "progress.json").unlink()
    assert run.finish("FINISHED", timeout_seconds=30)
    client = store.server.client
    sent = client.get_run(str(run.run_id))
    assert {
        (used.dataset.name, used.dataset.digest, used.dataset.source_type, used.dataset.source, used.tags[0].value)
        for used in sent.inputs.dataset_inputs
    } == {
        ("COCO", "a" * 36, "local", '{"uri": "/data/COCO"}', "train"),
        ("COCO val", "b" * 36, "s3", '{"uri": "s3://data/COCO"}', "test"),
    }
    (model,) = client.search_logged_models([store.server.experiment_id(store.experiment)])
    assert (model.name, model.status.value, model.source_run_id) == ("moco-timm_vit-none", "READY", run.run_id)
    assert (model.model_type, model.tags["method"]) == ("backbone", "moco")
    assert model.params == {"uri": "s3://bucket/runs/pretrain/epoch_0799"}
    (metric,) = model.metrics
    assert (metric.key, metric.value, metric.step) == ("loss", 6.0, 1)
    assert (metric.dataset_name, metric.dataset_digest) == ("COCO", "a" * 36)
    assert steps(store, run.run_id) == [0, 1]
    assert steps(store, run.run_id, "steps/loss") == [0, 100]
    assert not refused(run)


def _evaluation(store: TrackingStore, key: str, uri: str, identity: str | None = None) -> Run:
    """Send the run of an evaluation twice, as after a crash."""
    run = store.child_run(None, name=key, key=key, tags={})
    run.use_model(uri, identity)
    run.log_metrics({"accuracy": 60.0, "undefined": math.nan, "high": math.inf}, model=uri)
    run.log_metrics({"seconds": 1.0})
    assert run.flush(30)
    (run._spool.folder / "progress.json").unlink()
    assert run.finish("FINISHED", timeout_seconds=30)
    assert not refused(run)
    return store.server.client.get_run(str(run.run_id))


def test_an_evaluation_measures_the_model_and_names_its_training(open_store: Open, tmp_path: Path) -> None:
    store = open_store()
    training = store.child_run(None, name="my training", key="training", tags={})
    training.log_model("moco", "/runs/pretrain/epoch_0799", model_type="backbone")
    training.finish("FINISHED", timeout_seconds=0)
    evaluation = _evaluation(store, "linear", "/runs/pretrain/epoch_0799")
    (model,) = store.server.client.search_logged_models([store.server.experiment_id(store.experiment)])
    assert [used.model_id for used in evaluation.inputs.model_inputs] == [model.model_id]
    assert [(one.key, one.value, one.run_id) for one in model.metrics] == [("accuracy", 60.0, evaluation.info.run_id)]
    named = {"training_run_id": training.run_id, "training": "my training"}
    assert evaluation.data.tags.items() >= named.items()
    assert steps(store, evaluation.info.run_id, "accuracy") == [0]

    # Another checkpoint of the training is no model, but the training is known by its identity.
    kept = _evaluation(store, "of-a-kept-epoch", "/runs/pretrain/kept/epoch_0099", "training")
    assert kept.data.tags.items() >= named.items()
    # The same path in another storage is another host's.
    other = replaced_storage(store, tmp_path)
    for key, uri in (("elsewhere", "/runs/pretrain/epoch_0799"), ("odd", "/it's/another"), ("none", "/no/model")):
        alone = _evaluation(other, key, uri, "training")
        assert "training" not in alone.data.tags
        assert not alone.inputs.model_inputs
    (model,) = store.server.client.search_logged_models([store.server.experiment_id(store.experiment)])
    assert len(model.metrics) == 1


def test_the_model_of_a_training_that_an_earlier_version_recorded_is_measured(open_store: Open, tmp_path: Path) -> None:
    store = open_store()
    training = store.child_run(None, name="training", key="training", tags={})
    training.log_model("checkpoint", "/runs/pretrain/epoch_0799", model_type="backbone")
    assert training.finish("FINISHED", timeout_seconds=30)
    client = store.server.client
    (model,) = client.search_logged_models([store.server.experiment_id(store.experiment)])
    client.delete_logged_model_tag(model.model_id, "storage")
    evaluation = _evaluation(store, "linear", "/runs/pretrain/epoch_0799")
    assert [used.model_id for used in evaluation.inputs.model_inputs] == [model.model_id]
    alone = _evaluation(replaced_storage(store, tmp_path), "elsewhere", "/runs/pretrain/epoch_0799")
    assert not alone.inputs.model_inputs


def test_a_training_is_named_whole_after_an_outage(open_store: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store()
    training = store.child_run(None, name="my training", key="training", tags={})
    assert training.finish("FINISHED", timeout_seconds=30)
    client, failures = store.server.client, ["between two requests"]
    set_tag = client.set_tag

    def fail_once(run_id: str, key: str, value: str) -> None:
        if key == "training" and failures:
            raise ConnectionError(failures.pop())
        set_tag(run_id, key, value)

    monkeypatch.setattr(client, "set_tag", fail_once)
    evaluation = _evaluation(store, "linear", "/runs/pretrain/kept/epoch_0099", "training")
    named = {"training_run_id": training.run_id, "training": "my training"}
    assert evaluation.data.tags.items() >= named.items()


def replaced_storage(store: TrackingStore, folder: Path) -> TrackingStore:
    """The same store, as a command with another storage uses it."""
    storage = Storage.from_uri(folder / "other")
    return TrackingStore(store.server, store.experiment, storage, store.folder, Spools.of(storage, "other"))


def test_runs_that_name_the_same_data_set_at_once_both_have_it(open_store: Open) -> None:
    """MLflow looks for the data set's row, and another run writes it before MLflow does."""
    store = open_store()
    first, second = (store.child_run(None, name=name, key=name, tags={}) for name in ("first", "second"))
    assert first.flush(30)
    assert second.flush(30)
    overtaken = []

    def overtake(mapper: object, connection: object, target: SqlDataset) -> None:
        if not overtaken:
            overtaken.append(target)
            store.server.add_dataset(str(second.run_id), DatasetUsed("COCO", "a" * 36, "/data/COCO", "train"))

    event.listen(SqlDataset, "before_insert", overtake)
    try:
        first.log_dataset("train", "COCO", "a" * 64, "/data/COCO")
        assert first.finish("FINISHED", timeout_seconds=30)
    finally:
        event.remove(SqlDataset, "before_insert", overtake)
    assert overtaken
    assert not refused(first)
    for run in (first, second):
        (dataset,) = store.server.client.get_run(str(run.run_id)).inputs.dataset_inputs
        assert dataset.dataset.name == "COCO"


def test_a_storage_that_is_moved_after_a_kill_goes_on_whole(tmp_path: Path) -> None:
    old, new = tmp_path / "100% old", tmp_path / "new"
    before = TrackingStore.open(old).child_run(None, name="before", key="before", tags={})
    before.log_text("a.txt", "before")
    before.log_model("checkpoint", "s3://bucket/epoch_0799", model_type="backbone")
    assert before.finish("FINISHED", timeout_seconds=30)
    victim = subprocess.run([sys.executable, "-c", KILLED_WHILE_RUNNING, str(old), "objectaware"])
    assert victim.returncode == -9
    old.rename(new)
    store = TrackingStore.open(new)
    assert store.send_leftovers(30) == 0
    killed = run_of(store, "stage")
    assert (killed.info.status, steps(store, killed.info.run_id)) == ("KILLED", [7])
    again = TrackingStore.open(new).child_run(None, name="stage", key="stage", tags={})
    again.log_text("a.txt", "after")
    again.log_metrics({"loss": 1.0}, step=8)
    assert again.finish("FINISHED", timeout_seconds=30)
    assert again.run_id == killed.info.run_id
    assert steps(store, again.run_id) == [7, 8]
    assert content(store, str(before.run_id), "a.txt") == b"before"
    for run in (before, again):
        assert artifacts(store, str(run.run_id)) == {"a.txt"}
    (model,) = store.server.client.search_logged_models([store.server.experiment_id("objectaware")])
    assert model.artifact_location.startswith(new.as_uri())
    assert not old.exists()


def test_records_go_on_arriving_after_a_spool_could_not_be_removed(
    open_store: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store()
    remove, failures = Spool.remove_if_settled, [OSError(39, "Directory not empty"), ValueError("a fault of ours")]

    def fail_first(spool: Spool) -> None:
        if failures:
            raise failures.pop()
        remove(spool)

    monkeypatch.setattr(Spool, "remove_if_settled", fail_first)
    for key in ("first", "second"):
        assert store.child_run(None, name=key, key=key, tags={}).finish("FINISHED", timeout_seconds=30)
        assert run_of(store, key).info.status == "FINISHED"
    assert not failures


def test_the_next_command_deletes_what_is_left_of_a_removed_spool(
    open_store: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = open_store().child_run(None, name="stage", key="stage", tags={})
    with monkeypatch.context() as patch:
        patch.setattr("shutil.rmtree", lambda *_, **__: None)
        assert run.finish("FINISHED", timeout_seconds=30)
    root = run._spool.folder.parent
    assert list(root.rglob("records.jsonl"))
    assert open_store().send_leftovers(30) == 0
    assert not list(root.rglob("records.jsonl"))
