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
from objectaware.tracking.server import PARENT_TAG, SOURCE_TAG, Server
from objectaware.tracking.spool import Progress, Spool

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
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        self._steps_on_server: dict[tuple[str, str], set[int]] = {}

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
        match batch.records:
            case [RunOpened() as opened]:
                return self._open(opened, batch.end, progress)
            case records:
                run_id = progress.run_id
                assert run_id is not None, f"{spool.folder} does not begin with the opening of a run"
                if progress.is_adopted:
                    records = tuple(record for record in records if not self._is_on_server(run_id, record))
                self._log_or_reject(spool, run_id, records)
                is_finished = progress.is_finished or any(isinstance(record, RunFinished) for record in records)
                return replace(progress, offset=batch.end, is_finished=is_finished)

    def _open(self, opened: RunOpened, end: int, progress: Progress) -> Progress:
        if progress.run_id is not None and self._server.active_run(progress.run_id) is not None:
            self._server.client.update_run(progress.run_id, status="RUNNING")
            return replace(progress, offset=end, is_finished=False)
        experiment_id = self._server.experiment_id(opened.experiment)
        parent_id = self._parent_id(experiment_id, opened)
        run = self._server.find_created_by(experiment_id, opened.spool)
        is_adopted = False
        if run is None and opened.adopt:
            run = self._find_to_adopt(experiment_id, opened, parent_id)
            is_adopted = run is not None
        if run is None:
            run = self._server.create_run(experiment_id, opened, self._nesting_tags(experiment_id, opened, parent_id))
        else:
            self._server.client.update_run(run.info.run_id, status="RUNNING")
        # If the run that the spool was sent to is gone, its successor gets everything from the start.
        offset = end if progress.run_id is None else 0
        return Progress(run.info.run_id, offset, is_adopted)

    def _find_to_adopt(self, experiment_id: str, opened: RunOpened, parent_id: str | None) -> Run | None:
        if opened.is_link:
            return self._server.find_link(experiment_id, opened.identity, parent_id)
        return self._server.find_original(experiment_id, opened.identity)

    def _parent_id(self, experiment_id: str, opened: RunOpened) -> str | None:
        if opened.parent_spool is None:
            return None
        parent = self._server.find_created_by(experiment_id, opened.parent_spool)
        if parent is None and opened.parent_identity is not None:
            parent = self._server.find_original(experiment_id, opened.parent_identity)
        if parent is None:
            raise MissingParentError(f"the parent of run {opened.name!r} is not there yet")
        return str(parent.info.run_id)

    def _nesting_tags(self, experiment_id: str, opened: RunOpened, parent_id: str | None) -> dict[str, str]:
        tags = {} if parent_id is None else {PARENT_TAG: parent_id}
        if opened.is_link:
            source = opened.source_run_id
            if source is None:
                run = self._server.find_original(experiment_id, opened.identity)
                # The stage may have been tracked elsewhere; its identity still says what was reused.
                source = "unknown" if run is None else str(run.info.run_id)
            tags[SOURCE_TAG] = source
        return tags

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
        """Whether a run that another spool began already has this step of this metric."""
        if not isinstance(record, MetricPoint):
            return False
        key = (run_id, record.key)
        if key not in self._steps_on_server:
            history = self._server.client.get_metric_history(run_id, record.key)
            self._steps_on_server[key] = {point.step for point in history}
        return record.step in self._steps_on_server[key]
