"""Open the MLflow store in use and its runs, show the UI, and check that the store takes records."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import socket
import sys
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote

from objectaware.data.storage import Storage
from objectaware.errors import Finding, InputError, one_line
from objectaware.process import system_user, user_name
from objectaware.tracking.delivery import Sender
from objectaware.tracking.run import Tracker
from objectaware.tracking.server import (
    IDENTITY_TAG,
    STORAGE_TAG,
    TRACKING_URI_VARIABLE,
    Server,
    initialise,
    is_link,
    own_server,
    server_in_use,
)
from objectaware.tracking.spool import RunOpened, Spool, delete_removed, milliseconds_now
from objectaware.tracking.spools import Spools, storage_id, this_host, this_user

UI_PORT = 5000

_SECONDS_BETWEEN_LOOKS = 0.2
# Ray gives a job that is stopped three seconds.
_SECONDS_TO_STOP = 1.0
_SAFE_KEY = re.compile(r"[\w.-]+")


@dataclass(frozen=True)
class RecordedRun:
    """A run as MLflow has it.

    Attributes:
        run_id: Its id there.
        name: Its name.
        identity: Identity of the stage, trial or study.
        kind: The kind of stage or of study.
        status: FINISHED, FAILED, KILLED or RUNNING.
        started: Milliseconds since 1970.
        dataset: The data set that it is about; None where the run does not say so.
        metrics: The last value of each metric.
    """

    run_id: str
    name: str
    identity: str
    kind: str
    status: str
    started: int
    dataset: str | None
    metrics: Mapping[str, float]


class TrackingStore:
    """The MLflow store in use. It may be pickled to another process; only `open` initialises anything.

    Args:
        server: The server or database that takes the records.
        experiment: Name of the experiment.
        storage: Storage of the runs' results.
        folder: Absolute local folder: without a server, for SQLite (`mlflow.db`) and artifacts (`mlflow_artifacts`).
        spools: The spools in which records wait for the server.
    """

    def __init__(self, server: Server, experiment: str, storage: Storage, folder: Path, spools: Spools) -> None:
        self.server = server
        self.experiment = experiment
        self.storage = storage
        self.folder = folder
        self._spools = spools

    @classmethod
    def open(cls, storage: Storage | Path, experiment: str = "objectaware") -> TrackingStore:
        """Open the store that `MLFLOW_TRACKING_URI` names, by default SQLite in the storage.

        Initialise an SQLite store that is new, which takes some seconds. Two processes that use a new one at the same
        time break it, so the driver opens the store before it starts other processes. Send nothing to a remote server,
        which may be away.

        Args:
            storage: Storage of the runs' results, or its local path. If it is remote, the default store lies in
                `./runs`.
            experiment: Name of the MLflow experiment. The first run makes it if it is missing.

        Raises:
            InputError: MLflow does not take this kind of `MLFLOW_TRACKING_URI`, the experiment was deleted, or this
                user may not write to the store or the spools.
        """
        storage = storage if isinstance(storage, Storage) else Storage.from_uri(storage)
        folder = storage.local_path() or Path("runs").absolute()
        server = server_in_use(folder)
        own = server == own_server(folder)
        # An own store keeps its name when the storage is moved.
        place = f"{'own' if own else server.digest}-{quote(experiment, safe='')}"
        store = cls(server, experiment, storage, folder, Spools.of(storage, place))
        if store.is_sqlite:
            initialise(server, experiment)
        return store

    def __reduce__(self) -> tuple[type[TrackingStore], tuple[Server, str, Storage, Path, Spools]]:
        server = Server(self.server.tracking_uri, self.server.artifact_location)
        return type(self), (server, self.experiment, self.storage, self.folder, self._spools)

    @cached_property
    def storage_id(self) -> str:
        """Id of the storage; see `spools.storage_id`."""
        return storage_id(self.storage)

    @property
    def is_sqlite(self) -> bool:
        """Whether the store is an SQLite file, which only one host can use."""
        return self.server.tracking_uri.startswith("sqlite:")

    @property
    def is_remote_server(self) -> bool:
        """Whether the store is an MLflow server, which has its own UI."""
        return self.server.tracking_uri.startswith(("http://", "https://"))

    def parent_run(
        self, *, name: str, key: str, tags: Mapping[str, object], fresh: bool = False, leased: bool = False
    ) -> Tracker:
        """Open the run of a study or sweep: the one that this user began in this storage, else a new one.

        Args:
            name: The run's name as shown.
            key: The study's identity; letters, digits and `._-`.
            tags: Its tags.
            fresh: Begin a new run even if there is one of this identity.
            leased: Whether the caller keeps all other commands from this identity in this storage. Only then does a run
                of this identity that is open on another host surely belong to a dead process.
        """
        opened = self._opening(name, key, None, adopt=not fresh, leased=leased, is_study=True)
        return self._begin(key, opened, tags)

    def child_run(
        self,
        parent: Tracker | None,
        *,
        name: str,
        key: str,
        tags: Mapping[str, object],
        fresh: bool = False,
        leased: bool = False,
    ) -> Tracker:
        """Open the run of a stage or trial, one level under its parent.

        A restart continues the run that this user began in this storage, unless that run is finished.

        Args:
            parent: The study's run; None for a stage without a study.
            name: The run's name as shown.
            key: The stage's identity; letters, digits and `._-`.
            tags: Its tags.
            fresh: Begin a new run even if there is one of this identity.
            leased: As in `parent_run`.
        """
        opened = self._opening(name, key, parent, adopt=not fresh, leased=leased)
        return self._begin(key, opened, tags)

    def link_run(self, parent: Tracker, *, name: str, key: str, tags: Mapping[str, object], source_run_id: str) -> None:
        """Record under a study that it reuses another study's stage, as a finished run that points there.

        Args:
            parent: The study that reuses the stage.
            name: The run's name as shown.
            key: The stage's identity, the same as the source's.
            tags: Its tags.
            source_run_id: The run that computed.
        """
        opened = self._opening(name, key, parent, is_link=True, source_run_id=source_run_id)
        name = f"{key}+{parent.opening.spool}"
        if not self._spools.named(name):  # else the link is recorded already, and waits
            self._begin(name, opened, tags).finish("FINISHED", timeout_seconds=0)

    def reopen(self, spool_folder: Path) -> Tracker:
        """Return a tracker of a run that another process of this host opened."""
        return Tracker(Spool(spool_folder), self._sender, self.reopen)

    def send_leftovers(self, timeout_seconds: float = 10.0) -> int:
        """Send records that earlier commands could not send, and mark runs of dead processes as KILLED.

        Earlier commands are those of this host and user, and all others that left their records in the storage.

        A command calls this once at its start, before it opens its own runs.

        Args:
            timeout_seconds: How long to wait until all records arrive; sending continues afterwards.

        Returns:
            Number of runs whose records still wait.
        """
        delete_removed(self._spools.root)
        if not self.is_sqlite:
            self._spools.take_over()
        for spool in (spools := self._spools.leftovers()):
            spool.remove_if_settled()
        abandoned = [spool for spool in spools if not spool.is_settled() and spool.close_if_abandoned()]
        unsent = [spool for spool in abandoned if spool.has_unsent()]
        for spool in unsent:
            self._sender.add(spool)
            self._sender.release(spool)
        deadline = time.monotonic() + timeout_seconds
        return sum(not self._sender.flush(spool, max(0.0, deadline - time.monotonic())) for spool in unsent)

    def hand_over(self) -> None:
        """Leave unsent records in the storage, at the end of a command, for the next command to send."""
        if not self.is_sqlite:  # SQLite is never away, and belongs to this host
            self._sender.stop(_SECONDS_TO_STOP)
            self._spools.hand_over()

    def close_children(self, parent: Tracker, timeout_seconds: float) -> int:
        """End the runs under a parent that other processes left open, as KILLED, and send their unsent records.

        Args:
            parent: The study's run.
            timeout_seconds: How long to wait for processes that are still ending.

        Returns:
            Number of runs that are still open.
        """
        known = [(spool, spool.known()) for spool in self._spools.leftovers() if not spool.is_settled()]
        running = [(spool, records.opening) for spool, records in known if records.is_running]
        number = parent.opening.spool
        open_runs = [spool for spool, opening in running if opening is not None and opening.parent_spool == number]
        deadline = time.monotonic() + timeout_seconds
        while open_runs := [spool for spool in open_runs if not spool.close_if_abandoned()]:
            if time.monotonic() >= deadline:
                break
            time.sleep(_SECONDS_BETWEEN_LOOKS)
        self.send_leftovers()
        return len(open_runs)

    def recorded_runs(self) -> list[RecordedRun]:
        """Return all runs of the experiment, the oldest first, without links to other studies' runs.

        Raises:
            Exception: MLflow cannot be reached.
        """
        experiment = self.server.client.get_experiment_by_name(self.experiment)
        runs = [] if experiment is None else self.server.search(experiment.experiment_id)
        return [
            RecordedRun(
                run.info.run_id,
                run.info.run_name,
                run.data.tags[IDENTITY_TAG],
                run.data.tags.get("stage") or run.data.tags.get("study") or "",
                run.info.status,
                run.info.start_time,
                run.data.tags.get("dataset"),
                dict(run.data.metrics),
            )
            for run in reversed(runs)
            if IDENTITY_TAG in run.data.tags and not is_link(run)
        ]

    def metric_history(self, identity: str, metric: str) -> list[tuple[int, float]] | None:
        """Read the values of a metric in a stage's run, finished or not.

        Args:
            identity: Identity of the stage.
            metric: Name of the metric.

        Returns:
            Pairs of step and value, by rising step; None if the store has no run of this identity.
        """
        runs = self.server.find_originals(self.server.experiment_id(self.experiment), identity)
        if not runs:
            return None
        run = min(runs, key=lambda run: run.data.tags.get(STORAGE_TAG) != self.storage_id)  # of our storage, the newest
        points = self.server.client.get_metric_history(run.info.run_id, metric)
        return sorted({point.step: point.value for point in points}.items())

    def run_url(self, run_id: str) -> str:
        """Return the address of a run's page: on the server, or on the UI that `ui_command` starts."""
        base = self.server.shown_address.rstrip("/") if self.is_remote_server else f"http://127.0.0.1:{UI_PORT}"
        return f"{base}/#/runs/{run_id}"

    def ui_command(self) -> str:
        """Return the shell command that opens the UI on this store; for an MLflow server, its address."""
        if self.is_remote_server:
            return self.server.shown_address
        # Without the variable the store lies in the folder; with it, the command finds the store as this one did.
        place = [] if os.environ.get(TRACKING_URI_VARIABLE) else ["--storage", str(self.folder)]
        return shlex.join([*_program(), "ui", *place])

    def ui_arguments(self, port: int) -> list[str]:
        """Return the command that opens the UI on loopback, without the database's address."""
        artifacts = self.server.artifact_location or own_server(self.folder).artifact_location
        command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port)]
        return [*command, "--workers", "1", "--artifacts-destination", str(artifacts)]

    @cached_property
    def _sender(self) -> Sender:
        return Sender(self.server, self._spools)

    def _opening(self, name: str, key: str, parent: Tracker | None, **fields: Any) -> RunOpened:  # noqa: ANN401
        assert _SAFE_KEY.fullmatch(key), f"an identity holds letters, digits and ._- only, not {key!r}"
        if parent is not None:
            assert parent.opening.parent_spool is None, "runs nest one level deep"
            identity = parent.opening.identity if parent.opening.adopt else None
            fields |= {"parent_spool": parent.opening.spool, "parent_identity": identity}
        fields["user_name"] = user_name() or system_user()
        owner = self.storage_id, this_host(), this_user()
        return RunOpened(self.experiment, name, key, uuid.uuid4().hex, milliseconds_now(), *owner, **fields)

    def _begin(self, name: str, opened: RunOpened, tags: Mapping[str, object]) -> Tracker:
        spool = self._spools.begin(name, fresh=not opened.adopt)
        with spool.hold():
            if (first := spool.known().opening) is not None:
                opened = replace(opened, spool=first.spool, adopt=first.adopt)
            elif not opened.leased and self._spools.is_recorded_elsewhere(name, spool):
                opened = replace(opened, adopt=False)  # two live commands of one study have a run each
            spool.append([opened])
            tracker = self.reopen(spool.folder)
        tracker.set_tags(tags)
        return tracker


