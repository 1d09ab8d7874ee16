"""Jobs on a Ray head that knows the package only from what is uploaded with them."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from mlflow import MlflowClient
from mlflow.entities import Run

from objectaware.data.scenes import build_scenes
from objectaware.studies.demo import DemoConfig, demo_trainings
from ray_head import RayHead, ray_head
from tiny_sweep import scenes_data, sweep_fields

ROOT = Path(__file__).parents[2]
# What makes seconds of the minutes that the demo's pretraining takes.
SMALL = {"num_epochs": 1, "batch_size": 16, "method": {"queue_size": 64}}
WAITS = """\
import signal, sys, time
def stop(*_):
    print("saved", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, stop)
print("begun", flush=True)
time.sleep(600)
"""
Objectaware = Callable[..., "subprocess.CompletedProcess[str]"]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(clean_environment: Path) -> Path:
    """A folder with a short path, as Ray's sockets need."""
    return clean_environment / "jobs"


@pytest.fixture(scope="module")
def head(folder: Path) -> Iterator[RayHead]:
    """A head on which the package of any installation refuses to be imported."""
    poison = folder / "installed" / "objectaware"
    poison.mkdir(parents=True)
    (poison / "__init__.py").write_text("raise ImportError('not the uploaded package')\n")
    variables = {"PYTHONPATH": str(poison.parent), "OBJECTAWARE_STORAGE": str(folder / "storage")}
    with ray_head(folder / "ray", variables) as started:
        yield started


@pytest.fixture(scope="module")
def clone(folder: Path) -> Path:
    """A clone with data, runs and a secret in it."""
    scenes = folder / "scenes"
    build_scenes(scenes, variant="single-object", num_train=54, num_val=9, image_size=32, seed=0)
    clone = folder / "clone"
    for name in ("platform", "jobs"):
        shutil.copytree(ROOT / name, clone / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in (".gitignore", ".rayignore", "pyproject.toml"):
        shutil.copy(ROOT / name, clone)
    pretraining = {**demo_trainings(DemoConfig(image_size=32))[0], "data": scenes_data(scenes, "train"), **SMALL}
    (clone / "pretrain.yaml").write_text(yaml.safe_dump(pretraining))
    fields = sweep_fields(scenes, parameters={"holdout": {"paths": ["linear.holdout_size"], "grid": [10, 20]}})
    # The training of the job before it, which its trials find finished.
    fields["stages"]["network"] = {"stage": "pretrain", "recipe": "pretrain.yaml"}
    (clone / "sweep.yaml").write_text(yaml.safe_dump(fields, sort_keys=False))
    for name in ("data/image.png", "runs/note.txt", ".git/config", ".env", "out.log"):
        (clone / name).parent.mkdir(exist_ok=True)
        (clone / name).write_text("not for the cluster")
    return clone


@pytest.fixture
def objectaware(head: RayHead, clone: Path) -> Objectaware:
    """Runs `objectaware …` in the clone, as a user of the cluster."""

    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "objectaware.cli", *arguments]
        return subprocess.run(command, cwd=clone, env=_user(head), capture_output=True, text=True)

    return call


def _user(head: RayHead) -> dict[str, str]:
    return {**head.environment, "PYTHONPATH": str(ROOT / "platform"), "LOGNAME": "anna"}


def _ask(head: RayHead, what: str, job: str) -> str:
    script = f"import sys; from ray.job_submission import *; print(JobSubmissionClient().{what}(sys.argv[1]))"
    shown = subprocess.run([sys.executable, "-c", script, job], env=head.environment, capture_output=True, text=True)
    assert shown.returncode == 0, shown.stderr
    return shown.stdout.strip()


def _status(head: RayHead, job: str) -> str:
    return _ask(head, "get_job_status", job)


