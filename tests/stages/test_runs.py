from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from contexts import make_context
from objectaware.config import LocalizeConfig, Model, PretrainConfig
from objectaware.data.storage import Storage
from objectaware.errors import InputError
from objectaware.evaluate.coverage import Coverage
from objectaware.process import user_name
from objectaware.stages.lease import Lease
from objectaware.stages.linear import LinearConfig
from objectaware.stages.run_index import indexed
from objectaware.stages.runner import Context, StageResult
from objectaware.stages.runs import (
    StoredRun,
    ancestors,
    compared,
    descendants,
    find_run,
    format_bytes,
    listed,
    prunable,
    prune,
    shown,
    stored_runs,
)
from objectaware.tracking.store import RecordedRun
from stage_runs import run_as

DAY = 86400.0
FILES = {"pretrain": "train/epoch_0000/weights", "localize": "store.json", "linear": "classifier.safetensors"}


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Context:
    folder = tmp_path_factory.mktemp("runs")
    return make_context(folder)


def _stage(context: Context, stage: str, config: Model, inputs: Mapping[str, str], **values: Any) -> StageResult:
    def compute(run: Any, _: object) -> Mapping[str, Any]:
        run.folder.write_bytes(FILES[stage], bytes(100))
        run.tracker.log_metrics({name: value for name, value in values.items() if isinstance(value, float)})
        if values.get("error"):
            raise RuntimeError(values["error"])
        if stage == "pretrain":
            return {"checkpoint": f"{run.folder.uri}/train/epoch_0000"}
        return {**values, "coverage": {"val": Coverage(1).values()}}

    return run_as(context, stage, stage, config, inputs, compute, tags={"dataset": "photos"})


def _network(seed: int, **fields: Any) -> PretrainConfig:
    return PretrainConfig.model_validate({"data": {"root": "photos"}, "seed": seed, **fields})


def _linear(checkpoint: str, **fields: Any) -> LinearConfig:
    labels = {"root": "labels", "layout": "class-folders"}
    return LinearConfig.model_validate({"checkpoint": checkpoint, "train": labels, "tests": {"val": labels}, **fields})


@pytest.fixture(scope="module")
def made(context: Context) -> dict[str, StageResult]:
    """A network, masks that it found, a network trained on these, its linear evaluations, and a failed training."""
    network = _stage(context, "pretrain", _network(0), {"data": "d"})
    masks = _stage(
        context,
        "localize",
        LocalizeConfig.model_validate({"data": {"root": "photos"}, "checkpoint": network.values["checkpoint"]}),
        {"data": "d", "checkpoint": "a hash of weights"},
    )
    # Masks may lie in a folder of the user's, and are known by the identity among the inputs.
    debiased = _stage(
        context,
        "pretrain",
        _network(1, policy={"name": "object_crop", "masks": "my/masks"}),
        {"data": "d", "masks": masks.identity},
    )
    checkpoint = debiased.values["checkpoint"]
    linear = _stage(context, "linear", _linear(checkpoint), {"train": "t"}, accuracy=61.5, penalty=0.1)
    other = _stage(context, "linear", _linear(checkpoint, seed=7), {"train": "t"}, accuracy=60.0, penalty=0.1)
    with pytest.raises(RuntimeError):
        _stage(context, "pretrain", _network(2), {"data": "d"}, error="broken")
    context.services.tracking.send_leftovers(30)
    return {"network": network, "masks": masks, "debiased": debiased, "linear": linear, "other": other}


@pytest.fixture
def stored(context: Context, made: dict[str, StageResult]) -> list[StoredRun]:
    return stored_runs(context.services.storage)


@pytest.fixture
def recorded(context: Context, made: dict[str, StageResult]) -> list[RecordedRun]:
    return context.services.tracking.recorded_runs()


def _names(runs: list[StoredRun], made: dict[str, StageResult]) -> list[str]:
    names = {result.identity: name for name, result in made.items()}
    return sorted(names.get(run.identity, "failed") for run in runs)


def test_every_run_is_found_with_its_status(stored: list[StoredRun], made: dict[str, StageResult]) -> None:
    assert _names(stored, made) == ["debiased", "failed", "linear", "masks", "network", "other"]
    assert [run.status for run in stored if run.status != "finished"] == ["unfinished"]
    network = find_run(stored, made["network"].identity)
    assert network.num_bytes > 100
    assert network.dataset == str(Path("photos").absolute())
    assert network.checkpoint == "train/epoch_0000"


def test_lineage_goes_by_addresses_and_by_identities(stored: list[StoredRun], made: dict[str, StageResult]) -> None:
    linear = find_run(stored, made["linear"].identity)
    assert _names(ancestors(stored, linear), made) == ["debiased", "masks", "network"]
    masks = find_run(stored, made["masks"].identity)
    assert _names(descendants(stored, masks), made) == ["debiased", "linear", "other"]


def test_a_storage_that_was_moved_keeps_its_lineage(
    context: Context, made: dict[str, StageResult], tmp_path: Path
) -> None:
    (tmp_path / "moved").symlink_to(context.services.storage.uri)
    runs = stored_runs(Storage.from_uri(tmp_path / "moved"))
    assert _names(ancestors(runs, find_run(runs, made["linear"].identity)), made) == ["debiased", "masks", "network"]


