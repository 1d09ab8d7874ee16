"""Records of a spool turned into requests to MLflow."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import PurePosixPath

from mlflow.entities import Metric, Param, Run, RunTag
from mlflow.exceptions import MlflowException

from objectaware.tracking.batches import Batch
from objectaware.tracking.records import (
    SYSTEM_PREFIX,
    Artifact,
    DatasetUsed,
    MetricPoint,
    ModelMade,
    Parameter,
    Record,
    RunFinished,
    RunOpened,
    Tag,
)
from objectaware.tracking.server import (
    HOST_TAG,
    PARENT_TAG,
    SAME_TAG,
    SOURCE_TAG,
    SPOOL_TAG,
    STORAGE_TAG,
    USER_TAG,
    WRITER_TAG,
    Server,
)
from objectaware.tracking.spool import Progress, Spool
from objectaware.tracking.spools import Spools

# What the server says about the record and not about itself: sending it again would not help.
_REFUSALS = {"INVALID_PARAMETER_VALUE", "RESOURCE_DOES_NOT_EXIST", "INVALID_STATE"}
# Whatever its database refuses: a text too long for its column, but also a row that somebody else wrote between
# MLflow's looking for it and its writing it (runs that name the same data set; a request that timed out and was
# repeated while the server was still at it). The latter goes through when it is sent again.
_DATABASE_REFUSAL = "BAD_REQUEST"
_NUM_TRIES = 3

_logger = logging.getLogger(__name__)


class MissingParentError(RuntimeError):
    """A child cannot be created before its parent; its records stay in the spool."""


class Delivery:
    """Sends spools to one server.

    Args:
        server: Where to.
        spools: Where spools of this host and user lie.
    """

    def __init__(self, server: Server, spools: Spools) -> None:
        self._server = server
        self._spools = spools
        self._steps_on_server: dict[tuple[str, str], set[int]] = {}
        self._parameters_on_server: dict[str, dict[str, str]] = {}
        self._written_elsewhere: dict[str, bool] = {}

    def send(self, spool: Spool) -> None:
        """Sends what a spool holds and the server lacks, unless another process is at it.

        Raises:
            Exception: Whatever MLflow raises when the server does not answer; what was sent is noted, the
                rest stays.
        """
        with spool.sending() as is_ours:
            if not is_ours:
                return
            progress = spool.progress()
            while (batch := spool.read_batch(progress.offset)) is not None:
                progress = self._deliver(spool, batch, progress)
                spool.save_progress(progress)

    def _deliver(self, spool: Spool, batch: Batch, progress: Progress) -> Progress:
        if spool.known().is_dropped:
            return replace(progress, offset=batch.end, is_finished=True)
        match batch.records:
            case [RunOpened() as opened]:
                # The lease of a process that has ended says nothing of who is alive now.
                opened = replace(opened, leased=opened.leased and not spool.is_leftover)
                return self._open(opened, batch.end, progress, is_leftover=spool.is_leftover)
            case records:
                run_id = progress.run_id
                assert run_id is not None, f"{spool.folder} does not begin with the opening of a run"
                if progress.is_link_elsewhere:
                    return replace(progress, offset=batch.end)
                is_finished = progress.is_finished or any(isinstance(record, RunFinished) for record in records)
                is_written_elsewhere = self._is_written_elsewhere(run_id, progress.spool)
                if is_written_elsewhere and not spool.is_leftover:  # this command has lost its lease
                    return replace(progress, offset=batch.end, is_finished=is_finished)
                if progress.is_adopted or is_written_elsewhere:
                    records = tuple(record for record in records if not self._is_on_server(run_id, record))
                if is_written_elsewhere:  # how it ends is for the other one to say
                    records = tuple(record for record in records if not isinstance(record, RunFinished))
                if records:
                    self._log_or_reject(spool, run_id, _with_system_steps(records, progress.started))
                return replace(progress, offset=batch.end, is_finished=is_finished)

    def _open(self, opened: RunOpened, end: int, progress: Progress, *, is_leftover: bool) -> Progress:
        experiment_id = self._server.experiment_id(opened.experiment)
        parent_id = self._parent_id(experiment_id, opened)
        run = None if progress.run_id is None else self._server.active_run(progress.run_id)
        run = run or self._server.find_of_spool(experiment_id, opened.spool)
        if opened.is_link and run is None:
            source = self._linked_under(experiment_id, opened, parent_id)
            if source is not None:
                return Progress(source, end, is_finished=True, is_link_elsewhere=True)
        if run is not None and not self._may_continue(run, opened):
            if is_leftover:  # another spool has continued the run: these records still belong to it
                self._written_elsewhere[opened.spool] = True
                started = run.info.start_time
                return Progress(run.info.run_id, end, is_adopted=True, spool=opened.spool, started=started)
            run = None
        if run is None and opened.adopt and not opened.is_link:
            newest = self._newest_own(experiment_id, opened.identity, opened)
            run = newest if newest is not None and self._may_continue(newest, opened) else None
        # If the run that the spool was sent to is gone, its successor gets everything from the start.
        is_same = progress.run_id is None or (run is not None and run.info.run_id == progress.run_id)
        if run is None:
            run = self._server.create_run(experiment_id, opened, self._tags(experiment_id, opened, parent_id))
            is_adopted = False
        else:
            writers = {run.data.tags.get(WRITER_TAG), run.data.tags.get(SPOOL_TAG)}
            is_adopted = progress.is_adopted or writers != {opened.spool}
            self._server.continue_run(run.info.run_id, opened)
        self._written_elsewhere[opened.spool] = False
        return Progress(
            run.info.run_id, end if is_same else 0, is_adopted, spool=opened.spool, started=run.info.start_time
        )

    def _may_continue(self, run: Run, opened: RunOpened) -> bool:
        """Whether an opening may continue a run: its own, or one of its storage and user that nobody works on any more.

        The result of a finished stage stays as it is; a study is continued whenever it is started again.
        """
        tags = run.data.tags
        writer = tags.get(WRITER_TAG, "")
        if writer == opened.spool:
            return True
        if not _is_own(run, opened) or (run.info.status == "FINISHED" and not opened.is_study):
            return False
        if run.info.status != "RUNNING" or opened.leased:
            return True
        # On this host a process that lives holds its spool.
        return tags.get(HOST_TAG) == opened.host and not self._spools.is_alive(opened.identity, writer)

    def _is_written_elsewhere(self, run_id: str, spool: str) -> bool:
        """Whether another spool has continued the run since this one began it.

        While it is not so, this is asked before every batch: a process that was suspended may lose its run at any time.
        """
        if not self._written_elsewhere.get(spool):
            run = self._server.active_run(run_id)
            self._written_elsewhere[spool] = run is not None and run.data.tags.get(WRITER_TAG) != spool
        return self._written_elsewhere[spool]

    def _parent_id(self, experiment_id: str, opened: RunOpened) -> str | None:
        if opened.parent_spool is None:
            return None
        parent = self._server.find_of_spool(experiment_id, opened.parent_spool)
        if parent is None and opened.parent_identity is not None:
            parent = self._newest_own(experiment_id, opened.parent_identity, opened)
        if parent is None:
            raise MissingParentError(f"the parent of run {opened.name!r} is not there yet")
        return str(parent.info.run_id)

    def _newest_own(self, experiment_id: str, identity: str, opened: RunOpened) -> Run | None:
        """The newest run of an identity that belongs to the storage and the user that an opening names."""
        originals = self._server.find_originals(experiment_id, identity)
        return next((run for run in originals if _is_own(run, opened)), None)

    def _linked_under(self, experiment_id: str, opened: RunOpened, parent_id: str | None) -> str | None:
        """The run that a study has of a stage already: a link, or the one that computed."""
        link = self._server.find_link(experiment_id, opened.identity, parent_id)
        if link is not None:
            return str(link.info.run_id)
        source = None if opened.source_run_id is None else self._server.active_run(opened.source_run_id)
        is_child = source is not None and source.data.tags.get(PARENT_TAG) == parent_id
        return opened.source_run_id if is_child else None

    def _tags(self, experiment_id: str, opened: RunOpened, parent_id: str | None) -> dict[str, str]:
        """Tags of a new run that say how it relates to others."""
        tags = {} if parent_id is None else {PARENT_TAG: parent_id}
        if opened.is_link:
            source = opened.source_run_id
            if source is None:
                run = self._server.find_original(experiment_id, opened.identity, opened.storage)
                # The stage may have been tracked elsewhere; its identity still says what was reused.
                source = "unknown" if run is None else str(run.info.run_id)
            return {**tags, SOURCE_TAG: source}
        same = self._server.find_originals(experiment_id, opened.identity)
        return {**tags, SAME_TAG: same[0].info.run_id} if same else tags

    def _log_or_reject(self, spool: Spool, run_id: str, records: Sequence[Record]) -> None:
        reason = self._refusal_of(spool, run_id, records)
        if reason is None:
            return
        if len(records) > 1:
            for record in records:
                self._log_or_reject(spool, run_id, [record])
        else:
            spool.reject(records[0], self._server.without_password(reason))

    def _refusal_of(self, spool: Spool, run_id: str, records: Sequence[Record]) -> str | None:
        """Sends records and tells why they were refused for what they are, or None if they were taken."""
        refusal = None
        for _ in range(_NUM_TRIES):
            try:
                self._request(spool, run_id, records)
            except FileNotFoundError as error:
                return str(error)
            except MlflowException as error:
                refusal = str(error)
                if error.error_code in _REFUSALS:
                    return refusal
                if error.error_code != _DATABASE_REFUSAL:
                    raise
            else:
                return None
        return refusal

    def _request(self, spool: Spool, run_id: str, records: Sequence[Record]) -> None:
        client = self._server.client
        match records:
            case [Artifact(path=path) as artifact]:
                folder = PurePosixPath(path).parent.as_posix()
                client.log_artifact(run_id, str(spool.file_of(artifact)), None if folder == "." else folder)
            case [ModelMade() as model]:
                self._server.add_model(run_id, model)
            case [DatasetUsed() as dataset]:
                self._server.add_dataset(run_id, dataset)
            case [RunFinished(status=status, timestamp=timestamp)]:
                client.set_terminated(run_id, status, timestamp)
            case _:
                client.log_batch(
                    run_id,
                    metrics=[
                        Metric(m.key, m.value, m.timestamp, m.step) for m in records if isinstance(m, MetricPoint)
                    ],
                    params=[Param(p.key, p.value) for p in records if isinstance(p, Parameter)],
                    tags=[RunTag(t.key, t.value) for t in records if isinstance(t, Tag)],
                    synchronous=True,
                )

    def _is_on_server(self, run_id: str, record: Record) -> bool:
        """Whether a run that another spool wrote to already has this parameter, or this step of this metric."""
        match record:
            case MetricPoint(key=key, step=step) if not key.startswith(SYSTEM_PREFIX):
                return step in self._steps(run_id, key)
            case Parameter(key=key, value=value):
                first = self._parameters(run_id).get(key, value)
                if first != value:
                    _logger.warning("run %s began with %s = %s and goes on with %s", run_id, key, first, value)
                return key in self._parameters(run_id)
            case _:
                return False

    def _steps(self, run_id: str, key: str) -> set[int]:
        if (run_id, key) not in self._steps_on_server:
            history = self._server.client.get_metric_history(run_id, key)
            self._steps_on_server[run_id, key] = {point.step for point in history}
        return self._steps_on_server[run_id, key]

    def _parameters(self, run_id: str) -> dict[str, str]:
        if run_id not in self._parameters_on_server:
            self._parameters_on_server[run_id] = self._server.client.get_run(run_id).data.params
        return self._parameters_on_server[run_id]


def _is_own(run: Run, opened: RunOpened) -> bool:
    """Whether a run belongs to the storage and the user that an opening names."""
    tags = run.data.tags
    return bool(tags.get(STORAGE_TAG) == opened.storage and tags.get(USER_TAG) == opened.user)


def _with_system_steps(records: Sequence[Record], started: int) -> list[Record]:
    """Counts the steps of system metrics in seconds from the run's beginning, also where another spool began it."""
    return [
        replace(record, step=(record.timestamp - started) // 1000)
        if isinstance(record, MetricPoint) and record.key.startswith(SYSTEM_PREFIX)
        else record
        for record in records
    ]
