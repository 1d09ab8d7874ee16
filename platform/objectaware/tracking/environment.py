"""Set defaults of MLflow's client, and name the code, packages and device of a run.

The defaults are environment variables, which other processes inherit. A variable that the user has set keeps its value.
MLflow reads the one on telemetry when it is first imported, and the others at each request.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import metadata
from pathlib import Path

from objectaware.process import submission_id, submitted_commit

CLIENT_DEFAULTS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    # MLflow logs two lines when it makes an SQLite store, and two more when a run ends on a server.
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    # With these a server that hangs holds the sending thread for about 10 s. MLflow's own defaults (7 retries of 120 s)
    # would hold it for a quarter of an hour.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "5",
    # The sending thread has its own backoff, between requests.
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "0",
    "MLFLOW_HTTP_REQUEST_BACKOFF_JITTER": "0",
}
PACKAGES = ("objectaware", "torch", "ray", "mlflow")

for _name, _value in CLIENT_DEFAULTS.items():
    os.environ.setdefault(_name, _value)

_TIMEOUT = "MLFLOW_HTTP_REQUEST_TIMEOUT"
_USUAL_TIMEOUT = os.environ[_TIMEOUT]
# A server answers when its own store has the artifact, which may be slow and far away.
_SECONDS_FOR_ARTIFACT = 30
_ARTIFACT_BYTES_A_SECOND = 2**18


@contextmanager
def time_for_artifact(num_bytes: int) -> Iterator[None]:
    """Let MLflow's requests in the `with` block take as long as an artifact of this size may."""
    seconds = _SECONDS_FOR_ARTIFACT + num_bytes // _ARTIFACT_BYTES_A_SECOND
    os.environ[_TIMEOUT] = str(max(seconds, int(_USUAL_TIMEOUT)))
    try:
        yield
    finally:
        os.environ[_TIMEOUT] = _USUAL_TIMEOUT


def environment_tags(device: str) -> dict[str, str]:
    """Return tags of the environment, without importing any of the packages.

    Args:
        device: Name of the device that computes, such as `cpu` or `NVIDIA H100 80GB HBM3`.

    Returns:
        `device`, MLflow's source, and `version.<package>` for every package that is installed. In a Ray job also
        `ray.submission_id`. If a git repository tracks this code, or the job was submitted from one, also `git_commit`
        and MLflow's own `mlflow.source.git.commit`.
    """
    job = submission_id()
    tags = {
        "device": device,
        "mlflow.source.name": "objectaware",
        "mlflow.source.type": "LOCAL" if job is None else "JOB",
    }
    for package in PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            tags[f"version.{package}"] = metadata.version(package)
    if job is not None:
        tags["ray.submission_id"] = job
    if (commit := git_commit(Path(__file__)) or submitted_commit()) is not None:
        tags |= {"git_commit": commit, "mlflow.source.git.commit": commit}
    return tags


def git_commit(file: Path) -> str | None:
    """Return the commit of the repository that tracks a file; None without git, a repository or a commit.

    A package in a virtual environment inside a repository is not tracked by that repository, whose commit would say
    nothing about the package.
    """
    git = ["git", "-C", str(file.parent)]
    try:
        subprocess.run([*git, "ls-files", "--error-unmatch", file.name], check=True, capture_output=True, timeout=10)
        head = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return None
    return head.stdout.strip()
