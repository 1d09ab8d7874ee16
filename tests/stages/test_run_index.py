"""The index of runs: one request per run, and never another state than the folders have."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from werkzeug.serving import WSGIRequestHandler

from contexts import make_context, next_command
from objectaware.config import PretrainConfig
from objectaware.data.storage import Storage
from objectaware.errors import InputError
from objectaware.process import user_name
from objectaware.stages.lease import Generations, Lease
from objectaware.stages.run_index import indexed, read_entries
from objectaware.stages.runs import StoredRun, prunable, prune, stored_runs
from s3_server import object_store
from stage_runs import run_as


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage.from_uri(tmp_path / "runs")


def _identity(number: int) -> str:
    return f"{number:020x}"


def _folder(storage: Storage, number: int) -> Storage:
    return storage.child("pretrain").child(_identity(number))


def _compute(storage: Storage, number: int, *, source: int = 0, fails: bool = False) -> None:
    """Do what a command does to the files of a stage."""
    folder = _folder(storage, number)
    with Lease(folder) as lease:
        guarded = folder.guarded(lease.claim)
        with indexed("pretrain", guarded):
            config = {"data": {"root": "photos"}, "checkpoint": f"/runs/pretrain/{_identity(source)}/train/epoch_0000"}
            guarded.write_json("stage.json", {"config": config, "inputs": {"data": "d"}})
            if fails:
                raise RuntimeError("broken")
            guarded.write_bytes("train/epoch_0000/state.pt", bytes(100))
            made = guarded.child("train/epoch_0000").uri
            guarded.write_json("result.json", {"values": {"checkpoint": made, "loss": 1.5}})


def _lasting(runs: list[StoredRun]) -> list[StoredRun]:
    """Return the runs without what the end of a lease changes after the entry was written."""
    return sorted((replace(run, modified=0.0, num_bytes=0) for run in runs), key=lambda run: run.identity)


@pytest.fixture
def num_requests(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of requests that moto has had, in a list of one."""
    number = [0]

    def count(*_: object) -> None:
        number[0] += 1

    monkeypatch.setattr(WSGIRequestHandler, "log_request", count)
    return number


def test_a_list_makes_one_request_per_run(num_requests: list[int]) -> None:
    with object_store() as address:
        storage = Storage.from_uri(address.format("runs"))
        needed = []
        for number in range(8):
            _compute(storage, number, source=number - 1 if number else 99)
            num_requests[0] = 0
            runs = stored_runs(storage)
            needed.append(num_requests[0])
        assert len(runs) == 8
        assert runs[-1].made_from == {_identity(6)}
        assert needed[-1] - needed[0] <= 7
        num_requests[0] = 0
        storage.child("index").delete_all()
        num_requests[0] = 0
        assert _lasting(stored_runs(storage)) == _lasting(runs)
        assert num_requests[0] > needed[-1] + 3 * 8  # the slow way, which is counted by the same means


def test_the_index_shows_what_the_folders_hold(storage: Storage) -> None:
    for number in range(3):
        _compute(storage, number, source=number + 1)
    with pytest.raises(RuntimeError):
        _compute(storage, 3, fails=True)
    assert sorted(read_entries(storage)) == [_identity(number) for number in range(4)]
    by_index = stored_runs(storage)
    assert [run.status for run in _lasting(by_index)] == [*["finished"] * 3, "unfinished"]
    assert by_index[0].values == {"checkpoint": f"{_folder(storage, 0).uri}/train/epoch_0000", "loss": 1.5}
    assert by_index[0].checkpoint == "train/epoch_0000"
    storage.child("index").delete_all()
    assert _lasting(stored_runs(storage)) == _lasting(by_index)


def test_a_run_that_is_computed_again_is_running_and_then_what_its_command_leaves(storage: Storage) -> None:
    _compute(storage, 0)
    folder = _folder(storage, 0)
    with Lease(folder) as lease, indexed("pretrain", folder.guarded(lease.claim)):
        folder.delete("result.json")
        (run,) = stored_runs(storage)
        assert run.status == "running"
    (run,) = stored_runs(storage)
    assert run.status == "unfinished"
    _compute(storage, 0)
    (run,) = stored_runs(storage)
    assert run.status == "finished"


def test_a_command_that_was_killed_leaves_no_entry_and_its_run_is_listed(storage: Storage) -> None:
    _compute(storage, 0)
    folder = _folder(storage, 0)
    computing = indexed("pretrain", folder)
    computing.__enter__()
    folder.delete("result.json")
    assert read_entries(storage) == {}
    assert [run.status for run in stored_runs(storage)] == ["unfinished"]


