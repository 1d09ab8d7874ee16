"""A sweep is killed; two commands that are started at once after that run only what was not done, between them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from mlflow import MlflowClient

from objectaware.data.scenes import build_scenes
from processes import processes_using, wait_for_end
from tiny_sweep import sweep_fields


def _start(folder: Path, ray_folder: Path, output: str) -> subprocess.Popen[str]:
    ray_folder.mkdir()
    command = [sys.executable, "-m", "objectaware.cli", "sweep", "tiny.yaml", "--json", output]
    environment = {**os.environ, "RAY_TMPDIR": str(ray_folder)}
    return subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def _records(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in (folder / "runs" / "sweep").glob("*/trials/*.json")}


def _times(paths: dict[Path, bytes]) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in paths}


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_sweep_that_is_killed_goes_on_and_two_commands_share_it(tmp_path: Path, clean_environment: Path) -> None:
    build_scenes(tmp_path / "scenes", variant="single-object", num_train=144, num_val=45, image_size=48, seed=0)
    fields = sweep_fields(execution={"max_concurrent": 1})
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(fields, sort_keys=False))
    ray_folders = [clean_environment / f"s{number}" for number in range(3)]

    killed = _start(tmp_path, ray_folders[0], "killed.json")
    assert killed.stderr is not None
    lines = []
    for line in killed.stderr:
        lines.append(line)
        if ": finished: accuracy" in line:
            break
    killed.kill()
    killed.wait()
    done = _records(tmp_path)
    times = _times(done)
    assert done, "".join(lines)

    both = [_start(tmp_path, ray_folders[number], f"{number}.json") for number in (1, 2)]
    errors = [process.communicate()[1] for process in both]
    assert [process.returncode for process in both] == [0, 0], errors
    results: list[dict[str, Any]] = [json.loads((tmp_path / f"{number}.json").read_text()) for number in (1, 2)]
    assert results[0]["trials"] == results[1]["trials"]
    assert [row["status"] for row in results[0]["trials"]] == ["finished"] * 4
    num_run = sorted(result["num_run"] for result in results)
    assert num_run[0] == 0
    assert 0 < num_run[1] <= 4 - len(done)
    assert "waiting: another command" in "".join(errors)
    assert _times(done) == times

    client = MlflowClient(f"sqlite:///{tmp_path / 'runs' / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("objectaware")
    assert experiment is not None
    runs = list(client.search_runs([experiment.experiment_id]))
    assert {run.info.status for run in runs} == {"FINISHED"}
    assert len(runs) == 1 + 1 + 4 + 4  # the sweep, the training, linear evaluations and trials
    for folder in ray_folders:
        for process_id in processes_using(folder):
            wait_for_end(process_id, seconds=60)