def _program() -> list[str]:
    """Return the words that start `objectaware` in the user's shell: its name alone if the shell finds it by that."""
    script = Path(sys.executable).with_name("objectaware")
    if not script.is_file():
        return [sys.executable, "-m", "objectaware.cli"]
    found = shutil.which(script.name)
    return [script.name if found is not None and script.samefile(found) else str(script)]


def run_ui(store: TrackingStore, port: int | None = None) -> None:
    """Replace this process by the MLflow UI on a store, on loopback; print its address first.

    A remote MLflow server has its own UI, so only print its address.

    Args:
        store: The store to show.
        port: The port to listen on; None takes 5000, or any free port if 5000 is taken.
    """
    if store.is_remote_server:
        print(store.server.shown_address)
        return
    port = port or _free_port()
    print(f"MLflow UI: http://127.0.0.1:{port} (Ctrl-C ends it)", flush=True)
    arguments = store.ui_arguments(port)
    environment = {
        # MLflow's own jobs take another four processes, and nothing here uses them.
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        **os.environ,
        # In the environment, since the list of processes would show a password.
        "MLFLOW_BACKEND_STORE_URI": store.server.tracking_uri,
    }
    os.execve(arguments[0], arguments, environment)


def _free_port() -> int:
    try:
        probe = socket.create_server(("127.0.0.1", UI_PORT))
    except OSError:
        probe = socket.create_server(("127.0.0.1", 0))
    with probe:
        return int(probe.getsockname()[1])


