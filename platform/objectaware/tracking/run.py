"""Record one run: the handle that a stage or a study calls."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import logging
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

from objectaware.tracking.delivery import Sender
from objectaware.tracking.spool import (
    MAX_TAG_LENGTH,
    STEPS_PREFIX,
    DatasetUsed,
    MetricPoint,
    ModelMade,
    ModelUsed,
    Parameter,
    RunDropped,
    RunFinished,
    Spool,
    Tag,
    milliseconds_now,
)

MAX_KEY_LENGTH = 250
MAX_PARAMETER_LENGTH = 6000
MAX_DIGEST_LENGTH = 36
TABLES_TAG = "mlflow.loggedArtifacts"  # the UI shows the files in this tag as tables

RunStatus = Literal["FINISHED", "FAILED", "KILLED"]
Row = Mapping[str, object]

_DESCRIPTION_TAG = "mlflow.note.content"
_FORBIDDEN = re.compile(r"[^/\w.\- :]")
_FORBIDDEN_IN_MODELS = re.compile(r"[/:.%\"']")

_logger = logging.getLogger(__name__)


class Tracker:
    """Records one run.

    Every method writes to the run's spool and returns. A thread sends the spool. So no method fails or waits because
    of the server. A tracker may be pickled to another process of the same host, and used in both.

    `TrackingStore.parent_run` and `TrackingStore.child_run` make trackers.

    Args:
        spool: The run's spool, which begins with the opening of the run.
        sender: Sends the spool.
        reopen: Makes a tracker of the same run in another process, from the spool's folder.

    Attributes:
        opening: How the run was first opened.
    """

    def __init__(self, spool: Spool, sender: Sender, reopen: Callable[[Path], Tracker]) -> None:
        self._spool = spool
        self._sender = sender
        self._reopen = reopen
        self._alive = spool.hold()
        opening = spool.known().opening
        assert opening is not None
        self.opening = opening
        sender.add(spool)

    def __reduce__(self) -> tuple[Callable[[Path], Tracker], tuple[Path]]:
        return self._reopen, (self._spool.folder,)

    @property
    def run_id(self) -> str | None:
        """The MLflow run's id; None until the server has answered for the first time."""
        return self._spool.progress().run_id

    def log_config(self, config: Mapping[str, object]) -> None:
        """Log a configuration whole as `config.json`, and flat as parameters.

        MLflow's parameters cannot change. So a restarted run keeps its first parameters, with a warning for each one
        that differs, while `config.json` shows the configuration since the restart.
        """
        self._spool.add_artifact("config.json", json.dumps(config, indent=2, default=str).encode())
        parameters = flatten_config(config)
        first = self._spool.known().parameters
        for key, value in parameters.items():
            if first.get(key, value) != value:
                _logger.warning(
                    "run %s began with %s = %s and continues with %s", self.opening.name, key, first[key], value
                )
        self._spool.append([Parameter(key, value) for key, value in parameters.items()])

    def log_metrics(self, metrics: Mapping[str, float], step: int = 0, *, model: str | None = None) -> None:
        """Log values of metrics at a step; a metric that has a value at this step keeps it.

        Args:
            metrics: Values that float() takes; NaN and infinity are kept.
            step: Optimizer step or epoch, from 0.
            model: Address of the checkpoint that they measure. If it is a logged model (`log_model`), that has the
                metrics, too.
        """
        now = milliseconds_now()
        points = [MetricPoint(fit_key(key), float(value), step, now, model) for key, value in metrics.items()]
        self._spool.append(points)

    def log_step_metrics(self, metrics: Mapping[str, float], step: int) -> None:
        """Log metrics of a training inside its epochs, by optimizer step, under names that begin with `steps/`.

        The names of `log_metrics` have epochs as their steps.
        """
        self.log_metrics({f"{STEPS_PREFIX}{name}": value for name, value in metrics.items()}, step)

    def log_system_metrics(self, metrics: Mapping[str, float]) -> None:
        """Log how busy machines are now, under names that begin with `system/`.

        MLflow's UI shows these on a separate page. The step is the number of seconds since the run was first opened, so
        that the curve of a restarted stage continues. The sender counts it again from the start of the MLflow run,
        which only the server may know.
        """
        self.log_metrics(metrics, step=(milliseconds_now() - self.opening.timestamp) // 1000)

    def log_table(self, name: str, rows: Sequence[Row]) -> None:
        """Log a table as `tables/<name>.json`, which MLflow's UI shows, and as `tables/<name>.csv`.

        Args:
            name: The file's name without its ending.
            rows: One mapping from column to cell per row.
        """
        path = f"tables/{name}.json"
        self._spool.add_artifact(path, table_json(rows))
        self._spool.add_artifact(f"tables/{name}.csv", table_csv(rows))
        self.set_tags({TABLES_TAG: tables_tag(self._spool.known().tags.get(TABLES_TAG), path)})

    def log_text(self, path: str, text: str) -> None:
        """Log a text as a file at a path among the run's artifacts."""
        self._spool.add_artifact(path, text.encode())

    def log_png(self, path: str, png: bytes) -> None:
        """Log an encoded image as a file at a path, ending in `.png`, among the run's artifacts."""
        self._spool.add_artifact(path, png)

    def log_model(self, name: str, uri: str, *, model_type: str) -> None:
        """Log a checkpoint as a model of the run, by its address; its files stay where they are.

        The model takes over tags, the last values of metrics, and their data set from what the run has so far.

        Args:
            name: The model's name. Characters that MLflow does not take become `_`.
            uri: The checkpoint's address.
            model_type: What kind of model it is, such as `backbone`.
        """
        self._spool.append([ModelMade(_FORBIDDEN_IN_MODELS.sub("_", name), uri, model_type)])

    def use_model(self, uri: str, identity: str | None) -> None:
        """Log that the run uses a checkpoint: the checkpoint's model is an input, and tags name its training.

        If MLflow does not know the checkpoint, nothing is logged.

        Args:
            uri: The checkpoint's address.
            identity: Identity of its training, which is found even if this checkpoint is not a logged model.
        """
        self._spool.append([ModelUsed(uri, identity)])

    def log_report(self, report: str) -> None:
        """Log what a study has found, in Markdown, as the run's description and whole as `report.md`."""
        self.log_text("report.md", report)
        self.set_tags({_DESCRIPTION_TAG: report})

    def log_dataset(self, purpose: str, name: str, digest: str, uri: str) -> None:
        """Log a data set as an input of the run.

        Args:
            purpose: Its purpose, such as `train`.
            name: Its name.
            digest: Hash of its content.
            uri: Its address.
        """
        self._spool.append([DatasetUsed(name, digest[:MAX_DIGEST_LENGTH], uri, purpose)])

    def set_tags(self, tags: Mapping[str, object]) -> None:
        """Set tags, cut to MLflow's limits; a later value replaces an earlier one."""
        self._spool.append([Tag(fit_key(key), fit_text(str(value), MAX_TAG_LENGTH)) for key, value in tags.items()])

    def flush(self, timeout_seconds: float = 10.0) -> bool:
        """Wait until all records so far have arrived, or the time is over.

        Returns:
            Whether all arrived. The others stay in the spool, and the thread continues to send them.
        """
        return self._sender.flush(self._spool, timeout_seconds)

    def finish(self, status: RunStatus, *, error: str | None = None, timeout_seconds: float = 10.0) -> bool:
        """End the run; the tracker is not used afterwards.

        Args:
            status: FINISHED, FAILED, or KILLED for a run that was stopped and can be resumed.
            error: Why it failed, kept as the tag `error`.
            timeout_seconds: How long to wait for the last records to arrive; 0 does not wait.

        Returns:
            Whether all records arrived. The next command sends the others, by `TrackingStore.send_leftovers`.
        """
        self.set_tags({} if error is None else {"error": error})
        self._spool.append([RunFinished(status, milliseconds_now())])
        self._alive.close()
        self._sender.release(self._spool)
        return self.flush(timeout_seconds)

    def drop(self) -> None:
        """Leave the run to another command, which has taken it over; the tracker is not used afterwards.

        The run is not ended, and nothing more is sent.
        """
        self._spool.append([RunDropped()])
        self._alive.close()
        self._sender.release(self._spool)


def fit_key(key: str) -> str:
    """Return the name of a metric, parameter or tag as MLflow takes it.

    Characters other than letters, digits and `/_.-: ` become `_`. A name above 250 characters is cut and ends in a
    digest of the whole name, so that two long names stay different.
    """
    name = _FORBIDDEN.sub("_", key)
    if len(name) <= MAX_KEY_LENGTH:
        return name
    digest = hashlib.sha256(key.encode()).hexdigest()[:8]
    return f"{name[: MAX_KEY_LENGTH - 9]}-{digest}"


def fit_text(text: str, max_length: int) -> str:
    """Cut a text to a length in characters; a text that was cut ends in three dots."""
    return text if len(text) <= max_length else text[: max_length - 3] + "..."


def flatten_config(config: Mapping[str, object]) -> dict[str, str]:
    """Return a nested configuration as MLflow parameters.

    Args:
        config: Nested mappings of values that JSON or str() can show.

    Returns:
        One entry per leaf: names joined by dots, lists and empty mappings as JSON, all cut to MLflow's limits.

    Example:
        >>> flatten_config({"optimizer": {"lr": 0.03, "betas": [0.9, 0.999]}})
        {'optimizer.lr': '0.03', 'optimizer.betas': '[0.9, 0.999]'}
    """
    return {fit_key(key): fit_text(text, MAX_PARAMETER_LENGTH) for key, text in _leaves(config, "")}


def _leaves(config: Mapping[str, object], prefix: str) -> Iterator[tuple[str, str]]:
    for name, value in config.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, f"{prefix}{name}.")
        elif isinstance(value, Mapping | Sequence) and not isinstance(value, str):
            yield f"{prefix}{name}", json.dumps(value, default=str)
        else:
            yield f"{prefix}{name}", str(value)