def test_a_command_that_lost_its_lease_leaves_the_entry_to_the_other(storage: Storage) -> None:
    folder = _folder(storage, 0)
    with Lease(folder) as lease:
        lease.claim.is_lost = True
        guarded = folder.guarded(lease.claim)
        with pytest.raises(Exception, match="taken over"), indexed("pretrain", guarded):
            pytest.fail("it may not begin")
        lease.claim.is_lost = False
        with indexed("pretrain", guarded):
            guarded.write_json("stage.json", {"config": {}})
            lease.claim.is_lost = True
        assert read_entries(storage) == {}
        lease.claim.is_lost = False


def test_runs_that_are_deleted_vanish_however_they_are_deleted(storage: Storage) -> None:
    for number in range(3):
        _compute(storage, number)
    with pytest.raises(RuntimeError):
        _compute(storage, 3, fails=True)
    _folder(storage, 1).delete_all()  # by hand
    prune(prunable(stored_runs(storage), all_users=True))
    assert [run.identity for run in _lasting(stored_runs(storage))] == [_identity(0), _identity(2)]
    assert sorted(read_entries(storage)) == [_identity(0), _identity(1), _identity(2)]  # 1 counts for nothing


def test_a_run_that_was_taken_up_after_the_list_is_not_deleted(
    storage: Storage, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(4):
        with pytest.raises(RuntimeError):
            _compute(storage, number, fails=True)
    leaving = prunable(stored_runs(storage), all_users=True)
    assert len(leaving) == 4
    _compute(storage, 0)
    stage_file = Path(_folder(storage, 1).uri, "stage.json")  # a command began and was killed
    os.utime(stage_file, (stage_file.stat().st_mtime + 10,) * 2)
    _folder(storage, 2).delete_all()
    assert prune(leaving)[0] == 2  # and the last one
    runs = _lasting(stored_runs(storage))
    assert [(run.identity, run.status) for run in runs] == [(_identity(0), "finished"), (_identity(1), "unfinished")]
    assert [record.args for record in caplog.records] == [(run.folder.uri,) for run in runs]
    assert Generations(_folder(storage, 0)).newest() > 1  # its lease was given back, not deleted


@pytest.mark.parametrize("damaged", ["stage.json", "result.json"])
def test_a_damaged_file_hides_no_other_run_and_is_not_pruned(
    storage: Storage, damaged: str, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(2):
        _compute(storage, number, source=1)
    folder = _folder(storage, 0)
    folder.write_json("stage.json", {**folder.read_json("stage.json"), "user": user_name()})
    folder.write_bytes(damaged, b'{"val')
    storage.child("index").delete_all()
    runs = _lasting(stored_runs(storage))
    assert [run.status for run in runs] == ["unknown", "finished"]
    assert f"{folder.uri}/{damaged}" in caplog.text
    assert runs[0].made_from == (frozenset() if damaged == "stage.json" else {_identity(1)})
    assert prunable(runs) == []
    if damaged == "result.json":
        with pytest.raises(InputError, match="Restore the file"):
            _ = runs[0].values


def test_a_damaged_file_does_not_hide_the_error_that_ended_a_stage(storage: Storage) -> None:
    folder = _folder(storage, 0)

    def compute() -> None:
        with indexed("pretrain", folder):
            folder.write_bytes("stage.json", b"{")
            raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        compute()
    assert read_entries(storage) == {}


def test_a_folder_of_the_users_has_no_entry_and_loses_no_file(tmp_path: Path) -> None:
    context, out = make_context(tmp_path / "runs"), Storage.from_uri(tmp_path / "mine" / "masks")
    notes = tmp_path / "index" / "masks.json"
    notes.parent.mkdir()
    notes.write_text("the user's own")
    config = PretrainConfig.model_validate({"data": {"root": "photos"}})
    for is_fresh in (False, True):
        command = next_command(context, fresh=is_fresh)
        run_as(command, "pretrain", "masks", config, {}, lambda run, _: {}, tags={}, out=out)
    assert notes.read_text() == "the user's own"
    assert not (tmp_path / "runs" / "index").exists()


@pytest.mark.parametrize("entry", [b"", b"[]", b'{"sources": [], "of": "another version"}'])
def test_an_entry_that_this_version_does_not_know_is_looked_up(entry: bytes, storage: Storage) -> None:
    _compute(storage, 0)
    storage.child("index").write_bytes(f"{_identity(0)}.json", entry)
    assert [run.status for run in stored_runs(storage)] == ["finished"]
