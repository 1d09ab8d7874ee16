"""A sweep of eight trials at once into a real MLflow server, with an S3 store for everything else."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from mlflow import MlflowClient
from mlflow.entities import Run

from mlflow_server import mlflow_server_on
from objectaware.config import DataConfig
from objectaware.data.dataset import Dataset
from objectaware.data.folder import ImageFolder
from objectaware.data.scenes import build_scenes
from objectaware.data.storage import Storage
from objectaware.localize.mask_store import MaskRow, write_shard
from postgresql import postgresql
from s3_server import BUCKET, s3_server
from tiny_sweep import scenes_data

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

SIZES = [32, 40, 48, 56, 64, 72, 80, 88]


def _sweep(folder: Path) -> dict[str, Any]:
    """Eight trials that score masks in the store, each at its own size, and share an evaluation of a checkpoint."""
    return {
        "name": "eight",
        "stages": {
            "masks": {
                "stage": "localization",
                "fields": {"data": scenes_data(folder, "val"), "masks": {"found": f"s3://{BUCKET}/given/masks"}},
            },
            "linear": {
                "stage": "linear",
                "fields": {
                    "checkpoint": f"s3://{BUCKET}/given/checkpoint",
                    "train": scenes_data(folder, "train"),
                    "tests": {"val": scenes_data(folder, "val")},
                    "image_size": 32,
                    "num_penalties": 2,
                },
            },
        },
        "parameters": {"size": {"paths": ["masks.image_size"], "grid": SIZES}},
        "metric": "masks.scores.found.miou",
        "columns": {"miou": "masks.scores.found.miou", "accuracy": "linear.accuracies.val"},
        "execution": {"max_concurrent": 8},
    }


def _put_checkpoint_and_masks(store: Storage, scenes: Path, checkpoint: Path) -> None:
    for file in checkpoint.iterdir():
        store.child("checkpoint").write_bytes(file.name, file.read_bytes())
    data = DataConfig.model_validate(scenes_data(scenes, "val"))
    images = data.open()
    assert isinstance(images, ImageFolder)
    truth = Dataset.of(data).truth()
    masks = [truth[index] for index in range(len(truth))]
    rows = [
        MaskRow(name, mask.shape[1], mask.shape[0], cam=mask.astype("float32"), mask=mask)
        for name, mask in zip(images.image_ids, masks, strict=True)
    ]
    write_shard(store.child("masks"), 0, rows)
    store.child("masks").write_json("store.json", {"identity": "given", "config": {"crf": False}, "inputs": {}})


def test_no_run_is_lost_or_locked_out(
    tmp_path: Path,
    clean_environment: Path,
    tiny_checkpoint: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scenes, state = tmp_path / "scenes", tmp_path / "state"
    build_scenes(scenes, variant="single-object", num_train=45, num_val=18, image_size=48, seed=0)
    (tmp_path / "eight.yaml").write_text(yaml.safe_dump(_sweep(scenes)))
    artifacts = f"s3://{BUCKET}/mlflow"
    with (
        s3_server() as aws,
        postgresql() as database,
        mlflow_server_on(database, artifacts, aws, num_processes=2) as address,
    ):
        for name, value in aws.items():
            monkeypatch.setenv(name, value)
        _put_checkpoint_and_masks(Storage.from_uri(f"s3://{BUCKET}/given"), scenes, tiny_checkpoint)
        ray_folder = clean_environment / "eight"
        ray_folder.mkdir()
        environment = {
            **os.environ,
            "MLFLOW_TRACKING_URI": address,
            "OBJECTAWARE_STORAGE": f"s3://{BUCKET}/runs",
            "RAY_TMPDIR": str(ray_folder),
            "XDG_STATE_HOME": str(state),
        }
        command = [sys.executable, "-m", "objectaware.cli", "sweep", "eight.yaml", "--json", "result.json"]
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=1200
        )
        assert done.returncode == 0, done.stderr
        assert "up to 8 at once" in done.stderr
        result = json.loads((tmp_path / "result.json").read_text())
        # A command waits ten seconds for its last records; what a busy server has not taken, the next one sends.
        again = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=1200
        )
        assert again.returncode == 0, again.stderr
        assert "0 trials were run now" in again.stdout
        _assert_all_is_recorded(MlflowClient(address), result)
    assert not list(state.rglob("rejected"))


def _assert_all_is_recorded(client: MlflowClient, result: dict[str, Any]) -> None:
    experiment = client.get_experiment_by_name("objectaware")
    assert experiment is not None
    runs = list(client.search_runs([experiment.experiment_id]))
    assert {run.info.status for run in runs} == {"FINISHED"}
    (parent,) = [run for run in runs if "mlflow.parentRunId" not in run.data.tags]
    assert parent.info.run_id == result["run_id"]
    assert {run.data.tags.get("mlflow.parentRunId") for run in runs} == {None, parent.info.run_id}
    by_stage: dict[str, list[Run]] = {}
    for run in runs:
        by_stage.setdefault(run.data.tags.get("stage", "sweep"), []).append(run)
    counts = {stage: len(found) for stage, found in by_stage.items()}
    assert counts == {"sweep": 1, "trial": 8, "localization": 8, "linear": 1}
    assert _most_at_once(by_stage["trial"]) > 1
    found = {int(run.data.params["size"]): run.data.metrics for run in by_stage["trial"]}
    for row in result["trials"]:
        assert found[row["size"]] == pytest.approx({"miou": row["miou"], "accuracy": row["accuracy"]})
    assert sorted(found) == SIZES
    assert all(0.9 < metrics["miou"] <= 1 for metrics in found.values())
    stored = {name for name, _, _ in Storage.from_uri(f"s3://{BUCKET}/mlflow").list_files()}
    for run in runs:
        assert any(f"/{run.info.run_id}/artifacts/config.json" in f"/{name}" for name in stored), run.info.run_name
    assert any(name.endswith(f"{parent.info.run_id}/artifacts/tables/comparison.json") for name in stored)


def _most_at_once(runs: list[Run]) -> int:
    """The largest number of runs that were open at a time."""
    changes = sorted([(run.info.start_time, 1) for run in runs] + [(run.info.end_time, -1) for run in runs])
    return max(itertools.accumulate(change for _, change in changes))