def _runs(folder: Path, job: str) -> dict[str, list[Run]]:
    """MLflow's runs that a job made, by what they are of."""
    client = MlflowClient(f"sqlite:///{folder / 'storage' / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("objectaware")
    assert experiment is not None
    found: dict[str, list[Run]] = {}
    for run in client.search_runs([experiment.experiment_id], f"tags.`ray.submission_id` = '{job}'"):
        assert run.info.status == "FINISHED"
        found.setdefault(run.data.tags.get("stage", "study"), []).append(run)
    return found


def _job(output: str) -> str:
    found = re.search(r"^job: (\S+)$", output, re.MULTILINE)
    assert found is not None, output
    return found[1]


def _run_of(output: str) -> str:
    found = re.search(r"^MLflow run: \S+/#/runs/(\w+)$", output, re.MULTILINE)
    assert found is not None, output
    return found[1]


@pytest.mark.timeout(600)
def test_rays_own_command_pretrains_as_the_demo_does(head: RayHead, clone: Path, folder: Path) -> None:
    command = [str(Path(sys.executable).parent / "ray"), "job", "submit", "--submission-id", "plain", "--working-dir"]
    command += [".", "--", "python", "jobs/pretrain.py", "pretrain.yaml"]
    submitted = subprocess.run(command, cwd=clone, env=head.environment, capture_output=True, text=True)
    assert submitted.returncode == 0, submitted.stdout + submitted.stderr
    assert _status(head, "plain") == "SUCCEEDED"
    (run,) = _runs(folder, "plain")["pretrain"]
    assert run.info.run_id == _run_of(submitted.stdout)
    assert run.data.metrics["loss"] > 0


@pytest.mark.timeout(600)
def test_objectaware_submits_and_follows_a_sweep(head: RayHead, objectaware: Objectaware, folder: Path) -> None:
    done = objectaware("submit", "--", "sweep", "sweep.yaml", "--storage", str(folder / "storage"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert _status(head, _job(done.stdout)) == "SUCCEEDED"
    runs = _runs(folder, _job(done.stdout))
    assert {kind: len(found) for kind, found in runs.items() if kind != "pretrain"} == {
        "study": 1,
        "trial": 2,
        "linear": 2,
    }
    assert runs["study"][0].info.run_id == _run_of(done.stdout)
    assert {run.data.params["holdout"] for run in runs["trial"]} == {"10", "20"}
    # The submitter, and not the one that the job's processes run as; also where a trial's process made the run.
    assert {run.info.user_id for found in runs.values() for run in found} == {"anna"}


@pytest.mark.timeout(300)
def test_a_failure_is_the_commands_own(head: RayHead, objectaware: Objectaware) -> None:
    refused = objectaware("submit", "--", "pretrain", "pretrain.yaml", "--data.root", "/nowhere")
    assert refused.returncode == 2
    assert _status(head, _job(refused.stdout)) == "FAILED"
    last = _ask(head, "get_job_logs", _job(refused.stdout)).splitlines()[-1]
    assert last.startswith("objectaware: ")
    assert "/nowhere" in last
    assert refused.stdout.splitlines()[-1] == last


@pytest.mark.timeout(300)
def test_only_what_a_job_needs_is_uploaded(objectaware: Objectaware, head: RayHead) -> None:
    script = "import os; print('files:', sorted(os.listdir())); import objectaware.data; raise SystemExit(7)"
    listed = objectaware("submit", "--submission-id", "once", "--", "python", "-c", script)
    assert listed.returncode == 7, listed.stdout + listed.stderr
    assert (
        "files: ['.gitignore', '.rayignore', 'jobs', 'platform', 'pretrain.yaml', 'pyproject.toml', 'sweep.yaml']"
        in listed.stdout
    )
    again = objectaware("submit", "--submission-id", "once", "--", "python", "-c", script)
    assert again.returncode == 2
    assert "submission-id = once" in again.stderr


@pytest.mark.timeout(300)
def test_ctrl_c_stops_the_job_and_waits_for_it(head: RayHead, clone: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "objectaware.cli",
        "submit",
        "--submission-id",
        "long",
        "--",
        "python",
        "-c",
        WAITS,
    ]
    with subprocess.Popen(command, cwd=clone, env=_user(head), stdout=subprocess.PIPE, text=True) as follower:
        assert follower.stdout is not None
        for line in follower.stdout:
            if line == "begun\n":
                os.kill(follower.pid, signal.SIGINT)
                break
        rest = follower.stdout.read()
    assert follower.returncode == 130
    assert "saved\n" in rest
    assert _status(head, "long") == "STOPPED"
