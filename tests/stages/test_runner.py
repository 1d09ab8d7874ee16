from __future__ import annotations

import io
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from contexts import make_context, next_command, with_progress
from objectaware.config import PretrainConfig
from objectaware.data.storage import Storage
from objectaware.distributed import machines
from objectaware.errors import InputError
from objectaware.evaluate.coverage import Coverage
from objectaware.stages import progress as progress_module
from objectaware.stages.identity import STAGE_FILE
from objectaware.stages.lease import Generations, Lease, LeaseHeldError, LeaseLostError
from objectaware.stages.linear import LinearConfig
from objectaware.stages.progress import Progress
from objectaware.stages.runner import Context, EpochWatch, StageResult, StageRun
from objectaware.tracking import TrackingStore
from s3_server import object_store
from stage_runs import run_as


@pytest.fixture
def context(tmp_path: Path, tracking: TrackingStore) -> Context:
    return make_context(tmp_path, tracking)


CONFIG = PretrainConfig.model_validate({"data": {"root": "photos"}})


class _Work:
    """A stage that counts how often it is computed."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.calls = 0
        self.error = error

    def __call__(self, run: StageRun, _: object) -> Mapping[str, Any]:
        self.calls += 1
        run.tracker.log_metrics({"loss": 1.0}, step=0)
        if self.error is not None:
            raise self.error
        return {"answer": 42}


class _Files:
    """A stage that writes files."""

    def __init__(self, names: list[str]) -> None:
        self.names = names

    def __call__(self, run: StageRun, _: object) -> Mapping[str, Any]:
        for name in self.names:
            run.folder.write_bytes(name, b"computed")
        return {}


def _run(
    context: Context, work: Callable[[StageRun], Mapping[str, Any]], *, data: str = "d", out: Storage | None = None
) -> StageResult:
    return run_as(context, "pretrain", "title", CONFIG, {"data": data}, work, tags={"method": "moco"}, out=out)


def _status(context: Context, run_id: str | None) -> str:
    assert run_id is not None
    return context.services.tracking.server.client.get_run(run_id).info.status


def test_a_finished_stage_is_reused(context: Context) -> None:
    work = _Work()
    first, second = _run(context, work), _run(context, work)
    assert work.calls == 1
    assert not first.reused
    assert second.reused
    assert second.values == {"answer": 42}
    assert first.identity == second.identity
    assert _status(context, first.run_id) == "FINISHED"


def test_a_stage_that_reports_nothing_is_heard_of(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    written = threading.Event()

    class Stream(io.StringIO):
        def write(self, text: str) -> int:
            if "still at work" in text:
                written.set()
            return super().write(text)

    def wait(run: StageRun, _: object = None) -> Mapping[str, Any]:
        return {"heard": written.wait(30)}

    monkeypatch.setattr(progress_module, "_SECONDS_BETWEEN_LINES", 0.0)
    monkeypatch.setattr(progress_module, "_SECONDS_BETWEEN_LOOKS", 0.01)
    assert _run(with_progress(context, Progress(Stream())), wait).values == {"heard": True}


def test_other_inputs_are_another_stage(context: Context) -> None:
    work = _Work()
    _run(context, work)
    _run(context, work, data="other")
    assert work.calls == 2


def test_fresh_computes_anew_once_a_command(context: Context) -> None:
    work = _Work()
    _run(context, work)
    context = next_command(context, fresh=True)
    _run(context, work)
    _run(context, work)
    assert work.calls == 2


@pytest.mark.parametrize(("error", "status"), [(RuntimeError("broken"), "FAILED"), (KeyboardInterrupt(), "KILLED")])
def test_a_failed_stage_says_so_and_goes_on_in_its_run(context: Context, error: BaseException, status: str) -> None:
    with pytest.raises(type(error)):
        _run(context, _Work(error))
    runs = context.services.tracking.server.client.search_runs(
        [context.services.tracking.server.experiment_id("objectaware")], order_by=["attributes.start_time DESC"]
    )
    assert runs[0].info.status == status
    again = _run(context, _Work())
    assert again.run_id == runs[0].info.run_id
    assert _status(context, again.run_id) == "FINISHED"


def test_a_stage_that_was_stopped_has_not_failed(context: Context) -> None:
    stopped = replace(context, watch=EpochWatch(is_stopped=lambda: True))
    with pytest.raises(RuntimeError):
        _run(stopped, _Work(RuntimeError("Ray is gone")), data="stopped")
    runs = context.services.tracking.server.client.search_runs(
        [context.services.tracking.server.experiment_id("objectaware")], order_by=["attributes.start_time DESC"]
    )
    assert (runs[0].info.status, runs[0].data.tags["error"]) == ("KILLED", "stopped")


def test_a_stages_run_tells_how_busy_the_machine_was(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machines, "_SECONDS_TO_FIRST", 0.0)
    monkeypatch.setattr(machines, "_SECONDS_BETWEEN", 0.0)
    has_logged = threading.Event()
    shares = iter((10.0, 20.0, 30.0))

    def reading(seconds: float | None) -> dict[str, float]:
        share = next(shares, None)
        if share is None:  # all of them are logged
            has_logged.set()
        return {} if share is None else {"cpu_utilization_percentage": share}

    monkeypatch.setattr(machines, "reading", reading)

    def compute(run: StageRun, _: object) -> Mapping[str, Any]:
        assert has_logged.wait(timeout=60)
        return {}

    result = run_as(context, "pretrain", "title", CONFIG, {"data": "watched"}, compute, tags={})
    client = context.services.tracking.server.client
    history = client.get_metric_history(str(result.run_id), "system/cpu_utilization_percentage")
    # By the second, of which it has one value.
    assert history[0].value == 10
    assert history[0].step >= 0


def test_a_stages_run_says_what_it_measures_and_on_which_data(context: Context, tmp_path: Path) -> None:
    networks = []
    of_an_earlier_version = {"method": "byol", "backbone": "resnet18", "policy": "none"}
    for described in (
        {"method": {"name": "moco"}, "backbone": "resnet18", "policy": {"name": "none"}},
        of_an_earlier_version,
    ):
        folder = Storage.from_uri(tmp_path / str(len(networks)))
        folder.write_bytes("state.pt", b"weights")
        folder.write_json("config.json", described)
        networks.append(folder.uri)
    (tmp_path / "foreign.pth").write_bytes(b"weights")
    networks.append(str(tmp_path / "foreign.pth"))
    tests = {"rand": {"root": "s3://bucket/bg", "layout": "backgrounds-challenge", "split": "val"}}
    tests["rand"]["variant"] = "mixed_rand"
    fields = {"train": {"root": "photos", "layout": "class-folders"}, "tests": tests}
    config = LinearConfig.model_validate({"checkpoint": networks[0], "validation": fields["train"], **fields})
    result = run_as(
        context,
        "linear",
        "title",
        config,
        {"train": "t", "test rand": "r", "validation": "v"},
        lambda *_: {"coverage": {"rand": Coverage(1).values()}},
        tags={},
        networks=networks,
    )
    run = context.services.tracking.server.client.get_run(str(result.run_id))
    tags = run.data.tags
    assert [tags[name] for name in ("method", "backbone", "policy")] == ["moco, byol", "resnet18", "none"]
    assert tags["device"] not in ("cpu", "cuda")
    assert {(used.dataset.name, used.dataset.digest, used.tags[0].value) for used in run.inputs.dataset_inputs} == {
        ("photos", "t", "train"),
        ("photos", "v", "validation"),
        ("bg mixed_rand val", "r", "test"),
    }


def test_a_folder_of_another_run_is_refused(context: Context, tmp_path: Path) -> None:
    out = Storage.from_uri(tmp_path / "out")
    _run(context, _Work(), out=out)
    with pytest.raises(InputError, match="belongs to another run"):
        _run(context, _Work(), data="other", out=out)


def _photos(folder: Path) -> dict[str, bytes]:
    """Files of a user's, in a folder that a command is given by mistake."""
    (folder / "sub").mkdir(parents=True)
    files = {"thesis.tex": b"\\section{Results}", "sub/data.csv": b"1,2,3"}
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return files


