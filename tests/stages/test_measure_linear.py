"""The evaluations' work on small data."""

from __future__ import annotations

import io
import os
import pickle
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from contexts import next_command
from in_process import Tasks, write_colours
from objectaware.config import DataConfig
from objectaware.errors import InputError
from objectaware.stages import features
from objectaware.stages.linear import LinearConfig, linear
from objectaware.stages.run_index import read_entries
from objectaware.stages.runner import Context
from objectaware.stages.runs import prunable, stored_runs
from published_trees import write_flowers

COLOURS = {"grass": "green", "sky": "blue", "brick": "red"}


@pytest.fixture
def config(tmp_path: Path, tiny_checkpoint: Path) -> LinearConfig:
    return linear_config(tmp_path, tiny_checkpoint)


def linear_config(root: Path, checkpoint: Path, **fields: Any) -> LinearConfig:
    """Three colours to learn, and two sets to be tested on."""
    values = {
        "checkpoint": str(checkpoint),
        "train": write_colours(root / "train", COLOURS, 6),
        "tests": {
            "all": write_colours(root / "all", COLOURS, 2),
            # The pictures of grass show a blue sky.
            "swapped": write_colours(root / "swapped", {"brick": "red", "grass": "blue"}, 2),
        },
        "image_size": 32,
        "holdout_size": 6,
        "num_penalties": 5,
        "execution": {"use_gpu": False},
    }
    return LinearConfig.model_validate({**values, **fields})


def shown(context: Context) -> str:
    stream = context.services.progress._stream
    assert isinstance(stream, io.StringIO)
    return stream.getvalue()


def test_accuracy_by_class_names_the_classes_that_have_test_images(
    context: Context, tasks: Tasks, config: LinearConfig
) -> None:
    values = linear(context, config).values
    assert values["class_accuracies"]["all"] == {"brick": 100.0, "grass": 100.0, "sky": 100.0}
    assert values["class_accuracies"]["swapped"] == {"brick": 100.0, "grass": 0.0}
    assert values["accuracies"] == {"all": 100.0, "swapped": 50.0}
    assert values["coverage"]["all"]["untested_classes"] == []
    assert values["coverage"]["swapped"]["untested_classes"] == ["sky"]
    assert values["coverage"]["swapped"]["num_samples"] == 4
    assert not values["streamed"]


def test_another_evaluation_of_the_checkpoint_computes_no_features_again(
    context: Context, tasks: Tasks, config: LinearConfig, tmp_path: Path
) -> None:
    linear(context, config)
    assert tasks.count("write_parts") == 3  # one for each data set; a worker gets up to four at once
    fewer = config.model_copy(update={"num_penalties": 3, "tests": {"again": config.tests["all"]}})
    linear(context, fewer)
    assert tasks.count("write_parts") == 3
    assert tasks.count("measure_linear") == 2
    larger = config.model_copy(update={"image_size": 40})
    linear(context, larger)
    assert tasks.count("write_parts") == 6


def test_what_is_fresh_is_computed_anew_once(context: Context, tasks: Tasks, config: LinearConfig) -> None:
    linear(context, config)
    context = next_command(context, fresh=True)
    linear(context, config)
    linear(context, config.model_copy(update={"num_penalties": 3}))
    assert tasks.count("write_parts") == 6


