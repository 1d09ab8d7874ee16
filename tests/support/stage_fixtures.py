"""Fixtures for tests of stages and studies: an MLflow store for the tests of a file, a context, tasks in process."""

from __future__ import annotations

from pathlib import Path

import pytest

from contexts import make_context
from in_process import Tasks, tasks_in_process
from objectaware.stages.runner import Context
from objectaware.tracking import TrackingStore


@pytest.fixture(scope="module")
def tracking(tmp_path_factory: pytest.TempPathFactory) -> TrackingStore:
    return TrackingStore.open(tmp_path_factory.mktemp("mlflow"))


@pytest.fixture
def context(tmp_path: Path, tracking: TrackingStore) -> Context:
    return make_context(tmp_path / "runs", tracking)


@pytest.fixture
def tasks(monkeypatch: pytest.MonkeyPatch) -> Tasks:
    """Ray's tasks run in this process."""
    return tasks_in_process(monkeypatch)
