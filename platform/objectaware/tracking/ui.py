"""The MLflow UI on the store in use."""

from __future__ import annotations

import os
import socket

from objectaware.tracking.store import UI_PORT, TrackingStore


def run_ui(store: TrackingStore, port: int | None = None) -> None:
    """Becomes the MLflow UI on a store, on loopback, until it is interrupted; prints its address first.

    A remote MLflow server has a UI of its own: its address is printed, and that is all.

    Args:
        store: The store to show.
        port: Where it listens; None takes 5000, or any free port if that is taken.
    """
    if store.is_remote_server:
        print(store.server.shown_address)
        return
    port = port or _free_port()
    print(f"MLflow UI: http://127.0.0.1:{port} (Ctrl-C ends it)", flush=True)
    arguments = store.ui_arguments(port)
    environment = {
        # MLflow's own jobs, of no use here, take another four processes.
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        **os.environ,
        # By the environment, so that a password is not seen in the list of processes.
        "MLFLOW_BACKEND_STORE_URI": store.server.tracking_uri,
    }
    os.execve(arguments[0], arguments, environment)


def _free_port() -> int:
    for port in (UI_PORT, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise AssertionError("binding to port 0 always finds a port")
