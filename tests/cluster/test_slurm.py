"""The Slurm scripts with stand-ins for Slurm's programs and for Ray."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

CLUSTER = Path(__file__).parents[2] / "cluster"
SCRIPT = CLUSTER / "slurm.sh"
NODES = ("localhost", "127.0.0.2")
SRUN = """\
while [[ $1 == --* ]]; do
  [[ $1 == --nodelist=* ]] && node=${1#*=}
  [[ $1 == --cpus-per-task=* ]] && cores=${1#*=}
  shift
done
echo "$node, $cores cores: $*" >>"$LOG"
exec "$@"
"""
SCONTROL = """\
echo "scontrol $*" >>"$LOG"
case "$1 $2" in
  "show hostnames") printf 'localhost\\n127.0.0.2\\n' ;;
  "show job") echo "   JobState=$STATE Reason=None" ;;
esac
"""
SCANCEL = """\
echo "scancel $*" >>"$LOG"
kill -USR1 "$(cat "$LOG.batch")"
"""
RAY = """\
[ "$1" = health-check ] && exit 0
[ "$RAY_AUTH_MODE-${#RAY_AUTH_TOKEN}" = token-64 ] || exit 1
echo "$RAY_AUTH_TOKEN" >"$LOG.token"
echo "$$" >>"$LOG.rays"
exec sleep 600
"""
# Counts as many nodes as have started Ray, once it has been asked twice.
RAY_MODULE = """\
import os
from pathlib import Path
asked = []
def init(log_to_driver):
    print("waiting for nodes")
def nodes():
    asked.append(None)
    rays = Path(os.environ["LOG"] + ".rays")
    return [{"Alive": True}] * (len(rays.read_text().split()) if len(asked) > 1 and rays.exists() else 1)
"""
PYTHON = """\
if [ "$1" = -c ]; then exec REAL "$@"; else exec REAL MODULES/driver.py "$@"; fi
"""
# Signals are blocked until it waits for them. A shell that waits for a child can lose one that comes as it starts it.
DRIVER = """\
import os
import signal
import sys
from pathlib import Path
signals = {signal.SIGTERM, signal.SIGUSR1}
signal.pthread_sigmask(signal.SIG_BLOCK, signals)
log = os.environ["LOG"]
Path(log + ".batch").write_text(str(os.getppid()))
rays = Path(log + ".rays").read_text().split()
print("job:", *sys.argv[1:], "at", os.environ["RAY_ADDRESS"], "beside", len(rays), "Rays", flush=True)
if "--wait" in sys.argv and signal.sigwait(signals) == signal.SIGTERM:
    print("saved beside", sum(Path("/proc", ray).exists() for ray in rays), "Rays", flush=True)
    sys.exit(3)
told = sys.argv[-1].removeprefix("--end-with=")
if told != sys.argv[-1]:
    os.kill(os.getppid(), signal.Signals[f"SIG{told}"])
    os._exit(5)
