"""Tables as MLflow's own table artifact, which its UI shows, and as CSV, which everything else reads."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence

TABLES_TAG = "mlflow.loggedArtifacts"  # the UI shows as tables what this tag lists

Row = Mapping[str, object]


def table_columns(rows: Sequence[Row]) -> list[str]:
    """The columns of all rows, in the order in which they first appear."""
    return list(dict.fromkeys(column for row in rows for column in row))


def table_json(rows: Sequence[Row]) -> bytes:
    """A table in the format of `MlflowClient.log_table`: `{"columns": [...], "data": [[...], ...]}`.

    A cell that a row lacks, NaN and infinity become null, since JSON has no such numbers.
    """
    columns = table_columns(rows)
    data = [[_json_cell(row.get(column)) for column in columns] for row in rows]
    return json.dumps({"columns": columns, "data": data}, default=_plain).encode()


def table_csv(rows: Sequence[Row]) -> bytes:
    """A table as CSV in UTF-8 with a header; None and cells that a row lacks are empty."""
    text = io.StringIO()
    writer = csv.DictWriter(text, table_columns(rows), restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def tables_tag(current: str | None, path: str) -> str:
    """The value of the tag that lists a run's tables, with one more path."""
    tables: list[dict[str, str]] = json.loads(current) if current else []
    entry = {"path": path, "type": "table"}
    return json.dumps(tables if entry in tables else [*tables, entry])


def _json_cell(value: object) -> object:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _plain(value: object) -> object:
    """NumPy's numbers as Python's, anything else as text."""
    item = getattr(value, "item", None)
    return _json_cell(item()) if callable(item) else str(value)