def _files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("fresh", [False, True])
def test_a_folder_that_holds_anything_else_is_refused_and_left_alone(
    context: Context, tmp_path: Path, fresh: bool
) -> None:
    out = tmp_path / "out"
    files = _photos(out)
    context = next_command(context, fresh=fresh)
    work = _Work()
    with pytest.raises(InputError, match=r"out = .*no stage of objectaware has written \(sub, thesis.tex\)"):
        _run(context, work, out=Storage.from_uri(out))
    assert work.calls == 0
    assert _files(out) == files


@pytest.mark.parametrize("fresh", [False, True])
def test_a_prefix_of_a_bucket_that_holds_anything_else_is_refused(context: Context, fresh: bool) -> None:
    context = next_command(context, fresh=fresh)
    with object_store() as form:
        bucket = Storage.from_uri(form.format("folder"))
        bucket.write_bytes("sub/data.csv", b"1,2,3")
        with pytest.raises(InputError, match="no stage of objectaware"):
            _run(context, _Work(), out=bucket)
        assert [name for name, _, _ in bucket.list_files()] == ["sub/data.csv"]


def test_fresh_deletes_what_the_stage_wrote_and_reports_the_rest(context: Context, tmp_path: Path) -> None:
    out = tmp_path / "out"
    stage = _Files(["train/epoch_0000/state.pt", "train/kept/epoch_0000/state.pt"])
    _run(context, stage, out=Storage.from_uri(out))
    (out / f".tmp-{'0f' * 16}").write_bytes(b"of a killed writer")
    files = _photos(out)
    files |= {".tmp-notes": b"", "sub/train": b"", "shard-000000.parquet": b"of another stage"}
    files |= {"train/notes.tex": b"of the user's"}
    for name, content in files.items():
        (out / name).write_bytes(content)
    stage.names = []
    text = io.StringIO()
    context = with_progress(next_command(context, fresh=True), Progress(text))
    _run(context, stage, out=Storage.from_uri(out))
    names = {*_files(out)}
    assert names >= {*files}
    assert {name.split("/")[0] for name in names - {*files}} == {"lease", "result.json", "stage.json"}
    assert ".tmp-notes, shard-000000.parquet, sub/data.csv, sub/train, thesis.tex and 1 more" in text.getvalue()


