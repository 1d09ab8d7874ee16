"""Find the MLflow server or database that takes the records, and ask it about runs."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import shlex
import sqlite3
import sys
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from urllib.parse import urlsplit

from mlflow import MlflowClient
from mlflow.entities import (
    Dataset,
    DatasetInput,
    InputTag,
    LifecycleStage,
    LoggedModel,
    LoggedModelInput,
    LoggedModelOutput,
    LoggedModelStatus,
    Metric,
    Run,
    RunTag,
)
from mlflow.exceptions import MlflowException
from mlflow.utils.mlflow_tags import MLFLOW_DATASET_CONTEXT, MLFLOW_USER

from objectaware.errors import InputError
from objectaware.tracking.spool import (
    MAX_TAG_LENGTH,
    STEPS_PREFIX,
    SYSTEM_PREFIX,
    DatasetUsed,
    ModelMade,
    ModelUsed,
    RunOpened,
    exclusive_lock,
)
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
TRAINING_ID_TAG = "training_run_id"
TRAINING_TAG = "training"
_TAGS_OF_MODELS = (STORAGE_TAG, IDENTITY_TAG, "method", "backbone", "policy", "dataset")

# The experiment's kind. The UI of MLflow 3.17 has a switch of the browser's that goes before it.
_KIND_TAG = "mlflow.experimentKind"
_MODEL_TRAINING = "custom_model_development"
_DATABASES = ("postgresql", "mysql", "mssql")
_REMEDY = "Set it to http(s)://HOST:PORT, sqlite:///FILE or postgresql://…, or unset it."
_HOST = re.compile(r"\w[\w.-]*(:\d+)?(/.*)?|\[[\da-fA-F:]+\](:\d+)?(/.*)?")
_ARTIFACTS = "mlflow_artifacts"
# All columns in which MLflow keeps addresses of artifacts. None of its calls changes them.
_COLUMNS = (("experiments", "artifact_location"), ("runs", "artifact_uri"), ("logged_models", "artifact_location"))


class MissingParentError(RuntimeError):
    """A child cannot be created before its parent; its records stay in the spool."""


@dataclass(frozen=True)
class Server:
    """The address of a server or database, with questions about its runs.

    Without an answer, every method raises MlflowException or an error of the database or the file system.

    Args:
        tracking_uri: MLflow's tracking URI.
        artifact_location: Absolute URI for the artifacts of a new experiment; None leaves the choice to the server.
    """

    tracking_uri: str
    artifact_location: str | None = None

    @cached_property
    def client(self) -> MlflowClient:
        """MLflow's client. Making it connects if the address is that of a database."""
        return MlflowClient(self.tracking_uri, self.tracking_uri)

    @property
    def digest(self) -> str:
        """Hash of the address, which does not show a password in it."""
        return hashlib.sha256(self.tracking_uri.encode()).hexdigest()[:16]

    @property
    def shown_address(self) -> str:
        """The address without user and password."""
        # Without urllib's geturl, which drops one of SQLite's four slashes.
        return self.without_password(self.tracking_uri)

    def without_password(self, text: str) -> str:
        """Remove user and password from a message of MLflow, which may quote the address."""
        user, at, _ = urlsplit(self.tracking_uri).netloc.rpartition("@")
        return text.replace(user + at, "") if at else text

    def experiment_id(self, name: str) -> str:
        """Return the id of an experiment, which is made if it is missing.

        Raises:
            InputError: The experiment was deleted in MLflow, which keeps its name taken.
        """
        experiment = self.client.get_experiment_by_name(name)
        if experiment is None:
            try:
                return self.client.create_experiment(name, self.artifact_location, {_KIND_TAG: _MODEL_TRAINING})
            except MlflowException as error:
                # Another process may have made it between the two calls.
                if error.error_code != "RESOURCE_ALREADY_EXISTS":
                    raise
                experiment = self.client.get_experiment_by_name(name)
                assert experiment is not None
        if experiment.lifecycle_stage != LifecycleStage.ACTIVE:
            remedy = f"Set another one, or run: {self._command(f'experiments restore -x {experiment.experiment_id}')}"
            raise InputError("experiment", name, "was deleted in MLflow", remedy)
        if not experiment.tags.get(_KIND_TAG):
            try:
                self.client.set_experiment_tag(experiment.experiment_id, _KIND_TAG, _MODEL_TRAINING)
            except MlflowException as error:
                if error.error_code != "PERMISSION_DENIED":  # it only opens in another view
                    raise
        return str(experiment.experiment_id)

    def _command(self, arguments: str) -> str:
        """Return a shell command of MLflow's own on this server."""
        command = f"{shlex.quote(sys.executable)} -m mlflow {arguments}"
        if not self.tracking_uri.startswith("sqlite:"):
            return command  # the variable is set already, and its address may hold a password
        return f"MLFLOW_TRACKING_URI={shlex.quote(self.tracking_uri)} {command}"

    def active_run(self, run_id: str) -> Run | None:
        """Return the run, or None if it does not exist or was deleted."""
        try:
            run = self.client.get_run(run_id)
        except MlflowException as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
            return None
        return run if run.info.lifecycle_stage == LifecycleStage.ACTIVE else None

    def find_originals(self, experiment_id: str, identity: str) -> list[Run]:
        """Return the runs that computed an identity, without links, the newest first."""
        return [run for run in self.search(experiment_id, IDENTITY_TAG, identity) if not is_link(run)]

    def find_of_spool(self, experiment_id: str, spool: str) -> Run | None:
        """Return the run that a spool writes to, or else the run that it created."""
        for tag in (WRITER_TAG, SPOOL_TAG):
            for run in self.search(experiment_id, tag, spool):
                return run
        return None

    def newest_own(self, experiment_id: str, identity: str, opened: RunOpened) -> Run | None:
        """Return the newest run of an identity with the storage and the user of an opening."""
        return next((run for run in self.find_originals(experiment_id, identity) if is_own(run, opened)), None)

    def linked_under(self, experiment_id: str, opened: RunOpened, parent_id: str | None) -> str | None:
        """Return the run that a study already has of a stage: a link, or the run that computed it."""
        source = None if opened.source_run_id is None else self.active_run(opened.source_run_id)
        links = [run for run in self.search(experiment_id, IDENTITY_TAG, opened.identity) if is_link(run)]
        runs = links if source is None else [*links, source]
        return next((str(run.info.run_id) for run in runs if run.data.tags.get(PARENT_TAG) == parent_id), None)

    def parent_id(self, experiment_id: str, opened: RunOpened) -> str | None:
        """Return the run of an opening's parent; None for an opening without a parent.

        Raises:
            MissingParentError: The parent's run does not exist yet.
        """
        if opened.parent_spool is None:
            return None
        parent = self.find_of_spool(experiment_id, opened.parent_spool)
        if parent is None and opened.parent_identity is not None:
            parent = self.newest_own(experiment_id, opened.parent_identity, opened)
        if parent is None:
            raise MissingParentError(f"the parent of run {opened.name!r} is not there yet")
        return str(parent.info.run_id)

    def create_run(self, experiment_id: str, opened: RunOpened, parent_id: str | None) -> Run:
        """Create a run as its opening says, with tags that relate it to other runs."""
        tags = {
            IDENTITY_TAG: opened.identity,
            SPOOL_TAG: opened.spool,
            WRITER_TAG: opened.spool,
            STORAGE_TAG: opened.storage,
            HOST_TAG: opened.host,
            USER_TAG: opened.user,
            # At once, since MLflow takes the attribute `user_id` from it only when it creates the run.
            MLFLOW_USER: opened.user_name or opened.user,
        }
        if parent_id is not None:
            tags[PARENT_TAG] = parent_id
        if opened.is_link:
            tags[SOURCE_TAG] = opened.source_run_id or "unknown"
        elif same := self.find_originals(experiment_id, opened.identity):
            tags[SAME_TAG] = same[0].info.run_id
        return self.client.create_run(experiment_id, start_time=opened.timestamp, tags=tags, run_name=opened.name)

    def continue_run(self, run_id: str, opened: RunOpened) -> None:
        """Open a run again, for a spool that writes to it from now on."""
        self.client.set_tag(run_id, WRITER_TAG, opened.spool)
        self.client.set_tag(run_id, HOST_TAG, opened.host)
        self.client.update_run(run_id, status="RUNNING")

    def add_model(self, run_id: str, model: ModelMade) -> None:
        """Give a run a logged model that points at a checkpoint, unless it has the model already.

        `mlflow.create_external_model` does the same, but only at the process's one tracking address. The model has the
        last values of the run's metrics, on its training set.
        """
        run = self.client.get_run(run_id)
        experiment_id = run.info.experiment_id
        made = self.client.search_logged_models([experiment_id], f"source_run_id = '{run_id}'")
        same = (each for each in made if each.name == model.name and each.params.get("uri") == model.uri)
        if (logged := next(same, None)) is None:
            tags = {tag: run.data.tags[tag] for tag in _TAGS_OF_MODELS if tag in run.data.tags}
            tags["mlflow.model.isExternal"] = "true"
            params = {"uri": model.uri}
            logged = self.client.create_logged_model(experiment_id, model.name, run_id, tags, params, model.type)
        # Check each step: sending may have been interrupted after any of them.
        if logged.status != LoggedModelStatus.READY:
            self.client.finalize_logged_model(logged.model_id, "READY")
        if run.outputs is None or logged.model_id not in {output.model_id for output in run.outputs.model_outputs}:
            self.client.log_outputs(run_id, [LoggedModelOutput(logged.model_id, 0)])
        trained_on = [
            (used.dataset.name, used.dataset.digest)
            for used in (run.inputs.dataset_inputs if run.inputs else ())
            if InputTag(MLFLOW_DATASET_CONTEXT, "train") in used.tags
        ]
        name, digest = trained_on[0] if trained_on else (None, None)
        points = [
            # With the same time and step, the run has the value only once.
            Metric(key, last.value, last.timestamp, last.step, logged.model_id, name, digest)
            for key, value in run.data.metrics.items()
            if math.isfinite(value) and not key.startswith((SYSTEM_PREFIX, STEPS_PREFIX))
            for last in [max(self.client.get_metric_history(run_id, key), key=lambda one: (one.step, one.timestamp))]
        ]
        self.client.log_batch(run_id, metrics=points, synchronous=True)

    def model_at(self, run: Run, uri: str) -> LoggedModel | None:
        """Return the newest logged model of a checkpoint's address, as a run sees it; None if there is none.

        A path is another one in another storage, which may be of another host.
        """
        if "'" in uri:  # MLflow's filters have no way to write it
            return None
        found = self.client.search_logged_models([run.info.experiment_id], f"params.uri = '{uri}'")
        storage = run.data.tags.get(STORAGE_TAG)
        return next((model for model in found if "://" in uri or self._storage_of(model) == storage), None)

    def _storage_of(self, model: LoggedModel) -> str | None:
        storage = model.tags.get(STORAGE_TAG)
        if storage is None and model.source_run_id is not None:  # an earlier version recorded it
            source = self.active_run(model.source_run_id)
            storage = None if source is None else source.data.tags.get(STORAGE_TAG)
        return None if storage is None else str(storage)

    def use_model(self, run_id: str, used: ModelUsed) -> None:
        """Give a run a checkpoint's model as its input, and name the checkpoint's training in its tags."""
        run = self.client.get_run(run_id)
        model = self.model_at(run, used.uri)
        if model is not None:
            self.client.log_inputs(run_id, models=[LoggedModelInput(model.model_id)])
        if model is not None and model.source_run_id is not None:
            training = self.active_run(model.source_run_id)
        else:
            found = [] if used.identity is None else self.find_originals(run.info.experiment_id, used.identity)
            storage = run.data.tags.get(STORAGE_TAG)
            training = next((each for each in found if each.data.tags.get(STORAGE_TAG) == storage), None)
        if training is not None:
            named = {TRAINING_ID_TAG: training.info.run_id, TRAINING_TAG: training.info.run_name}
            if named[TRAINING_ID_TAG] not in run.data.tags.get(TRAINING_ID_TAG, ""):
                # After those of other checkpoints, and in one request: the next try passes over a training with its id.
                texts = {tag: ", ".join(filter(None, (run.data.tags.get(tag), value))) for tag, value in named.items()}
                tags = [RunTag(tag, text[:MAX_TAG_LENGTH]) for tag, text in texts.items()]
                self.client.log_batch(run_id, tags=tags, synchronous=True)

    def add_dataset(self, run_id: str, dataset: DatasetUsed) -> None:
        """Give a run a data set as its input; MLflow keeps one per name and digest, with its first purpose."""
        scheme = urlsplit(dataset.uri).scheme if "://" in dataset.uri else "file"
        kind = "local" if scheme == "file" else scheme  # as MLflow names its own sources
        content = Dataset(dataset.name, dataset.digest, kind, json.dumps({"uri": dataset.uri}))
        tags = [InputTag(MLFLOW_DATASET_CONTEXT, dataset.purpose)]
        self.client.log_inputs(run_id, [DatasetInput(content, tags)])

    def search(self, experiment_id: str, tag: str | None = None, value: str = "") -> list[Run]:
        """Return the runs of an experiment, or those with a value of a tag, the newest first."""
        condition = "" if tag is None else f"tags.{tag} = '{value}'"
        order = ["attributes.start_time ASC"]  # so that a run that starts between two pages does not shift the second
        search = partial(self.client.search_runs, [experiment_id], condition, max_results=1000, order_by=order)
        page = search()
        found = list(page)
        while page.token:
            page = search(page_token=page.token)
            found += page
        return found[::-1]


