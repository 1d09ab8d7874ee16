"""A run's handle: what a stage or a study calls to be recorded."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from objectaware.tracking.limits import MAX_DIGEST_LENGTH, MAX_TAG_LENGTH, fit_key, fit_text, flatten_config
from objectaware.tracking.records import (
    DatasetUsed,
    MetricPoint,
    ModelMade,
    Parameter,
    RunDropped,
    RunFinished,
    Tag,
    milliseconds_now,
)
from objectaware.tracking.sender import Sender
from objectaware.tracking.spool import Spool
from objectaware.tracking.tables import TABLES_TAG, Row, table_csv, table_json, tables_tag

RunStatus = Literal["FINISHED", "FAILED", "KILLED"]

_logger = logging.getLogger(__name__)


class Tracker:
    """Records one run.

    Every method writes to the run's spool and returns; a thread sends it. None of them fails or waits because
    of the server. A tracker may be pickled to another process of the same host, and used in both.

    Made by `TrackingStore.parent_run` and `TrackingStore.child_run`.

    Args:
        spool: Where the records go; it begins with the opening of the run.
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

    @property
    def spool_folder(self) -> Path:
        """Where the records are kept on this host until the run has ended and the server has them all."""
        return self._spool.folder

    def log_config(self, config: Mapping[str, object]) -> None:
        """Logs a configuration whole as `config.json`, and flat as parameters.

        MLflow's parameters cannot change: a restarted run keeps those that it began with, with a warning for
        each that differs, while `config.json` shows the configuration that it goes on with.
        """
        self._spool.add_artifact("config.json", json.dumps(config, indent=2, default=str).encode())
        parameters = flatten_config(config)
        first = self._spool.known().parameters
        for key, value in parameters.items():
            if first.get(key, value) != value:
                _logger.warning(
                    "run %s began with %s = %s and goes on with %s", self.opening.name, key, first[key], value
                )
        self._spool.append([Parameter(key, value) for key, value in parameters.items()])

    def log_metrics(self, metrics: Mapping[str, float], step: int = 0) -> None:
        """Logs values of metrics at a step; a metric that has a value at this step keeps it.

        Args:
            metrics: Anything that float() takes; NaN and infinity are kept.
            step: Optimizer step or epoch, from 0.
        """
        now = milliseconds_now()
        self._spool.append([MetricPoint(fit_key(key), float(value), step, now) for key, value in metrics.items()])

    def log_system_metrics(self, metrics: Mapping[str, float]) -> None:
        """Logs how busy machines are now; MLflow's UI has names that begin with `system/` on a page of their own.

        The step is the number of seconds since the run was first opened, so that a restarted stage goes on; the sender
        counts it again from the run's own beginning, which only the server may know.
        """
        self.log_metrics(metrics, step=(milliseconds_now() - self.opening.timestamp) // 1000)

    def log_table(self, name: str, rows: Sequence[Row]) -> None:
        """Logs a table as `tables/<name>.json`, which MLflow's UI shows, and as `tables/<name>.csv`.

        Args:
            name: The file's name without its ending.
            rows: One mapping from column to cell a row.
        """
        path = f"tables/{name}.json"
        self._spool.add_artifact(path, table_json(rows))
        self._spool.add_artifact(f"tables/{name}.csv", table_csv(rows))
        self.set_tags({TABLES_TAG: tables_tag(self._spool.known().tags.get(TABLES_TAG), path)})

    def log_text(self, path: str, text: str) -> None:
        """Logs a text as a file at a path among the run's artifacts."""
        self._spool.add_artifact(path, text.encode())

    def log_png(self, path: str, png: bytes) -> None:
        """Logs an encoded image as a file at a path, ending in `.png`, among the run's artifacts."""
        self._spool.add_artifact(path, png)

    def log_artifact(self, file: Path, folder: str = "") -> None:
        """Logs a copy of a small file; checkpoints and mask stores are logged by their address, as a tag.

        Args:
            file: The file; it may change afterwards.
            folder: Where it goes among the run's artifacts, under its own name.
        """
        self._spool.add_artifact(f"{folder}/{file.name}" if folder else file.name, file)

    def log_model(self, name: str, uri: str) -> None:
        """Logs a checkpoint as a model of the run's, by its address; its files stay where they are."""
        self._spool.append([ModelMade(name, uri)])

    def log_dataset(self, purpose: str, name: str, digest: str, uri: str) -> None:
        """Logs a data set as an input of the run.

        Args:
            purpose: What it is for, such as `train`.
            name: Its name.
            digest: Hash of its content.
            uri: Where it lies.
        """
        self._spool.append([DatasetUsed(name, digest[:MAX_DIGEST_LENGTH], uri, purpose)])

    def set_tags(self, tags: Mapping[str, object]) -> None:
        """Sets tags, cut to MLflow's limits; a later value replaces an earlier one."""
        self._spool.append([Tag(fit_key(key), fit_text(str(value), MAX_TAG_LENGTH)) for key, value in tags.items()])

    def flush(self, timeout_seconds: float = 10.0) -> bool:
        """Waits until everything so far has arrived, at most so long.

        Returns:
            Whether it has. What has not stays in the spool and is still being sent.
        """
        return self._sender.flush(self._spool, timeout_seconds)

    def finish(self, status: RunStatus, *, error: str | None = None, timeout_seconds: float = 10.0) -> bool:
        """Ends the run; the tracker is not used afterwards.

        Args:
            status: FINISHED, FAILED, or KILLED for one that was stopped and can be resumed.
            error: Why it failed, kept as the tag `error`.
            timeout_seconds: How long to wait for the last records to arrive; 0 does not wait.

        Returns:
            Whether everything arrived. What did not is sent by `TrackingStore.send_leftovers` of the next
            command.
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