def test_a_users_folder_of_the_leases_name_is_refused(context: Context, tmp_path: Path) -> None:
    contract = tmp_path / "out" / "lease" / "contract.pdf"
    contract.parent.mkdir(parents=True)
    contract.write_bytes(b"signed")
    with pytest.raises(InputError, match=r"no stage of objectaware has written \(contract\.pdf\)"):
        _run(context, _Work(), out=Storage.from_uri(tmp_path / "out"))


def test_a_stage_that_is_refused_does_not_take_the_folder(context: Context, tmp_path: Path) -> None:
    def refuse(config: object) -> None:
        raise InputError("checkpoint", "nowhere", "does not exist", "Give another.")

    out = Storage.from_uri(tmp_path / "out")
    with pytest.raises(InputError, match="nowhere"):
        run_as(context, "pretrain", "title", CONFIG, {"data": "d"}, _Work(), tags={}, check=refuse, out=out)
    assert not out.exists(STAGE_FILE)
    _run(context, _Work(), data="other", out=out)


def test_what_was_half_begun_goes_on_and_starts_over(context: Context, tmp_path: Path) -> None:
    """The lease alone, or what a killed stage left."""
    out = Storage.from_uri(tmp_path / "out")
    with Lease(out):
        out.write_bytes(f".tmp-{'0f' * 16}", b"half of stage.json")
    with pytest.raises(RuntimeError):
        _run(context, _Work(RuntimeError("killed")), out=out)
    assert _run(next_command(context, fresh=True), _Work(), out=out).values == {"answer": 42}


@pytest.mark.parametrize("uri", ["storage", "file"])
def test_the_storage_itself_and_a_file_are_no_folder_of_a_stage(context: Context, tmp_path: Path, uri: str) -> None:
    (tmp_path / "file").write_bytes(b"")
    out = context.services.storage if uri == "storage" else Storage.from_uri(tmp_path / "file")
    with pytest.raises(InputError, match=r"is the storage|is a file"):
        _run(context, _Work(), out=out)


def test_a_stage_json_of_something_else_is_refused(context: Context, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "stage.json").write_text('["not ours"]')
    with pytest.raises(InputError, match="another run"):
        _run(context, _Work(), out=Storage.from_uri(tmp_path / "out"))


def test_a_stage_whose_lease_was_lost_writes_no_result(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("objectaware.stages.lease._RENEWAL_SECONDS", 0.01)
    folders: list[Storage] = []

    def compute(run: StageRun, _: object) -> Mapping[str, Any]:
        folders.append(run.folder)
        generations = Generations(run.folder.guarded(lambda: None))
        _, holder = generations.current()
        assert holder is not None
        while not generations.advance(generations.newest(), {**holder, "token": "thief", "machine": "elsewhere"}):
            pass
        threading.Event().wait(60)
        return {}

    with pytest.raises(LeaseLostError):
        run_as(context, "pretrain", "title", CONFIG, {"data": "lost"}, compute, tags={})
    assert not folders[0].exists("result.json")
    # How its MLflow run ends is for the thief to say.
    store = context.services.tracking
    assert store.send_leftovers(30) == 0
    runs = store.server.client.search_runs(
        [store.server.experiment_id("objectaware")], order_by=["attributes.start_time DESC"]
    )
    assert runs[0].info.status == "RUNNING"
    assert "error" not in runs[0].data.tags


class _Teller(Progress):
    """Tells when somebody waits."""

    def __init__(self) -> None:
        super().__init__(io.StringIO())
        self.waits = threading.Event()

    def line(self, text: str) -> None:
        if text.startswith("waiting"):
            self.waits.set()


def test_a_stage_that_another_command_computes_is_refused_or_waited_for(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("objectaware.stages.lease._SECONDS_BETWEEN_LOOKS", 0.01)
    first = _run(context, _Work())
    folder, teller, work = first.folder, _Teller(), _Work()
    result = folder.read_bytes("result.json")
    folder.delete("result.json")  # as if the other command were still at it
    other = with_progress(next_command(context, waits=True), teller)
    found: list[StageResult] = []
    with Lease(folder):
        with pytest.raises(LeaseHeldError):
            _run(context, work)
        thread = threading.Thread(target=lambda: found.append(_run(other, work)), daemon=True)
        thread.start()
        assert teller.waits.wait(timeout=60)
        folder.write_bytes("result.json", result)
    thread.join(timeout=60)
    assert work.calls == 0
    assert found[0].reused
    assert found[0].values == first.values