def is_link(run: Run) -> bool:
    """Return whether a run only points at the run of another study."""
    return SOURCE_TAG in run.data.tags


def is_own(run: Run, opened: RunOpened) -> bool:
    """Return whether a run has the storage and the user of an opening."""
    tags = run.data.tags
    return bool(tags.get(STORAGE_TAG) == opened.storage and tags.get(USER_TAG) == opened.user)


def initialise(server: Server, experiment: str) -> None:
    """Make an SQLite store and its experiment if they are missing."""
    database = Path(server.tracking_uri.removeprefix("sqlite:///"))
    try:
        database.parent.mkdir(parents=True, exist_ok=True)
        with exclusive_lock(database.with_name("mlflow.lock")):
            # SQLite would make a file that only its owner may write, even in a folder of a group.
            database.touch()
            with database.open("ab"):
                server.experiment_id(experiment)
            if server == own_server(database.parent):
                follow_move(database.parent, experiment)
    except PermissionError as error:
        problem = f"does not let user {this_user()} write {error.filename}"
        remedy = f"Set another --storage, set {TRACKING_URI_VARIABLE}, or have the owner give the group that right."
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
        # Ray starts each worker in its own folder, where a relative path would be another file.
        file = Path(uri.removeprefix("sqlite:///")).absolute()
        return Server(f"sqlite:///{file}", artifact_location(file.parent))
    if "://" not in uri:
        raise _unknown_kind(uri, Server(uri))
    server = Server(uri)
    if not uri.startswith(_DATABASES):  # making the client would connect to a database, which may be away
        try:
            server.client  # noqa: B018
        except MlflowException as error:
            raise _unknown_kind(uri, server) from error
    return server


def _unknown_kind(uri: str, server: Server) -> InputError:
    remedy = f"Set it to http://{uri}." if _HOST.fullmatch(uri) else _REMEDY
    return InputError(TRACKING_URI_VARIABLE, server.shown_address, "is not a kind of address that MLflow takes", remedy)


def own_server(folder: Path) -> Server:
    """Return the SQLite store in a local folder, which is in use if `MLFLOW_TRACKING_URI` names none."""
    return Server(f"sqlite:///{folder / 'mlflow.db'}", artifact_location(folder))


def artifact_location(folder: Path) -> str:
    """Return the address of the artifacts that lie beside the SQLite store in a folder."""
    return (folder / _ARTIFACTS).as_uri()


def follow_move(folder: Path, experiment: str) -> None:
    """Point a store at the artifacts beside it if its folder was moved or copied: MLflow keeps addresses absolute.

    Args:
        folder: The store's folder now; no other process may be opening the store.
        experiment: Its experiment. If the user keeps the experiment's artifacts elsewhere, nothing changes.
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
