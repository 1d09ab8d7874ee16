"""Send the records of spools to MLflow, by one thread per process."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path, PurePosixPath

from mlflow.entities import Metric, Param, Run, RunTag
from mlflow.exceptions import MlflowException
from requests import HTTPError

from objectaware.tracking.environment import time_for_artifact
from objectaware.tracking.server import (
    HOST_TAG,
    IDENTITY_TAG,
    SPOOL_TAG,
    WRITER_TAG,
    MissingParentError,
    Server,
    is_own,
)
from objectaware.tracking.spool import (
    SYSTEM_PREFIX,
    Artifact,
    Batch,
    DatasetUsed,
    MetricPoint,
    ModelMade,
    ModelUsed,
    Parameter,
    Progress,
    Record,
    RunFinished,
    RunOpened,
    Spool,
    Tag,
)
from objectaware.tracking.spools import Spools

THREAD_NAME = "mlflow-sender"
POLL_SECONDS = 1.0
MAX_DELAY_SECONDS = 30.0
# A try may hold the sender for a minute, in which it sends nothing else.
ARTIFACT_DELAY_SECONDS = 60.0
MAX_ARTIFACT_DELAY_SECONDS = 960.0

# Errors about the record, not about the server: sending the record again would not help.
_REFUSALS = {"INVALID_PARAMETER_VALUE", "RESOURCE_DOES_NOT_EXIST", "INVALID_STATE"}
# Database errors: a value too long for its column, or a race inside MLflow in which another request inserted the same
# row first. Examples are runs that name the same data set, and a request that was repeated after a timeout while the
# server was still working on it. Sending again fixes only the race.
_DATABASE_REFUSAL = "BAD_REQUEST"
# The server answers, but does not let this user in or write.
_REFUSALS_OF_USER = {"PERMISSION_DENIED", "UNAUTHENTICATED"}
# Answers to an upload that are about the file, such as 413, too large for a proxy. The others may change: a token has
# expired and is renewed (401), the server was slow (408) or has too much to do (425, 429).
_REFUSALS_OF_FILES = {*range(400, 500)} - {401, 408, 425, 429}
_NUM_TRIES = 3

_logger = logging.getLogger(__name__)
# urllib3 warns of every failed try. This module reports an outage once.
logging.getLogger("urllib3.connectionpool").addFilter(lambda record: record.threadName != THREAD_NAME)


class ArtifactError(RuntimeError):
    """The server answers, but does not take an artifact now, for example because its own store is slow."""


class Delivery:
    """Sends spools to one server.

    Args:
        server: The server.
        spools: The spools of this host and user.
    """

    def __init__(self, server: Server, spools: Spools) -> None:
        self._server = server
        self._spools = spools
        # What a run that another spool wrote to has; a failed question is asked again.
        self._steps = cache(lambda run, key: {point.step for point in server.client.get_metric_history(run, key)})
        self._parameters = cache(lambda run: server.client.get_run(run).data.params)

    def send(self, spool: Spool) -> None:
        """Send the records of a spool that the server lacks, unless another process is sending them.

        Raises:
            ArtifactError: The server does not take an artifact now.
            Exception: The server does not answer. The progress so far is saved, and the other records stay.
        """
        with spool.sending() as is_ours:
            if not is_ours:
                return
            progress = spool.progress()
            while (batch := spool.read_batch(progress.offset)) is not None:
                progress = self._deliver(spool, batch, progress)
                spool.save_progress(progress)
            if progress.is_unlinked and not self._is_training_unsent(spool):
                self._link(spool, progress)

    def _deliver(self, spool: Spool, batch: Batch, progress: Progress) -> Progress:
        if spool.known().is_dropped:
            return replace(progress, offset=batch.end, is_finished=True)
        match batch.records:
            case [RunOpened() as opened]:
                # The lease of a process that has ended does not say which processes are alive now.
                opened = replace(opened, leased=opened.leased and not spool.is_leftover)
                opening = self._open(opened, batch.end, progress, is_leftover=spool.is_leftover)
                return replace(opening, is_unlinked=progress.is_unlinked)
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
                if is_written_elsewhere:  # the other spool says how the run ends
                    records = tuple(record for record in records if not isinstance(record, RunFinished))
                # Asked before they are sent: the training may arrive in between, and they would miss it.
                is_unlinked = progress.is_unlinked or (
                    any(map(_names_model, records)) and self._is_training_unsent(spool)
                )
                if records:
                    self._log_or_reject(spool, run_id, _with_system_steps(records, progress.started))
                return replace(progress, offset=batch.end, is_finished=is_finished, is_unlinked=is_unlinked)

    def _is_training_unsent(self, spool: Spool) -> bool:
        """Return whether another spool has unsent records of a training whose checkpoint this spool uses."""
        used = {record.identity for record in spool.known().models if isinstance(record, ModelUsed)}
        return any(self._spools.is_unsent_elsewhere(name, spool) for name in used if name is not None)

    def _link(self, spool: Spool, progress: Progress) -> None:
        """Send the records that name a model once more, now that the server has the model.

        They were sent without it, rather than held back: the training may have to wait for long, such as for a file.
        """
        offset = 0
        while offset < progress.offset and (batch := spool.read_batch(offset)) is not None:
            if records := tuple(filter(_names_model, batch.records)):
                self._deliver(spool, replace(batch, records=records), progress)
            offset = batch.end
        spool.save_progress(replace(progress, is_unlinked=False))

    def _open(self, opened: RunOpened, end: int, progress: Progress, *, is_leftover: bool) -> Progress:
        experiment_id = self._server.experiment_id(opened.experiment)
        parent_id = self._server.parent_id(experiment_id, opened)
        run = None if progress.run_id is None else self._server.active_run(progress.run_id)
        run = run or self._server.find_of_spool(experiment_id, opened.spool)
        if opened.is_link and run is None:
            source = self._server.linked_under(experiment_id, opened, parent_id)
            if source is not None:
                return Progress(source, end, is_finished=True, is_link_elsewhere=True)
        if run is not None and not self._may_continue(run, opened):
            if is_leftover:  # another spool has continued the run, but these records still belong to it
                started = run.info.start_time
                return Progress(run.info.run_id, end, is_adopted=True, spool=opened.spool, started=started)
            run = None
        if run is None and opened.adopt and not opened.is_link:
            newest = self._server.newest_own(experiment_id, opened.identity, opened)
            run = newest if newest is not None and self._may_continue(newest, opened) else None
        # If the run that the spool was sent to is gone, its successor gets everything from the start.
        is_same = progress.run_id is None or (run is not None and run.info.run_id == progress.run_id)
        if run is None:
            run = self._server.create_run(experiment_id, opened, parent_id)
            is_adopted = False
        else:
            writers = {run.data.tags.get(WRITER_TAG), run.data.tags.get(SPOOL_TAG)}
            is_adopted = progress.is_adopted or writers != {opened.spool}
            self._server.continue_run(run.info.run_id, opened)
        end, started = end if is_same else 0, run.info.start_time
        return Progress(run.info.run_id, end, is_adopted, spool=opened.spool, started=started)

    def _may_continue(self, run: Run, opened: RunOpened) -> bool:
        """Return whether an opening may continue a run: its own, or one of its storage and user without a live writer.

        The result of a finished stage stays as it is. A study is continued whenever it is started again.
        """
        tags = run.data.tags
        writer = tags.get(WRITER_TAG, "")
        if writer == opened.spool:
            return True
        if not is_own(run, opened) or (run.info.status == "FINISHED" and not opened.is_study):
            return False
        if run.info.status != "RUNNING" or opened.leased:
            return True
        # On this host a live process holds its spool.
        return tags.get(HOST_TAG) == opened.host and not self._spools.is_alive(opened.identity, writer)

    def _is_written_elsewhere(self, run_id: str, spool: str) -> bool:
        """Return whether another spool has continued the run since this one began it.

        Ask the server before every batch: a process that was suspended may lose its run at any time.
        """
        run = self._server.active_run(run_id)
        return run is not None and bool(run.data.tags.get(WRITER_TAG) != spool)

    def _log_or_reject(self, spool: Spool, run_id: str, records: Sequence[Record]) -> None:
        """Send records, and set aside each one that the server refuses because of its content."""
        reason = ""
        for _ in range(_NUM_TRIES):
            try:
                self._request(spool, run_id, records)
                return
            except (FileNotFoundError, HTTPError) as error:
                reason = str(error)
            except MlflowException as error:
                if error.error_code not in {*_REFUSALS, _DATABASE_REFUSAL}:
                    raise
                reason = str(error)
                if error.error_code in _REFUSALS:
                    break
        if len(records) > 1:
            for record in records:
                self._log_or_reject(spool, run_id, [record])
        else:
            spool.reject(records[0], self._server.without_password(reason))

    def _request(self, spool: Spool, run_id: str, records: Sequence[Record]) -> None:
        client = self._server.client
        match records:
            case [Artifact() as artifact]:
                self._upload(run_id, spool.file_of(artifact), artifact.path)
            case [ModelMade() as model]:
                self._server.add_model(run_id, model)
            case [ModelUsed() as used]:
                self._server.use_model(run_id, used)
            case [DatasetUsed() as dataset]:
                self._server.add_dataset(run_id, dataset)
            case [RunFinished(status=status, timestamp=timestamp)]:
                client.set_terminated(run_id, status, timestamp)
            case _:
                points = [one for one in records if isinstance(one, MetricPoint)]
                # MLflow would give the model 0 for NaN, and the largest number for infinity.
                uris = [one.model if math.isfinite(one.value) else None for one in points]
                models = self._models(run_id, {uri for uri in uris if uri is not None})
                client.log_batch(
                    run_id,
                    metrics=[
                        Metric(one.key, one.value, one.timestamp, one.step, models.get(uri))
                        for one, uri in zip(points, uris, strict=True)
                    ],
                    params=[Param(one.key, one.value) for one in records if isinstance(one, Parameter)],
                    tags=[RunTag(one.key, one.value) for one in records if isinstance(one, Tag)],
                    synchronous=True,
                )

    def _upload(self, run_id: str, file: Path, path: str) -> None:
        folder = PurePosixPath(path).parent.as_posix()
        try:
            with time_for_artifact(file.stat().st_size):
                self._server.client.log_artifact(run_id, str(file), None if folder == "." else folder)
        except FileNotFoundError:
            raise
        except Exception as error:  # of the network, the server or its artifact store
            if isinstance(error, MlflowException) and error.error_code in {*_REFUSALS, _DATABASE_REFUSAL}:
                raise
            run = self._server.client.get_run(run_id)  # raises if the server itself is away
            answer = error.response if isinstance(error, HTTPError) else None
            if answer is not None and answer.status_code in _REFUSALS_OF_FILES:
                # A 403 may be about the user, who gets the right later, or leaves the file to another user's command.
                # This raises if the user may not write at all.
                self._server.client.set_tag(run_id, IDENTITY_TAG, run.data.tags[IDENTITY_TAG])
                raise
            raise ArtifactError(f"{path}: {self._server.without_password(str(error))}") from error

    def _models(self, run_id: str, uris: set[str]) -> dict[str | None, str]:
        """Return the ids of the logged models at some addresses, as far as there are models."""
        run = self._server.client.get_run(run_id) if uris else None
        found = {uri: self._server.model_at(run, uri) for uri in uris} if run is not None else {}
        return {uri: model.model_id for uri, model in found.items() if model is not None}

    def _is_on_server(self, run_id: str, record: Record) -> bool:
        """Return whether a run that another spool wrote to has this parameter, or this step of this metric."""
        match record:
            case MetricPoint(key=key, step=step) if not key.startswith(SYSTEM_PREFIX):
                return step in self._steps(run_id, key)
            case Parameter(key=key, value=value):
                first = self._parameters(run_id).get(key, value)
                if first != value:
                    _logger.warning("run %s began with %s = %s and continues with %s", run_id, key, first, value)
                return key in self._parameters(run_id)
            case _:
                return False


def _names_model(record: Record) -> bool:
    return isinstance(record, ModelUsed) or (isinstance(record, MetricPoint) and record.model is not None)


def _with_system_steps(records: Sequence[Record], started: int) -> list[Record]:
    """Count the steps of system metrics in seconds from the start of the run, even if another spool began it."""
    return [
        replace(record, step=(record.timestamp - started) // 1000)
        if isinstance(record, MetricPoint) and record.key.startswith(SYSTEM_PREFIX)
        else record
        for record in records
    ]


class Sender:
    """Sends spools in the order in which they were added, parents before their children.

    One thread sends all of them. It starts with the first spool and ends with the last. It collects records for a
    second, so that a fast stage makes few large requests. While the server is away, it tries again after 2, 4, 8, … up
    to 30 seconds. If the server only does not take an artifact, that spool is tried again after 1, 2, 4, … 16 minutes,
    and the others are sent meanwhile.

    Args:
        server: The server.
        spools: The spools of this host and user.
    """

    def __init__(self, server: Server, spools: Spools) -> None:
        self._server = server
        self._delivery = Delivery(server, spools)
        self._changed = threading.Condition()
        self._spools: list[Spool] = []
        self._released: set[Spool] = set()
        self._postponed: dict[Spool, tuple[float, float]] = {}  # until when, and for how long
        self._thread: threading.Thread | None = None
        self._is_hurried = False
        self._is_away = False

    def add(self, spool: Spool) -> None:
        """Send a spool from now on, at once and whenever it grows."""
        with self._changed:
            self._spools.append(spool)
            self._hurry()
            if self._thread is None:
                # A daemon, since an interrupted command must not wait for a server. Unsent records stay in the spool.
                self._thread = threading.Thread(target=self._run, name=THREAD_NAME, daemon=True)
                self._thread.start()

    def flush(self, spool: Spool, timeout_seconds: float) -> bool:
        """Wait until a spool is sent, or the time is over.

        Returns:
            Whether all of it arrived.
        """
        with self._changed:
            self._hurry()
            return self._changed.wait_for(
                lambda: not spool.has_unsent() and spool not in self._released, timeout_seconds
            )

    def stop(self, timeout_seconds: float) -> None:
        """Stop sending; wait until the requests under way end, or the time is over."""
        with self._changed:
            self._spools.clear()
            self._released.clear()
            self._hurry()
            thread = self._thread
        if thread is not None:
            thread.join(timeout_seconds)

    def release(self, spool: Spool) -> None:
        """Forget and remove a spool that no longer grows, once it is sent."""
        with self._changed:
            self._released.add(spool)
            self._hurry()

    def _hurry(self) -> None:
        self._is_hurried = True
        self._changed.notify_all()

    def _run(self) -> None:
        delay = POLL_SECONDS
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._is_hurried, delay)
                self._is_hurried = False
                spools = list(self._spools)
            delay = POLL_SECONDS if self._send(spools) else min(2 * delay, MAX_DELAY_SECONDS)
            with self._changed:
                try:
                    self._forget_released()
                except Exception:  # if this thread died, all later records would wait
                    _logger.exception("sent records could not be removed; they will be removed later")
                self._changed.notify_all()
                if not self._spools:
                    self._thread = None
                    return

    def _forget_released(self) -> None:
        done = {spool for spool in self._released if not spool.has_unsent()}
        for spool in done:
            spool.remove_if_settled()
        self._spools = [spool for spool in self._spools if spool not in done]
        self._released -= done
        self._postponed = {spool: wait for spool, wait in self._postponed.items() if spool not in done}

    def _send(self, spools: list[Spool]) -> bool:
        """Send all spools; stop at the first failure, since the next would only wait for the same server or its store.

        Returns:
            Whether the server answers.
        """
        # Those that had to wait come last, since they may hold up the others again, and the longest due of them first.
        new = (0.0, ARTIFACT_DELAY_SECONDS / 2)
        for spool in sorted(spools, key=lambda each: self._postponed.get(each, new)[0]):
            until, delay = self._postponed.get(spool, new)
            if time.monotonic() < until:
                continue
            try:
                if spool.has_unsent():
                    self._delivery.send(spool)
                self._postponed.pop(spool, None)
            except ArtifactError as error:
                delay = min(2 * delay, MAX_ARTIFACT_DELAY_SECONDS)
                self._postponed[spool] = (time.monotonic() + delay, delay)
                message = "MLflow at %s does not take a file now (%s). It is tried again in %.0f s, from %s."
                _logger.warning(message, self._server.shown_address, error, delay, spool.folder)
                break  # the try may have taken a minute, in which the live runs have more to send
            except MissingParentError as error:
                _logger.info("%s waits: %s", spool.folder, error)
            except Exception as error:  # no error about records may stop the work that they describe
                self._report_away(spool, error)
                return False
        if self._is_away:
            _logger.warning("MLflow at %s takes records again.", self._server.shown_address)
            self._is_away = False
        return True

    def _report_away(self, spool: Spool, error: Exception) -> None:
        level = logging.DEBUG if self._is_away else logging.WARNING
        reason = self._server.without_password(str(error))
        if isinstance(error, MlflowException) and error.error_code in _REFUSALS_OF_USER:
            problem = "refuses the records of this user"
            remedy = "Ask for the right to edit the experiment, or set another one with --experiment. "
        else:
            problem, remedy = "takes no records", ""
            reason = f"{type(error).__name__}: {reason}"
        message = "MLflow at %s %s (%s). %sThe work continues. The records stay in %s and are sent later."
        _logger.log(level, message, self._server.shown_address, problem, reason, remedy, spool.folder)
        self._is_away = True
