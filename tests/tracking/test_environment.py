from __future__ import annotations

import os
import runpy
import subprocess
from importlib import metadata
from pathlib import Path

import pytest

from objectaware.tracking import environment, environment_tags
from objectaware.tracking.environment import git_commit


def test_tags_name_the_device_and_the_packages() -> None:
    tags = environment_tags("a device")
    assert tags["device"] == "a device"
    for package in ("torch", "ray", "mlflow"):
        assert tags[f"version.{package}"] == metadata.version(package)
    assert tags["mlflow.source.type"] == "LOCAL"


def test_the_commit_is_that_of_the_repository_which_tracks_the_file(tmp_path: Path) -> None:
    tracked, untracked = tmp_path / "tracked.py", tmp_path / "untracked.py"
    for file in (tracked, untracked):
        file.write_text("")
    assert git_commit(tracked) is None
    author = ["-c", "user.name=a", "-c", "user.email=a@b"]
    for command in (["init", "-q"], ["add", "tracked.py"], [*author, "commit", "-q", "-m", "message"]):
        subprocess.run(["git", "-C", str(tmp_path), *command], check=True)
    head = subprocess.run(["git", "-C", str(tmp_path), "rev-parse", "HEAD"], capture_output=True, text=True)
    assert git_commit(tracked) == head.stdout.strip()
    assert git_commit(untracked) is None


def test_client_settings_are_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "77")
    monkeypatch.delenv("MLFLOW_DISABLE_TELEMETRY", raising=False)
    runpy.run_path(environment.__file__)
    assert os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"] == "77"
    assert os.environ["MLFLOW_DISABLE_TELEMETRY"] == "true"
