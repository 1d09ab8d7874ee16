"""Whether MLflow can be reached and written to."""

from __future__ import annotations

import os
from pathlib import Path

from objectaware.data.storage import Storage
from objectaware.errors import InputError, one_line
from objectaware.findings import Finding
from objectaware.tracking.store import TRACKING_URI_VARIABLE, TrackingStore

_NAME = "MLflow"


def check_tracking(storage: Storage, experiment: str) -> Finding:
    """Writes a run with a file to the MLflow store in use, and deletes the run again.

    MLflow keeps a deleted run in its bin until `mlflow gc`. A SQLite store that is not there yet is not made.

    Args:
        storage: Storage of the runs' results, and of the store where `MLFLOW_TRACKING_URI` names none.
        experiment: Name of the experiment; made if missing, as the first command would.
    """
    folder = storage.local_path() or Path("runs").absolute()
    if TRACKING_URI_VARIABLE not in os.environ and not (folder / "mlflow.db").exists():
        return Finding(_NAME, "ok", f"SQLite in {folder}, which the first command makes")
    try:
        store = TrackingStore.open(storage, experiment)
    except InputError as error:
        return Finding(_NAME, "broken", f"{error.field} = {error.value}: {error.problem}", error.remedy)
    except Exception as error:  # whatever a damaged or locked database raises
        remedy = f"Move {folder}/mlflow.db away to begin with a new one, or set {TRACKING_URI_VARIABLE}."
        return Finding(_NAME, "broken", f"{folder}/mlflow.db cannot be used ({_shown(error)})", remedy)
    return _write_and_delete(store)


def _write_and_delete(store: TrackingStore) -> Finding:
    address = store.server.shown_address
    try:
        client = store.server.client
        run_id = client.create_run(store.server.experiment_id(store.experiment), run_name="doctor").info.run_id
        try:
            client.log_text(run_id, "written by objectaware doctor", "doctor.txt")
        finally:
            client.delete_run(run_id)
    except Exception as error:  # of the network, the database, the server or the store behind it
        problem = store.server.without_password(_shown(error))
        remedy = f"Start the server, or unset {TRACKING_URI_VARIABLE} to record on this machine."
        # Records wait in the spool: stages run without a server.
        return Finding(_NAME, "limited", f"{address} cannot be written to ({problem})", remedy)
    return Finding(_NAME, "ok", f"{address} takes runs and files")


def _shown(error: Exception) -> str:
    return f"{type(error).__name__}: {one_line(error)[:200]}"
