"""The MLflow server, or database, that records go to."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import sqlite3
import sys
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from urllib.parse import urlsplit

from mlflow import MlflowClient
from mlflow.entities import Dataset, DatasetInput, InputTag, LifecycleStage, LoggedModelOutput, LoggedModelStatus, Run
from mlflow.exceptions import MlflowException

from objectaware.errors import InputError
from objectaware.tracking.records import DatasetUsed, ModelMade, RunOpened
from objectaware.tracking.spool import exclusive_lock
from objectaware.tracking.spools import this_user

TRACKING_URI_VARIABLE = "MLFLOW_TRACKING_URI"
IDENTITY_TAG = "identity"
SPOOL_TAG = "spool"
WRITER_TAG = "written_by"
STORAGE_TAG = "storage"
HOST_TAG = "host"
USER_TAG = "uid"
SAME_TAG = "same_identity_as"
SOURCE_TAG = "source_run_id"
PARENT_TAG = "mlflow.parentRunId"

_DATABASES = ("postgresql", "mysql", "mssql")
_REMEDY = "Set it to http(s)://HOST:PORT, sqlite:///FILE or postgresql://…, or unset it."
_HOST = re.compile(r"\w[\w.-]*(:\d+)?(/.*)?|\[[\da-fA-F:]+\](:\d+)?(/.*)?")
_ARTIFACTS = "mlflow_artifacts"
# All columns in which MLflow keeps such addresses. None of its calls changes them.
_COLUMNS = (("experiments", "artifact_location"), ("runs", "artifact_uri"), ("logged_models", "artifact_location"))


@dataclass(frozen=True)
class Server:
    """An address, and what is asked of it about runs.

    Every method raises MlflowException, or what the database or file system raises, if there is no answer.

    Args:
        tracking_uri: MLflow's tracking URI.
        artifact_location: Where a new experiment's artifacts go, an absolute URI; None leaves it to the
            server.
    """

    tracking_uri: str
    artifact_location: str | None = None

    @cached_property
    def client(self) -> MlflowClient:
        """MLflow's client; making it connects if the address is a database's."""
        return MlflowClient(self.tracking_uri, self.tracking_uri)

    @property
    def digest(self) -> str:
        """Tells one address from another without showing a password that it may hold."""
        return hashlib.sha256(self.tracking_uri.encode()).hexdigest()[:16]

    @property
    def shown_address(self) -> str:
        """The address without user and password."""
        # Not urllib's geturl, which takes a slash from SQLite's four.
        return self.without_password(self.tracking_uri)

    def without_password(self, text: str) -> str:
        """A message of MLflow's, which may quote the address, without user and password."""
        user, at, _ = urlsplit(self.tracking_uri).netloc.rpartition("@")
        return text.replace(user + at, "") if at else text

    def experiment_id(self, name: str) -> str:
        """Finds an experiment, or makes it.

        Raises:
            InputError: An experiment of this name was deleted in MLflow, which keeps the name taken.
        """
        experiment = self.client.get_experiment_by_name(name)
        if experiment is None:
            try:
                return self.client.create_experiment(name, self.artifact_location)
            except MlflowException as error:
                # Another process may have made it between the two calls.
                if error.error_code != "RESOURCE_ALREADY_EXISTS":
                    raise
                experiment = self.client.get_experiment_by_name(name)
                assert experiment is not None
        if experiment.lifecycle_stage != LifecycleStage.ACTIVE:
            remedy = f"Give another one, or run: {self._command(f'experiments restore -x {experiment.experiment_id}')}"
            raise InputError("experiment", name, "was deleted in MLflow", remedy)
        return str(experiment.experiment_id)

    def _command(self, arguments: str) -> str:
        """A command of MLflow's own on this server, as it is typed into a shell."""
        command = f"{shlex.quote(sys.executable)} -m mlflow {arguments}"
        if not self.tracking_uri.startswith("sqlite:"):
            return command  # the environment names any other, whose address may hold a password
        return f"MLFLOW_TRACKING_URI={shlex.quote(self.tracking_uri)} {command}"

    def active_run(self, run_id: str) -> Run | None:
        """The run, or None if it does not exist or was deleted."""
        try:
            run = self.client.get_run(run_id)
        except MlflowException as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
            return None
        return run if run.info.lifecycle_stage == LifecycleStage.ACTIVE else None

    def find_originals(self, experiment_id: str, identity: str) -> list[Run]:
        """Runs of an identity that compute and do not link, the newest first."""
        return [run for run in self._find(experiment_id, IDENTITY_TAG, identity) if not _is_link(run)]

    def find_original(self, experiment_id: str, identity: str, storage: str) -> Run | None:
        """The newest run of an identity that computes and does not link, of a storage's own if it has one."""
        runs = self.find_originals(experiment_id, identity)
        return next(iter(sorted(runs, key=lambda run: run.data.tags.get(STORAGE_TAG) != storage)), None)

    def find_of_spool(self, experiment_id: str, spool: str) -> Run | None:
        """The run that a spool writes to, or else the one that it created."""
        for tag in (WRITER_TAG, SPOOL_TAG):
            for run in self._find(experiment_id, tag, spool):
                return run
        return None

    def find_link(self, experiment_id: str, identity: str, parent_id: str | None) -> Run | None:
        """The run of an identity that links, under a parent."""
        links = filter(_is_link, self._find(experiment_id, IDENTITY_TAG, identity))
        return next((run for run in links if run.data.tags.get(PARENT_TAG) == parent_id), None)

    def create_run(self, experiment_id: str, opened: RunOpened, tags: dict[str, str]) -> Run:
        """Creates a run as its opening says, with further tags."""
        own = {
            IDENTITY_TAG: opened.identity,
            SPOOL_TAG: opened.spool,
            WRITER_TAG: opened.spool,
            STORAGE_TAG: opened.storage,
            HOST_TAG: opened.host,
            USER_TAG: opened.user,
        }
        return self.client.create_run(experiment_id, start_time=opened.timestamp, tags=own | tags, run_name=opened.name)

    def continue_run(self, run_id: str, opened: RunOpened) -> None:
        """Opens a run again, for a spool that writes to it from now on."""
        self.client.set_tag(run_id, WRITER_TAG, opened.spool)
        self.client.set_tag(run_id, HOST_TAG, opened.host)
        self.client.update_run(run_id, status="RUNNING")

    def add_model(self, run_id: str, model: ModelMade) -> None:
        """Gives a run a logged model that points at a checkpoint, unless it has it already.

        As `mlflow.create_external_model` does, which only takes the process's one tracking address.
        """
        run = self.client.get_run(run_id)
        experiment_id = run.info.experiment_id
        made = self.client.search_logged_models([experiment_id], f"source_run_id = '{run_id}'")
        same = (each for each in made if each.name == model.name and each.params.get("uri") == model.uri)
        logged = next(same, None)
        if logged is None:
            tags, params = {"mlflow.model.isExternal": "true"}, {"uri": model.uri}
            logged = self.client.create_logged_model(experiment_id, model.name, run_id, tags, params)
        # Each for itself: a sending that was interrupted may have got as far as any of them.
        if logged.status != LoggedModelStatus.READY:
            self.client.finalize_logged_model(logged.model_id, "READY")
        if run.outputs is None or logged.model_id not in {output.model_id for output in run.outputs.model_outputs}:
            self.client.log_outputs(run_id, [LoggedModelOutput(logged.model_id, 0)])

    def add_dataset(self, run_id: str, dataset: DatasetUsed) -> None:
        """Gives a run a data set as its input; MLflow keeps one of a name, a digest and a purpose once."""
        content = Dataset(dataset.name, dataset.digest, "local", json.dumps({"uri": dataset.uri}))
        tags = [InputTag("mlflow.data.context", dataset.purpose)]
        self.client.log_inputs(run_id, [DatasetInput(content, tags)])

    def _find(self, experiment_id: str, tag: str, value: str) -> list[Run]:
        return list(
            self.client.search_runs(
                [experiment_id],
                f"tags.{tag} = '{value}'",
                order_by=["attributes.start_time DESC"],
                max_results=100,
            )
        )


