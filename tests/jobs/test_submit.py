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

import cv2
import numpy as np
import pytest
from mlflow import MlflowClient

from ray_head import RayHead, ray_head

ROOT = Path(__file__).parents[2]
RECIPE = """\
method: moco
backbone: resnet10_narrow
data: {{root: {images}}}
image_size: 32
batch_size: 8
queue_size: 16
num_epochs: 1
execution: {{num_workers: 1, num_compute_threads: 1, precision: fp32, use_gpu: false}}
"""
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
    images = folder / "images"
    images.mkdir()
    for number, noise in enumerate(np.random.default_rng(0).integers(0, 255, (32, 40, 40, 3), dtype=np.uint8)):
        cv2.imwrite(str(images / f"{number:02d}.png"), noise)
    clone = folder / "clone"
    for name in ("platform", "jobs"):
        shutil.copytree(ROOT / name, clone / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in (".gitignore", ".rayignore", "pyproject.toml"):
        shutil.copy(ROOT / name, clone)
    (clone / "tiny.yaml").write_text(RECIPE.format(images=images))
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
    return {**head.environment, "PYTHONPATH": str(ROOT / "platform")}


def _status(head: RayHead, job: str) -> str:
    script = "import sys; from ray.job_submission import *; print(JobSubmissionClient().get_job_status(sys.argv[1]))"
    shown = subprocess.run([sys.executable, "-c", script, job], env=head.environment, capture_output=True, text=True)
    return shown.stdout.strip()


def _tags(folder: Path, run_id: str) -> dict[str, str]:
    run = MlflowClient(f"sqlite:///{folder / 'storage' / 'mlflow.db'}").get_run(run_id)
    assert run.info.status == "FINISHED"
    return run.data.tags


def _job(output: str) -> str:
    found = re.search(r"^job: (\S+)$", output, re.MULTILINE)
    assert found is not None, output
    return found[1]


def _run_of(output: str) -> str:
    found = re.search(r"^MLflow run: \S+/#/runs/(\w+)$", output, re.MULTILINE)
    assert found is not None, output
    return found[1]


@pytest.mark.timeout(600)
def test_rays_own_command_runs_a_script(head: RayHead, clone: Path, folder: Path) -> None:
    command = [str(Path(sys.executable).parent / "ray"), "job", "submit", "--submission-id", "plain", "--working-dir"]
    command += [".", "--", "python", "jobs/pretrain.py", "tiny.yaml"]
    submitted = subprocess.run(command, cwd=clone, env=head.environment, capture_output=True, text=True)
    assert submitted.returncode == 0, submitted.stdout + submitted.stderr
    assert _status(head, "plain") == "SUCCEEDED"
    assert _tags(folder, _run_of(submitted.stdout))["ray.submission_id"] == "plain"


@pytest.mark.timeout(600)
def test_objectaware_submits_and_follows_a_command(head: RayHead, objectaware: Objectaware, folder: Path) -> None:
    storage = folder / "storage"
    done = objectaware("submit", "--", "pretrain", "tiny.yaml", "--seed", "1", "--storage", str(storage))
    assert done.returncode == 0, done.stdout + done.stderr
    assert _status(head, _job(done.stdout)) == "SUCCEEDED"
    assert _tags(folder, _run_of(done.stdout))["ray.submission_id"] == _job(done.stdout)


@pytest.mark.timeout(300)
def test_a_failure_is_the_commands_own(head: RayHead, objectaware: Objectaware) -> None:
    refused = objectaware("submit", "--", "pretrain", "tiny.yaml", "--data.root", "/nowhere")
    assert refused.returncode == 2
    assert _status(head, _job(refused.stdout)) == "FAILED"
    last = refused.stdout.splitlines()[-1]
    assert last.startswith("objectaware: ")
    assert "/nowhere" in last


@pytest.mark.timeout(300)
def test_only_what_a_job_needs_is_uploaded(objectaware: Objectaware, head: RayHead) -> None:
    script = "import os; print('files:', sorted(os.listdir())); import objectaware.data; raise SystemExit(7)"
    listed = objectaware("submit", "--submission-id", "once", "--", "python", "-c", script)
    assert listed.returncode == 7, listed.stdout + listed.stderr
    assert "files: ['.gitignore', '.rayignore', 'jobs', 'platform', 'pyproject.toml', 'tiny.yaml']" in listed.stdout
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