def test_parts_that_are_there_are_kept_and_the_rest_is_computed(
    context: Context, tasks: Tasks, config: LinearConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(features, "PART_SIZE", 4)
    expected = linear(context, config).values
    folders = sorted(Path(context.services.storage.uri, "features").iterdir())
    (train,) = [folder for folder in folders if len(list(folder.glob("*.npy"))) == 5]  # 18 images, 4 a part
    before = {path.name: path.stat().st_mtime_ns for path in train.glob("*.npy")}
    (train / "part-00002.json").unlink()
    (train / "part-00004.json").unlink()
    Path(context.services.storage.uri, "linear").rename(Path(context.services.storage.uri, "done"))
    tasks.calls.clear()
    assert linear(context, config).values["accuracies"] == expected["accuracies"]
    parts = [part.number for name, given in tasks.calls if name == "write_parts" for part in given[1]]
    assert parts == [2, 4]
    changed = {path.name for path in train.glob("*.npy") if path.stat().st_mtime_ns != before[path.name]}
    assert changed == {"part-00002.npy", "part-00004.npy"}


def test_the_index_follows_the_features_and_prune_leaves_those_that_are_being_computed(
    context: Context, tasks: Tasks, config: LinearConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = context.services.storage
    linear(context, config)
    sets = set(storage.child("features").list_folders())
    assert len(sets) == 3
    assert {identity for identity, entry in read_entries(storage).items() if entry.status == "finished"} >= sets
    for path in Path(storage.uri, "features").rglob("*.*"):
        os.utime(path, (0, 0))

    def look_and_break(*_: object, **__: object) -> None:
        runs = [run for run in stored_runs(storage) if run.stage == "features"]
        assert [run.status for run in runs] == ["unfinished"] * 3
        assert prunable(runs) == []
        assert len(prunable(runs, now=time.time() + 2 * 86400)) == 3
        raise RuntimeError("broken")

    with monkeypatch.context() as patch:
        patch.setattr(features, "compute_features", look_and_break)
        with pytest.raises(RuntimeError, match="broken"):
            linear(next_command(context, fresh=True), config)
    assert not sets & read_entries(storage).keys()
    (Path(storage.uri, "features", min(sets)) / "part-00000.json").unlink()
    linear(context, config)
    assert {identity for identity, entry in read_entries(storage).items() if entry.status == "finished"} >= sets


def test_a_machine_that_does_not_share_the_storage_computes_no_features(
    context: Context, config: LinearConfig, tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = Path(context.services.storage.uri)
    written: list[Path] = []

    def run_elsewhere(function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]], **_: object) -> list[Any]:
        """Run tasks where a folder of the storage's name is on the machine's own disk."""
        there = storage.rename(storage.with_name("on the driver"))
        try:
            return [function(*pickle.loads(pickle.dumps(given))) for given in arguments]
        finally:
            written.extend(storage.rglob("*"))
            shutil.rmtree(storage, ignore_errors=True)
            there.rename(storage)

    monkeypatch.setattr(features, "run_tasks", run_elsewhere)
    monkeypatch.setattr(features, "compute_features", lambda *_, **__: pytest.fail("it computes"))
    with pytest.raises(InputError, match="is not shared by the cluster"):
        linear(context, config)
    assert written == []


def test_features_too_large_for_the_solver_are_streamed_to_the_same_result(
    context: Context, tasks: Tasks, config: LinearConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(features, "PART_SIZE", 4)
    memory = linear(context, config).values
    # Where the solver works is no part of the identity.
    Path(context.services.storage.uri, "linear").rename(Path(context.services.storage.uri, "done"))
    monkeypatch.setattr("objectaware.stages.linear._MIB", 1)  # the limit of 8192 is in bytes then
    streamed = linear(context, config).values
    assert (streamed["streamed"], memory["streamed"]) == (True, False)
    assert shown(context).count("streamed from storage") == 1
    for key in ("accuracies", "class_accuracies", "penalty", "holdout_accuracy"):
        assert streamed[key] == memory[key]


def test_the_official_protocol_is_another_evaluation_and_does_not_stream(
    context: Context, tasks: Tasks, tmp_path: Path, tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("objectaware.evaluate.linear.OFFICIAL_MAX_ITERATIONS", 20)
    config = linear_config(tmp_path, tiny_checkpoint, compat="official")
    exact = config.model_copy(update={"compat": None})
    values = linear(context, config).values
    assert values["accuracies"]["all"] == 100.0
    assert linear(context, exact).identity != linear(context, config).identity
    monkeypatch.setattr("objectaware.stages.linear._MIB", 1)
    with pytest.raises(InputError, match="max_memory_mib = 8192: is too low"):
        linear(context, config.model_copy(update={"seed": 1}))


@pytest.mark.parametrize("compat", [None, "official"])
def test_the_validation_part_of_flowers_chooses_the_penalty(
    compat: str | None,
    context: Context,
    tasks: Tasks,
    tmp_path: Path,
    tiny_checkpoint: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("objectaware.evaluate.linear.OFFICIAL_MAX_ITERATIONS", 20)
    # One picture of each of two classes to learn. The second picture to validate with shows a third class.
    write_flowers(tmp_path / "flowers", {"trnid": [1, 2], "valid": [5, 3], "tstid": [6]})
    parts = {
        part: {"root": str(tmp_path / "flowers"), "layout": "flowers102", "split": part}
        for part in ("train", "val", "test")
    }
    fields = {"train": parts["train"], "tests": {"test": parts["test"]}, "holdout_size": None, "compat": compat}
    config = linear_config(tmp_path, tiny_checkpoint, **fields, validation=parts["val"])
    result = linear(context, config)
    assert tasks.count("write_parts") == 3
    assert result.values["coverage"]["validation"]["num_samples"] == 1
    assert result.values["coverage"]["validation"]["unknown_classes"] == {"002": 1}
    assert result.values["holdout_accuracy"] in (0.0, 100.0)
    assert "validation" in shown(context)
    record = result.folder.read_json("stage.json")
    assert set(record["inputs"]) == {"checkpoint", "train", "test test", "validation"}
    with pytest.raises(InputError, match="holds out none of 2 samples"):
        linear(context, linear_config(tmp_path / "other", tiny_checkpoint, **fields))


def test_a_validation_set_decides_in_memory_and_streamed(
    context: Context, tasks: Tasks, tmp_path: Path, tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(features, "PART_SIZE", 4)
    # Grass is right in the first and wrong in the second, so that no penalty is right for it.
    validation = {
        name: write_colours(tmp_path / name, colours, 2)
        for name, colours in (("same", COLOURS), ("swapped", {"brick": "red", "grass": "blue"}))
    }
    fields = {"holdout_size": None, "validation": validation["swapped"]}
    config = linear_config(tmp_path / "data", tiny_checkpoint, **fields)
    memory = linear(context, config).values
    other = linear(context, config.model_copy(update={"validation": validation["same"]})).values
    assert (memory["holdout_accuracy"], other["holdout_accuracy"]) == (50.0, 100.0)
    Path(context.services.storage.uri, "linear").rename(Path(context.services.storage.uri, "done"))
    monkeypatch.setattr("objectaware.stages.linear._MIB", 1)
    streamed = linear(context, config).values
    assert streamed["streamed"]
    for key in ("accuracies", "penalty", "holdout_accuracy"):
        assert streamed[key] == memory[key]


def test_an_unreadable_picture_is_counted_and_left_out(context: Context, tasks: Tasks, config: LinearConfig) -> None:
    Path(config.train.root, "sky", "0.png").write_bytes(b"")
    Path(config.tests["all"].root, "sky", "0.png").write_bytes(b"no picture")
    values = linear(context, config).values
    assert values["unreadable"] == 2
    assert values["accuracies"]["all"] == 100.0


def test_two_holdouts_are_refused(tmp_path: Path) -> None:
    data = DataConfig(root=str(tmp_path), layout="class-folders")
    with pytest.raises(ValidationError, match="leave one of them out"):
        LinearConfig(checkpoint="c", train=data, tests={}, holdout_size=5, holdout_fraction=0.1)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"holdout_size": 5}, "validation and holdout_size both choose the penalty"),
        ({"holdout_fraction": 0.1}, "validation and holdout_fraction both choose the penalty"),
        ({"refit": True}, "refit has no meaning with validation"),
        ({"tests": {"validation": {"root": "x"}}}, "tests names a set validation"),
    ],
)
def test_a_validation_set_refuses_what_contradicts_it(fields: dict[str, Any], problem: str, tmp_path: Path) -> None:
    data = {"root": str(tmp_path), "layout": "class-folders"}
    given = {"checkpoint": "c", "train": data, "tests": {}, "validation": data}
    assert not LinearConfig.model_validate(given).refit
    with pytest.raises(ValidationError, match=problem):
        LinearConfig.model_validate({**given, **fields})


def test_the_official_protocol_does_not_refit(tmp_path: Path) -> None:
    data = DataConfig(root=str(tmp_path), layout="class-folders")
    assert not LinearConfig(checkpoint="c", train=data, tests={}, compat="official").refit
    with pytest.raises(ValidationError, match="does not refit"):
        LinearConfig(checkpoint="c", train=data, tests={}, compat="official", refit=True)
