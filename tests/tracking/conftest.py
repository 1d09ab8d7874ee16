from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from objectaware.tracking import TrackingStore

OPEN = """
import sys, pathlib
from objectaware.tracking import TrackingStore
TrackingStore.open(pathlib.Path(sys.argv[1]))
"""


@pytest.fixture(autouse=True)
def _no_tracking_uri(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


@pytest.fixture(scope="session")
def two_drivers(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[int]]:
    """A fresh store that two commands opened at the same time, and their exit codes."""
    # A space and a per cent sign, since both are special in URIs.
    folder = tmp_path_factory.mktemp("tracking") / "my 100% runs"
    drivers = [subprocess.Popen([sys.executable, "-c", OPEN, str(folder)]) for _ in range(2)]
    return folder, [driver.wait(timeout=90) for driver in drivers]


@pytest.fixture
def open_store(two_drivers: tuple[Path, list[int]]) -> Callable[[], TrackingStore]:
    """Opens the store on an experiment of the test's own, as often as commands would."""
    folder, _ = two_drivers
    experiment = f"experiment-{uuid.uuid4().hex}"
    return lambda: TrackingStore.open(folder, experiment)