def test_what_can_go_is_unfinished_and_nothing_that_is_needed(
    stored: list[StoredRun], made: dict[str, StageResult]
) -> None:
    assert _names(prunable(stored), made) == ["failed"]
    later = max(run.modified for run in stored) + 10 * DAY
    assert len(prunable(stored, older_than_days=5, now=later)) == 6
    assert _names(prunable(stored, older_than_days=20, now=later), made) == ["failed"]
    # One evaluation is young: all that it was made from stays.
    young = [
        StoredRun(**{**vars(run), "modified": later}) if run.identity == made["linear"].identity else run
        for run in stored
    ]
    assert _names(prunable(young, older_than_days=5, now=later), made) == ["failed", "other"]


def test_only_ones_own_runs_can_go_unless_all_users_are_asked_for(
    stored: list[StoredRun], made: dict[str, StageResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert {run.user for run in stored} == {user_name()}
    later = max(run.modified for run in stored) + 10 * DAY
    nobodys = [replace(run, user=None) for run in stored]
    for runs, name in ((stored, "somebody else"), (nobodys, user_name())):
        monkeypatch.setattr("objectaware.stages.runs.user_name", lambda name=name: name)
        assert prunable(runs, older_than_days=5, now=later) == []
        assert len(prunable(runs, older_than_days=5, now=later, all_users=True)) == 6
    # A job that does not say who submitted it takes nobody's runs for its own.
    monkeypatch.setattr("objectaware.stages.runs.user_name", lambda: None)
    assert prunable(nobodys, older_than_days=5, now=later) == []


def test_a_run_that_is_being_computed_stays(context: Context, stored: list[StoredRun]) -> None:
    (failed,) = prunable(stored)
    with Lease(failed.folder), indexed("pretrain", failed.folder):
        assert prunable(stored_runs(context.services.storage)) == []


def test_a_name_means_one_run(stored: list[StoredRun], made: dict[str, StageResult]) -> None:
    assert find_run(stored, made["linear"].identity[:8]).identity == made["linear"].identity
    for name in ("", made["linear"].identity[:3], "no such run"):
        with pytest.raises(InputError, match="runs list"):
            find_run(stored, name)


def test_the_list_joins_storage_and_mlflow(stored: list[StoredRun], recorded: list[RecordedRun]) -> None:
    study = RecordedRun("id", "demo", "demo-key", "demo", "FINISHED", 0, "scenes", {})
    trial = RecordedRun("id", "trial", "trial-key", "trial", "FINISHED", 0, None, {})
    rows = listed(stored, [*recorded, study, trial])
    assert len(rows) == 7
    assert [(row["status"], row["MLflow"]) for row in rows if row["status"] != "finished"] == [
        ("unfinished", "FAILED"),
        ("not stored", "FINISHED"),
    ]
    assert listed(stored, [])[0]["MLflow"] is None


def test_a_run_is_shown_with_what_it_was_made_from_and_into(
    stored: list[StoredRun], recorded: list[RecordedRun], made: dict[str, StageResult]
) -> None:
    values = shown(stored, find_run(stored, made["linear"].identity), recorded)
    assert values["metrics"]["accuracy"] == 61.5
    assert [line.split()[1] for line in values["made from"]] == ["pretrain", "localize", "pretrain"]
    assert values["made into"] == []
    assert values["MLflow"][0]["status"] == "FINISHED"


def test_a_comparison_shows_what_differs_and_the_numbers(
    stored: list[StoredRun], recorded: list[RecordedRun], made: dict[str, StageResult]
) -> None:
    pair = [find_run(stored, made[name].identity) for name in ("linear", "other")]
    rows = {row["field"]: tuple(row.values())[1:] for row in compared(pair, recorded)}
    assert rows == {
        "seed": (0, 7),
        "accuracy": (61.5, 60.0),
        "penalty": (0.1, 0.1),
        "coverage.val.num_samples": (1, 1),
    }


def test_pruning_deletes_the_folder_and_nothing_else(context: Context, made: dict[str, StageResult]) -> None:
    stray = context.services.storage.child("linear").child("0" * 20)
    stray.write_bytes("stage.json", b"x")
    stray.delete("stage.json")
    stray.write_bytes("classifier.safetensors", b"x")
    context.services.storage.child("linear").child("my notes").write_bytes("thesis.tex", b"x")
    leaving = prunable(stored_runs(context.services.storage), all_users=True)
    assert [run.status for run in leaving] == ["unfinished", "unknown"]
    leaving[0].folder.write_bytes("notes.txt", b"kept")
    leaving[0].folder.child("lease").write_bytes("mine.txt", b"kept")
    num_runs, num_bytes, kept = prune(leaving)
    assert num_runs == len(leaving)
    assert 100 < num_bytes < 10_000
    assert kept == {leaving[0].folder.uri: ["notes.txt"]}
    assert [name for run in leaving for name, _, _ in run.folder.list_files()] == [
        "lease/mine.txt",
        "notes.txt",
        "stage.json",
    ]
    assert not Path(stray.uri).exists()
    assert context.services.storage.read_bytes("linear/my notes/thesis.tex") == b"x"
    leaving[0].folder.delete_all()
    assert _names(stored_runs(context.services.storage), made) == ["debiased", "linear", "masks", "network", "other"]


@pytest.mark.parametrize(("size", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 * 2**40, "5.0 TiB")])
def test_sizes_are_written_as_people_read_them(size: int, text: str) -> None:
    assert format_bytes(size) == text
