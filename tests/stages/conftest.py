"""An MLflow store for the tests of a file, and what the stages of a command share."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from in_process import Tasks, tasks_in_process
from objectaware.data.storage import Storage
from objectaware.stages.progress import Progress
from objectaware.stages.runner import Context
from objectaware.tracking import TrackingStore


@pytest.fixture(scope="module")
def tracking(tmp_path_factory: pytest.TempPathFactory) -> TrackingStore:
    return TrackingStore.open(tmp_path_factory.mktemp("mlflow"))


@pytest.fixture
def context(tmp_path: Path, tracking: TrackingStore) -> Context:
    return Context(Storage.from_uri(tmp_path / "runs"), tracking, Progress(io.StringIO()))


@pytest.fixture
def tasks(monkeypatch: pytest.MonkeyPatch) -> Tasks:
    """Ray's tasks run in this process."""
    return tasks_in_process(monkeypatch)
