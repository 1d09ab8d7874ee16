"""The Slurm script with stand-ins for Slurm's programs and for Ray."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "cluster" / "slurm.sh"
SRUN = """\
node=here
while [[ $1 == --* ]]; do
  [[ $1 == --nodelist=* ]] && node=${1#*=}
  shift
done
echo "$node: $*" >>"$LOG"
exec "$@"
"""
RAY = """\
[ "$1" = health-check ] && exit 0
[ "$RAY_AUTH_MODE-${#RAY_AUTH_TOKEN}" = token-64 ] || exit 1
exec sleep 600
"""
PYTHON = """\
if [ "$1" = -c ]; then printf '%064d' 0; exit; fi
trap 'echo saved; kill $!; exit 3' TERM
# The second node is started beside the job.
until grep -q '^n2: ' "$LOG"; do sleep 0.02; done
echo "job: $* at $RAY_ADDRESS"
[ "$3" != --wait ] || { sleep 600 & wait $!; }
exit 5
"""
PROGRAMS = {
    "srun": SRUN,
    "ray": RAY,
    "python": PYTHON,
    "scontrol": "printf 'n1\\nn2\\n'",
    "hostname": "echo 10.0.0.1 10.0.0.2",
}


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    folder = tmp_path / ".venv" / "bin"
    folder.mkdir(parents=True)
    for name, text in PROGRAMS.items():
        (folder / name).write_text(f"#!/usr/bin/env bash\n{text}\n")
        (folder / name).chmod(0o755)
    return {
        **os.environ,
        "LOG": str(tmp_path / "log"),
        "SLURM_SUBMIT_DIR": str(tmp_path),
        "SLURM_JOB_ID": "30007",
        "SLURM_JOB_NODELIST": "n[1-2]",
        "SLURM_CPUS_PER_TASK": "4",
        "OBJECTAWARE_STORAGE": "/shared/runs",
        "MLFLOW_TRACKING_URI": "http://mlflow:5000",
    }


def test_ray_is_on_every_node_and_the_jobs_status_is_passed_on(environment: dict[str, str], tmp_path: Path) -> None:
    command = ["bash", str(SCRIPT), "pretrain", "recipe.yaml"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 5, done.stderr
    assert done.stdout == "job: jobs/pretrain.py recipe.yaml at 10.0.0.1:20007\n"
    log = (tmp_path / "log").read_text()
    assert "n1: ray start --head --block --node-ip-address=10.0.0.1 --port=20007 --dashboard-host=127.0.0.1" in log
    assert "n2: ray start --block --address=10.0.0.1:20007" in log
    assert "0" * 64 not in log, "the token stands in a command line"


def test_a_job_that_is_preempted_saves(environment: dict[str, str]) -> None:
    command = ["bash", str(SCRIPT), "pretrain", "recipe.yaml", "--wait"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as job:
        assert job.stdout is not None
        assert job.stdout.readline().startswith("job: ")
        job.send_signal(signal.SIGTERM)
        assert job.stdout.read() == "saved\n"
    assert job.returncode == 3


@pytest.mark.parametrize("missing", ["OBJECTAWARE_STORAGE", "MLFLOW_TRACKING_URI"])
def test_results_need_a_place(missing: str, environment: dict[str, str]) -> None:
    del environment[missing]
    command = ["bash", str(SCRIPT), "pretrain", "recipe.yaml"]
    refused = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert refused.returncode != 0
    assert missing in refused.stderr
