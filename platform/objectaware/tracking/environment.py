"""Tags that say which code, with which packages, on which device made a run."""

from __future__ import annotations

import getpass
import subprocess
from importlib import metadata
from pathlib import Path

from objectaware.job import submission_id, submitted_commit

PACKAGES = ("objectaware", "torch", "ray", "mlflow")


def environment_tags(device: str) -> dict[str, str]:
    """Tags of the environment, without importing any of the packages.

    Args:
        device: What computes, such as `cpu` or `NVIDIA H100 80GB HBM3`.

    Returns:
        `device`, `version.<package>` for every package that is installed, `mlflow.user`, in a Ray job
        `ray.submission_id`, and, if this code lies in a git repository that tracks it or was submitted from one,
        `git_commit` and MLflow's own `mlflow.source.git.commit`.
    """
    tags = {"device": device, "mlflow.source.name": "objectaware"}
    for package in PACKAGES:
        try:
            tags[f"version.{package}"] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    if (job := submission_id()) is not None:
        tags["ray.submission_id"] = job
    if (commit := git_commit(Path(__file__)) or submitted_commit()) is not None:
        tags |= {"git_commit": commit, "mlflow.source.git.commit": commit}
    try:
        tags["mlflow.user"] = getpass.getuser()
    except (KeyError, OSError):
        tags["mlflow.user"] = "unknown"  # a container may run under a number without a name
    return tags


def git_commit(file: Path) -> str | None:
    """The commit of the repository that tracks a file; None without git, a repository or a commit.

    A package that is installed into a virtual environment inside somebody's repository is not tracked by it,
    and that repository's commit would say nothing about it.
    """
    git = ["git", "-C", str(file.parent)]
    try:
        subprocess.run([*git, "ls-files", "--error-unmatch", file.name], check=True, capture_output=True, timeout=10)
        head = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return None
    return head.stdout.strip()
