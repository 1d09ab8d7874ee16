"""A real MLflow server."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from urllib.error import URLError
from urllib.request import urlopen

from objectaware.tracking import TrackingStore
from ports import free_port


@contextmanager
def mlflow_server(folder: Path) -> Iterator[str]:
    """Runs `mlflow server` on a folder's SQLite store; gives its address once it answers."""
    store, port = TrackingStore.open(folder), free_port()
    with _running(store.ui_arguments(port), {"MLFLOW_BACKEND_STORE_URI": store.server.tracking_uri}, port) as address:
        yield address


@contextmanager
def mlflow_server_on(
    database: str,
    artifacts: str,
    environment: Mapping[str, str] = MappingProxyType({}),
    *,
    num_processes: int = 1,
    port: int | None = None,
) -> Iterator[str]:
    """Runs `mlflow server` on any database, which it initialises; gives its address once it answers.

    Args:
        database: SQLAlchemy's address of it.
        artifacts: Where artifacts go, which clients send to the server.
        environment: Further variables of it.
        num_processes: Processes that answer.
        port: Where it listens; None takes a free one.
    """
    port = port or free_port()
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--workers", str(num_processes), "--artifacts-destination", artifacts]
    with _running(command, {**environment, "MLFLOW_BACKEND_STORE_URI": database}, port) as address:
        yield address


@contextmanager
def _running(command: list[str], variables: Mapping[str, str], port: int) -> Iterator[str]:
    # The address of clients is none of the server's business.
    ours = {name: value for name, value in os.environ.items() if name != "MLFLOW_TRACKING_URI"}
    environment = {**ours, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", **variables}
    server = subprocess.Popen(command, env=environment, start_new_session=True)
    try:
        wait_for_health(port, server, seconds=300)
        yield f"http://127.0.0.1:{port}"
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(timeout=60)


def wait_for_health(port: int, server: subprocess.Popen[bytes], *, seconds: float) -> None:
    """Waits until a server answers; one that ends, or does not answer in time, is an error."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with suppress(URLError, ConnectionError, TimeoutError):
            urlopen(f"http://127.0.0.1:{port}/health", timeout=5).close()
            return
        with suppress(subprocess.TimeoutExpired):
            raise AssertionError(f"the server ended with {server.wait(timeout=0.2)}")
    raise AssertionError("the server did not answer in time")