def table_columns(rows: Sequence[Row]) -> list[str]:
    """Return the columns of all rows, in the order in which they first appear."""
    return list(dict.fromkeys(column for row in rows for column in row))


def table_json(rows: Sequence[Row]) -> bytes:
    """Return a table in the format of `MlflowClient.log_table`: `{"columns": [...], "data": [[...], ...]}`.

    Missing cells, NaN and infinity become null, since JSON has no such numbers.
    """
    columns = table_columns(rows)
    data = [[_json_cell(row.get(column)) for column in columns] for row in rows]
    return json.dumps({"columns": columns, "data": data}, default=_plain).encode()


def table_csv(rows: Sequence[Row]) -> bytes:
    """Return a table as CSV in UTF-8 with a header; None and missing cells are empty."""
    text = io.StringIO()
    writer = csv.DictWriter(text, table_columns(rows), restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def tables_tag(current: str | None, path: str) -> str:
    """Return the value of the tag that lists a run's tables, with one more path."""
    tables: list[dict[str, str]] = json.loads(current) if current else []
    entry = {"path": path, "type": "table"}
    return json.dumps(tables if entry in tables else [*tables, entry])


def _json_cell(value: object) -> object:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _plain(value: object) -> object:
    """Return a NumPy number as Python's, any other value as text."""
    item = getattr(value, "item", None)
    return _json_cell(item()) if callable(item) else str(value)
