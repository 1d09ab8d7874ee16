"""Addresses of artifacts in an SQLite store whose folder was moved or copied: MLflow keeps them absolute."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

_FOLDER = "mlflow_artifacts"
# All columns in which MLflow keeps such addresses. None of its calls changes them.
_COLUMNS = (("experiments", "artifact_location"), ("runs", "artifact_uri"), ("logged_models", "artifact_location"))


def artifact_location(folder: Path) -> str:
    """Return the address of the artifacts that lie beside the SQLite store in a folder."""
    return (folder / _FOLDER).as_uri()


def follow_move(folder: Path, experiment: str) -> None:
    """Point a store at the artifacts beside it, if it points at those in the folder that it came from.

    Args:
        folder: Where the store lies now; no other process may be opening it.
        experiment: Its experiment. If the user has put the artifacts of that elsewhere, nothing changes.
    """
    new = artifact_location(folder)
    with closing(sqlite3.connect(folder / "mlflow.db", timeout=20)) as connection:
        query = "SELECT artifact_location FROM experiments WHERE name = ?"
        (old,) = connection.execute(query, (experiment,)).fetchone()
        if old == new or not old.endswith(f"/{_FOLDER}"):
            return
        with connection:
            for table, column in _COLUMNS:
                connection.execute(
                    f"UPDATE {table} SET {column} = ? || substr({column}, ?) WHERE substr({column} || '/', 1, ?) = ?",
                    (new, len(old) + 1, len(old) + 1, f"{old}/"),
                )