def _is_link(run: Run) -> bool:
    return SOURCE_TAG in run.data.tags


def initialise(server: Server, experiment: str) -> None:
    """Makes an SQLite store and the experiment in it where they are missing."""
    database = Path(server.tracking_uri.removeprefix("sqlite:///"))
    try:
        database.parent.mkdir(parents=True, exist_ok=True)
        with exclusive_lock(database.with_name("mlflow.lock")):
            # SQLite would make a file that its owner alone may write, whatever the folder's group may.
            database.touch()
            with database.open("ab"):
                server.experiment_id(experiment)
            if server == own_server(database.parent):
                follow_move(database.parent, experiment)
    except PermissionError as error:
        problem = f"does not let user {this_user()} write {error.filename}"
        remedy = f"Give another --storage, set {TRACKING_URI_VARIABLE}, or have the owner give the group that right."
        raise InputError(TRACKING_URI_VARIABLE, server.tracking_uri, problem, remedy) from error


def server_in_use(folder: Path) -> Server:
    """Return the server that `MLFLOW_TRACKING_URI` names, by default SQLite in a local folder.

    Raises:
        InputError: MLflow does not take an address of this kind.
    """
    uri = os.environ.get(TRACKING_URI_VARIABLE, "")
    if not uri:
        return own_server(folder)
    if uri.startswith("sqlite:"):
        # Ray starts workers in folders of their own, where a relative path would be another file.
        file = Path(uri.removeprefix("sqlite:///")).absolute()
        return Server(f"sqlite:///{file}", artifact_location(file.parent))
    if "://" not in uri:
        raise _unknown_kind(uri, Server(uri))
    server = Server(uri)
    if not uri.startswith(_DATABASES):  # a database would be connected to, and may be away
        try:
            server.client  # noqa: B018
        except MlflowException as error:
            raise _unknown_kind(uri, server) from error
    return server


def _unknown_kind(uri: str, server: Server) -> InputError:
    remedy = f"Set it to http://{uri}." if _HOST.fullmatch(uri) else _REMEDY
    return InputError(TRACKING_URI_VARIABLE, server.shown_address, "is of no kind that MLflow takes", remedy)


def own_server(folder: Path) -> Server:
    """Return the SQLite store in a local folder, which is in use where `MLFLOW_TRACKING_URI` names none."""
    return Server(f"sqlite:///{folder / 'mlflow.db'}", artifact_location(folder))


def artifact_location(folder: Path) -> str:
    """Return the address of the artifacts that lie beside the SQLite store in a folder."""
    return (folder / _ARTIFACTS).as_uri()


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
        if old == new or not old.endswith(f"/{_ARTIFACTS}"):
            return
        with connection:
            for table, column in _COLUMNS:
                connection.execute(
                    f"UPDATE {table} SET {column} = ? || substr({column}, ?) WHERE substr({column} || '/', 1, ?) = ?",
                    (new, len(old) + 1, len(old) + 1, f"{old}/"),
                )