sys.exit(5)
"""
PROGRAMS = {"srun": SRUN, "ray": RAY, "python": PYTHON, "scontrol": SCONTROL, "scancel": SCANCEL}


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    folder = tmp_path / ".venv" / "bin"
    folder.mkdir(parents=True)
    modules = tmp_path / "modules"
    modules.mkdir()
    for name, text in PROGRAMS.items():
        program = text.replace("REAL", sys.executable).replace("MODULES", str(modules))
        (folder / name).write_text(f"#!/usr/bin/env bash\n{program}\n")
        (folder / name).chmod(0o755)
    (modules / "ray.py").write_text(RAY_MODULE)
    (modules / "driver.py").write_text(DRIVER)
    (tmp_path / "cluster").symlink_to(CLUSTER)
    return {
        **os.environ,
        "LOG": str(tmp_path / "log"),
        "PYTHONPATH": str(modules),
        "STATE": "RUNNING",
        "SLURM_SUBMIT_DIR": str(tmp_path),
        "SLURM_JOB_ID": f"{os.getpid()}0007",
        "SLURM_JOB_NODELIST": "n[1-2]",
        "SLURM_CPUS_PER_TASK": "4",
        "OBJECTAWARE_STORAGE": "/shared/runs",
        "MLFLOW_TRACKING_URI": "http://mlflow:5000",
    }


def test_ray_is_on_every_node_and_the_jobs_status_is_passed_on(environment: dict[str, str], tmp_path: Path) -> None:
    command = ["bash", str(SCRIPT), "pretrain", "recipe.yaml"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 5, done.stderr
    job = int(environment["SLURM_JOB_ID"])
    port = 20000 + job % 2500 * 4
    # The job starts when all nodes are there, and has an address that other nodes reach.
    expected = f"waiting for nodes\njob: jobs/pretrain.py recipe.yaml at 127.0.0.1:{port} beside 2 Rays\n"
    assert done.stdout == expected
    log = (tmp_path / "log").read_text()
    begin = "4 cores: bash cluster/slurm-node.sh start --block --num-cpus=4"
    for node in NODES:
        assert f"{node}, {begin} --dashboard-agent-listen-port={port + 1}" in log
    assert f"--head --node-ip-address=127.0.0.1 --port={port} --dashboard-host=127.0.0.1" in log
    assert f"--dashboard-port={port + 2} --ray-client-server-port={port + 3}" in log
    assert f"--address=127.0.0.1:{port}\n" in log
    assert "requeue" not in log, "a job that failed would fail again"
    assert (tmp_path / "log.token").read_text().strip() not in log, "the token stands in a command line"
    assert not Path(f"/tmp/ray-{job}").exists()
    assert not any(psutil.pid_exists(int(ray)) for ray in (tmp_path / "log.rays").read_text().split())


@pytest.mark.parametrize("how", ["time limit", "preempted", "ended", "cancelled", "done in time"])
def test_a_job_saves_beside_a_running_ray_and_goes_on_later(
    how: str, environment: dict[str, str], tmp_path: Path
) -> None:
    if how == "cancelled":
        environment["STATE"] = "CANCELLED"
    command = ["bash", str(SCRIPT), "pretrain", "recipe.yaml", "--wait"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as job:
        assert job.stdout is not None
        assert job.stdout.readline() == "waiting for nodes\n"
        assert job.stdout.readline().startswith("job: ")
        rays = [psutil.Process(int(ray)) for ray in (tmp_path / "log.rays").read_text().split()]
        assert len(rays) == 2
        match how:
            case "preempted" | "cancelled":  # Slurm's SIGTERM to the steps, here to all of their processes
                for ray in rays:
                    wrapper = ray.parent()
                    assert wrapper is not None
                    ray.send_signal(signal.SIGTERM)
                    wrapper.send_signal(signal.SIGTERM)
            case "ended":
                job.send_signal(signal.SIGTERM)
            case "time limit":
                job.send_signal(signal.SIGUSR1)
            case "done in time":
                (driver,) = [child for child in psutil.Process(job.pid).children() if "--wait" in child.cmdline()]
                driver.send_signal(signal.SIGUSR1)
        assert job.stdout.read() == ("" if how == "done in time" else "saved beside 2 Rays\n")
    assert job.returncode == (5 if how == "done in time" else 3)
    log = (tmp_path / "log").read_text()
    assert (f"scontrol requeue {environment['SLURM_JOB_ID']}\n" in log) == (how in ("time limit", "preempted"))
    assert ("scancel --batch --signal=USR1" in log) == (how in ("preempted", "cancelled"))
    psutil.wait_procs(rays, timeout=10)
    assert not any(ray.is_running() for ray in rays)


@pytest.mark.parametrize("told", ["USR1", "TERM"] * 2)
def test_a_signal_that_comes_as_the_job_ends_does_not_hold_it_up(
    told: str, environment: dict[str, str], tmp_path: Path
) -> None:
    command = ["bash", str(SCRIPT), "pretrain", "recipe.yaml", f"--end-with={told}"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    # Bash loses the status of about every second job that ends like this.
    assert done.returncode in (5, 128 + signal.Signals[f"SIG{told}"]), done.stderr
    assert ("scontrol requeue" in (tmp_path / "log").read_text()) == (told == "USR1")
    assert not any(psutil.pid_exists(int(ray)) for ray in (tmp_path / "log.rays").read_text().split())


@pytest.mark.parametrize("missing", ["OBJECTAWARE_STORAGE", "MLFLOW_TRACKING_URI"])
def test_results_need_a_place(missing: str, environment: dict[str, str]) -> None:
    del environment[missing]
    command = ["bash", str(SCRIPT), "pretrain", "recipe.yaml"]
    refused = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert refused.returncode != 0
    assert missing in refused.stderr