def check_tracking(storage: Storage, experiment: str) -> Finding:
    """Write a run with a file to the MLflow store in use, and delete the run again.

    MLflow keeps a deleted run until `mlflow gc`. Do not make an SQLite store that does not exist yet.

    Args:
        storage: Storage of the runs' results, and of the store if `MLFLOW_TRACKING_URI` names none.
        experiment: Name of the experiment, which is made if it is missing.
    """
    folder = storage.local_path() or Path("runs").absolute()
    if TRACKING_URI_VARIABLE not in os.environ and not (folder / "mlflow.db").exists():
        return Finding("MLflow", "ok", f"SQLite in {folder}, which the first command makes")
    try:
        store = TrackingStore.open(storage, experiment)
    except InputError as error:
        return Finding("MLflow", "broken", f"{error.field} = {error.value}: {error.problem}", error.remedy)
    except Exception as error:  # a damaged or locked database may raise many kinds
        remedy = f"Move {folder}/mlflow.db away to start a new one, or set {TRACKING_URI_VARIABLE}."
        return Finding("MLflow", "broken", f"{folder}/mlflow.db cannot be used ({_shown(error)})", remedy)
    address = store.server.shown_address
    try:
        client = store.server.client
        run_id = client.create_run(store.server.experiment_id(store.experiment), run_name="doctor").info.run_id
        try:
            client.log_text(run_id, "written by objectaware doctor", "doctor.txt")
        finally:
            client.delete_run(run_id)
    except Exception as error:  # from the network, the database, the server or its artifact store
        problem = store.server.without_password(_shown(error))
        remedy = f"Start the server, or unset {TRACKING_URI_VARIABLE} to record on this machine."
        # Only limited, since stages run without a server: their records wait in the spool.
        return Finding("MLflow", "limited", f"{address} cannot be written to ({problem})", remedy)
    return Finding("MLflow", "ok", f"{address} takes runs and files")


def _shown(error: Exception) -> str:
    return f"{type(error).__name__}: {one_line(error)[:200]}"
