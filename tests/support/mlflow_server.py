"""A real MLflow server on an SQLite store."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from objectaware.tracking import TrackingStore


@contextmanager
def mlflow_server(folder: Path) -> Iterator[str]:
    """Runs `mlflow server` on a folder's SQLite store; gives its address once it answers."""
    store = TrackingStore.open(folder)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    environment = {
        **os.environ,
        "MLFLOW_BACKEND_STORE_URI": store.server.tracking_uri,
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    }
    server = subprocess.Popen(store.ui_arguments(port), env=environment, start_new_session=True)
    try:
        _wait_for_health(port, server)
        yield f"http://127.0.0.1:{port}"
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(timeout=60)


def _wait_for_health(port: int, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        with suppress(URLError, ConnectionError, TimeoutError):
            urlopen(f"http://127.0.0.1:{port}/health", timeout=5).close()
            return
        with suppress(subprocess.TimeoutExpired):
            raise AssertionError(f"the server ended with {server.wait(timeout=0.2)}")
    raise AssertionError("the server did not answer in time")
