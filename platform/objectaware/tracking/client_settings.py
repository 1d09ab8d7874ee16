"""Defaults of MLflow's client, as environment variables, which other processes inherit.

Each is only a default: a value that the user's environment already holds stays. Telemetry is decided when
mlflow is first imported, the rest at each request.

- One retry and 5 s a try: a server that hangs holds the sending thread for about 10 s, where MLflow's own
  defaults (7 retries of 120 s) would hold it for a quarter of an hour. The records stay in the spool
  meanwhile.
- Warnings alone: making a fresh SQLite store is worth two lines of the log to MLflow, and a run that ends on a
  server two more.
- No backoff inside a request: the sending thread has its own, between requests.
"""

from __future__ import annotations

import os

DEFAULTS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "5",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "0",
    "MLFLOW_HTTP_REQUEST_BACKOFF_JITTER": "0",
}

for _name, _value in DEFAULTS.items():
    os.environ.setdefault(_name, _value)
