"""Keep the local, append-only record of one run.

A folder with

- `records.jsonl`: the records in order, one per line, only ever appended to. If a killed process left a line half
  written, the next writer cuts it off.
- `files/`: a copy of every artifact, under its path in MLflow.
- `progress.json`: the id of the MLflow run, and how far the spool is sent. If this file is lost, everything is sent
  again, which changes nothing.

Beside it lies `rejected/NAME.jsonl`: the records that the server refused because of their content, with its reason. The
files of refused artifacts lie in `rejected/NAME`.

A record carries its final timestamp from the moment it is made. MLflow ignores a metric that it already holds with the
same step, value and timestamp. So a record may be sent again after a crash; with a new timestamp it would be doubled.

Any number of processes of one host and user may write to a spool and send it; file locks keep them apart. A spool is
removed when its run has ended and the server holds all its records: it is moved into `removed/` beside it, and deleted
from there.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import logging
import os
import shutil
import tempfile
import threading
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, get_args

from objectaware.data.storage import Storage

SYSTEM_PREFIX = "system/"
"""Prefix of metrics that MLflow's UI shows on a separate page."""
STEPS_PREFIX = "steps/"
"""Prefix of a training's metrics by step, which MLflow's UI shows in a section of their own."""

MAX_RECORDS = 1000
MAX_PARAMETERS = 100
MAX_TAGS = 100
MAX_TAG_LENGTH = 5000  # every version of the server takes this
MAX_BYTES = 500_000  # MLflow refuses a request above 1,000,000 characters; its JSON is at most twice as long as ours

_REMOVED = "removed"
# NFSv3 without lockd, Lustre mounted without -o flock.
_NO_LOCKS = {errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP}

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RunOpened:
    """A run begins, or continues after a restart.

    Args:
        experiment: Name of the MLflow experiment.
        name: Name of the run as shown.
        identity: The stage's or study's identity, by which other commands find the run.
        spool: A number unique to the spool. The run that the spool creates carries it as a tag. So a crash between
            creating the run and noting it does not lead to a second run.
        timestamp: Milliseconds since 1970.
        storage: Id of the storage of the run's results.
        host: Name of the host that records.
        user: The user there, as `spools.this_user` returns it.
        parent_spool: The parent's spool; None for a parent.
        parent_identity: The parent's identity, if another spool may have created the parent.
        adopt: Whether to continue a run of this identity, storage and user that another spool began.
        leased: Whether this process alone may compute this identity in this storage, so that no other writer is alive.
        is_study: Whether the run has child runs, and is continued even after it finished.
        is_link: Whether this run only points at another study's run of the same identity.
        source_run_id: The run that a link points at.
        user_name: The user's name as shown; None in spools of earlier versions.
    """

    experiment: str
    name: str
    identity: str
    spool: str
    timestamp: int
    storage: str
    host: str
    user: str
    parent_spool: str | None = None
    parent_identity: str | None = None
    adopt: bool = True
    leased: bool = False
    is_study: bool = False
    is_link: bool = False
    source_run_id: str | None = None
    user_name: str | None = None


@dataclass(frozen=True)
class MetricPoint:
    """One value of a metric; NaN and infinity are allowed.

    Args:
        key: Name of the metric.
        value: The value.
        step: Its step.
        timestamp: Milliseconds since 1970.
        model: Address of the checkpoint that was measured; the value is then also one of the checkpoint's model.
    """

    key: str
    value: float
    step: int
    timestamp: int
    model: str | None = None


@dataclass(frozen=True)
class Parameter:
    """One entry of the flattened configuration."""

    key: str
    value: str


@dataclass(frozen=True)
class Tag:
    """One tag; a later value replaces an earlier one."""

    key: str
    value: str


@dataclass(frozen=True)
class Artifact:
    """A file, kept in the spool's `files` folder under its path in MLflow."""

    path: str
    digest: str


@dataclass(frozen=True)
class ModelMade:
    """A checkpoint that a run made: in MLflow, a logged model of some type that points at the checkpoint's address."""

    name: str
    uri: str
    type: str = "backbone"


@dataclass(frozen=True)
class ModelUsed:
    """A checkpoint that a run uses: its address, and the identity of the training whose folder holds it, if any."""

    uri: str
    identity: str | None


@dataclass(frozen=True)
class DatasetUsed:
    """A data set that a run used: its name, the hash of its content, its address, and its purpose."""

    name: str
    digest: str
    uri: str
    purpose: str


@dataclass(frozen=True)
class RunFinished:
    """A run ends: FINISHED, FAILED or KILLED."""

    status: str
    timestamp: int


@dataclass(frozen=True)
class RunDropped:
    """Another command has taken the run over from this spool.

    Nothing more of the spool is sent, and the run is not ended.
    """


BatchedRecord = MetricPoint | Parameter | Tag
Record = RunOpened | RunFinished | RunDropped | Artifact | ModelMade | ModelUsed | DatasetUsed | BatchedRecord

_CLASSES: dict[str, type[Record]] = {kind.__name__: kind for kind in get_args(Record)}


def encode_record(record: Record) -> bytes:
    """Return a record as one line of JSON in ASCII, with its line end."""
    return json.dumps({"kind": type(record).__name__, **asdict(record)}).encode("ascii") + b"\n"


def decode_record(line: bytes) -> Record:
    """Read one line back.

    Raises:
        ValueError: The line is not a record.
    """
    try:
        fields = json.loads(line)
        return _CLASSES[fields.pop("kind")](**fields)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"not a record: {line[:200]!r}") from error


def milliseconds_now() -> int:
    """Return the present in MLflow's unit, milliseconds since 1970."""
    return time.time_ns() // 1_000_000


@dataclass
class KnownRecords:
    """An index of a spool's records, so that a restarted stage records nothing twice.

    Args:
        opening: How the run was first opened; None in an empty spool.
        points: (key, step) of every metric value.
        parameters: The first value of every parameter.
        tags: The last value of every tag.
        digests: The last digest of every artifact path.
        models: Every model and every data set.
        status: How the run ended; None while it is open.
        last_timestamp: The latest timestamp, in milliseconds since 1970.
        is_dropped: Whether another command has taken the run over, so that nothing more is sent.
    """

    opening: RunOpened | None = None
    points: set[tuple[str, int]] = field(default_factory=set)
    parameters: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)
    models: set[ModelMade | ModelUsed | DatasetUsed] = field(default_factory=set)
    status: str | None = None
    last_timestamp: int = 0
    is_dropped: bool = False

    @property
    def is_running(self) -> bool:
        """Whether the run was opened, and has since neither ended nor been dropped."""
        return self.opening is not None and self.status is None and not self.is_dropped

    def has(self, record: Record) -> bool:
        """Return whether the record says nothing new.

        A metric's step and a parameter are known from their first value on, even if the value differs. A tag or an
        artifact is known only while its last value is the same.
        """
        match record:
            case MetricPoint():
                return (record.key, record.step) in self.points
            case Parameter():
                return record.key in self.parameters
            case Tag():
                return self.tags.get(record.key) == record.value
            case Artifact():
                return self.digests.get(record.path) == record.digest
        return record in self.models

    def add(self, record: Record) -> None:
        """Add one record, in the order of the spool."""
        if isinstance(record, MetricPoint | RunOpened | RunFinished):
            self.last_timestamp = max(self.last_timestamp, record.timestamp)
        match record:
            case MetricPoint():
                self.points.add((record.key, record.step))
            case Parameter():
                self.parameters.setdefault(record.key, record.value)
            case Tag():
                self.tags[record.key] = record.value
            case Artifact():
                self.digests[record.path] = record.digest
            case ModelMade() | ModelUsed() | DatasetUsed():
                self.models.add(record)
            case RunOpened():
                self.opening, self.status = self.opening or record, None
            case RunDropped():
                self.is_dropped = True
            case RunFinished():
                self.status = record.status


@dataclass(frozen=True)
class Progress:
    """How far a spool is sent.

    Args:
        run_id: The MLflow run; None before it was created.
        offset: Bytes of `records.jsonl` that the server holds.
        is_adopted: Whether another spool wrote to the run, so that the server may hold steps that this spool lacks.
        is_finished: Whether the run is finished on the server.
        is_link_elsewhere: Whether the spool's study already has the run that the spool links, so that nothing is sent.
        spool: The spool's number.
        started: When the run began, in milliseconds since 1970.
        is_unlinked: Whether the server got records that name a model, while the model's training was still unsent.
    """

    run_id: str | None = None
    offset: int = 0
    is_adopted: bool = False
    is_finished: bool = False
    is_link_elsewhere: bool = False
    spool: str = ""
    started: int = 0
    is_unlinked: bool = False


class Spool:
    """One run's spool.

    Args:
        folder: Its folder, which is made if it is missing, except for a leftover.
        is_leftover: Whether it is read on behalf of another process, which may have ended.
    """

    def __init__(self, folder: Path, *, is_leftover: bool = False) -> None:
        self.folder = folder
        self.is_leftover = is_leftover
        self._files = folder / "files"
        self._records = folder / "records.jsonl"
        if not is_leftover:
            self._make()
        self._known = KnownRecords()
        self._seen = Progress()
        self._num_known_bytes = 0
        self._lock = threading.Lock()

    def _make(self) -> None:
        self._files.mkdir(parents=True, exist_ok=True)
        self._records.touch()

    def append(self, records: Sequence[Record]) -> None:
        """Write the records that say something new; they survive the death of the process."""
        with self._writing() as stream:
            unknown = [record for record in records if not self._known.has(record)]
            lines = b"".join(map(encode_record, unknown))
            stream.write(lines)
            stream.flush()  # raises if the disk is full, before the index takes in unwritten records
            self._num_known_bytes += len(lines)
            for record in unknown:
                self._known.add(record)

    def add_artifact(self, path: str, content: bytes) -> None:
        """Write a file into the spool and record it.

        Args:
            path: Its path among the run's artifacts: relative, with forward slashes.
            content: Its content.

        Raises:
            InputError: The path would lead out of the spool.
        """
        # A sender may be reading this path. It sees the old file or the new one, whole.
        Storage.from_uri(self._files).write_bytes(path, content)
        self.append([Artifact(path, hashlib.sha256(content).hexdigest())])

    def file_of(self, artifact: Artifact) -> Path:
        """Return the path of an artifact's content in the spool."""
        return self._files / artifact.path

    def known(self) -> KnownRecords:
        """Return an index of the spool, including other processes' records; only read it.

        For a spool that was removed, return the index of the last look: a process that has sent all records may remove
        the spool at any time.
        """
        with self._lock:
            # Without the writers' lock: taking it would make its file again in a spool that is being deleted.
            with suppress(FileNotFoundError), self._records.open("rb") as stream:
                self._take_in(stream)
            return self._known

    def read_batch(self, offset: int) -> Batch | None:
        """Return the records from an offset on that fit one request, or None if there are none."""
        with self._records.open("rb") as stream:
            stream.seek(offset)
            # A line without its end is still being written.
            return first_batch(((self._decode(line), len(line)) for line in stream if line.endswith(b"\n")), offset)

    def progress(self) -> Progress:
        """Return how far the spool is sent; for a removed spool, how far it was at the last look."""
        try:
            progress = Progress(**json.loads((self.folder / "progress.json").read_text()))
        except FileNotFoundError:
            return Progress() if self.folder.exists() else self._seen
        except (TypeError, ValueError):
            return Progress()
        # After a power cut the records may be shorter than the progress says.
        self._seen = progress if progress.offset <= self._size() else Progress()
        return self._seen

    def save_progress(self, progress: Progress) -> None:
        """Write how far the spool is sent, whole or not at all."""
        Storage.from_uri(self.folder).write_json("progress.json", asdict(progress))
        self._seen = progress

    def has_unsent(self) -> bool:
        """Return whether the server lacks some of the records, or their link to a model."""
        progress, size = self.progress(), self._size()
        return progress.offset < size or (progress.is_unlinked and size > 0)  # 0 if another process removed the spool

    def is_settled(self) -> bool:
        """Return whether the run is finished and the server holds all of it."""
        return self.progress().is_finished and not self.has_unsent()

    @property
    def rejected(self) -> Path:
        """File with the records that the server refused; it stays when the spool is removed."""
        return self.folder.parent / "rejected" / f"{self.folder.name}.jsonl"

    def reject(self, record: Record, reason: str) -> None:
        """Set aside a record that the server will never take, so that later records arrive."""
        self.rejected.parent.mkdir(exist_ok=True)
        if isinstance(record, Artifact):  # the spool and its files will be removed
            kept = self.rejected.with_suffix("") / record.path
            kept.parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileNotFoundError):
                shutil.copyfile(self.file_of(record), kept)
        with self.rejected.open("a") as stream:
            stream.write(json.dumps({"record": json.loads(encode_record(record)), "reason": reason}) + "\n")
        _logger.warning("MLflow refused %s (%s); the record is kept in %s", record, reason, stream.name)

    def sending(self) -> AbstractContextManager[bool]:
        """Take the right to send this spool; yield False if another process has it."""
        return exclusive_lock(self.folder / "sending.lock", wait=False)

    def hold(self) -> IO[bytes]:
        """Mark the run as alive until the stream is closed or the process ends, however it ends."""
        while True:
            self._make()
            try:
                return _locked(self.folder / "alive.lock", fcntl.LOCK_SH)
            except FileNotFoundError:
                continue  # another process has just removed the folder

    def is_held(self) -> bool:
        """Return whether a process holds the run."""
        if not (self.folder / "alive.lock").exists():  # asking for the lock would make its file
            return False
        with self.closed() as is_closed:
            return is_closed is False

    def close_if_abandoned(self) -> bool:
        """End the run as KILLED at its last timestamp, if it is open and no process holds it.

        Returns:
            Whether no process holds the run.
        """
        with self.closed() as is_closed:
            if is_closed and (known := self.known()).is_running:
                self.append([RunFinished("KILLED", known.last_timestamp)])
            return is_closed is not False

    @contextmanager
    def closed(self) -> Iterator[bool | None]:
        """Keep others from continuing the run; yield False if a process holds it, None if the spool is gone."""
        with ExitStack() as stack:
            is_closed = None
            with suppress(FileNotFoundError):  # another process has just removed it
                is_closed = stack.enter_context(exclusive_lock(self.folder / "alive.lock", wait=False))
            yield is_closed

    def remove_if_settled(self) -> None:
        """Remove the spool if it is settled and no process holds it.

        A spool that cannot be removed stays, with a warning. The next command tries again.
        """
        try:
            with self.closed() as is_closed:
                if is_closed and self.is_settled():
                    self.remove()
        except OSError as error:
            _logger.warning("%s is sent, but cannot be removed (%s)", self.folder, error)
        delete_removed(self.folder.parent, self.folder.name)

    def remove(self) -> None:
        """Remove the spool, unless a process is sending it. Call this only while the spool is `closed`.

        `delete_removed` deletes the files, after the lock is released: NFS keeps files that are open.
        """
        with self.sending() as is_ours:
            if is_ours:
                # In one step, since another process may begin the same run now: it finds the whole spool or nothing.
                removed = self.folder.parent / _REMOVED / f"{self.folder.name}-{uuid.uuid4().hex}"
                removed.parent.mkdir(exist_ok=True)
                self.folder.rename(removed)

    def _size(self) -> int:
        try:
            return self._records.stat().st_size
        except FileNotFoundError:
            return 0  # another process has removed the spool

    @contextmanager
    def _writing(self) -> Iterator[IO[bytes]]:
        """Yield the records file, locked and without a half-written last line; the index is up to date."""
        with self._lock, exclusive_lock(self.folder / "append.lock"), self._records.open("ab+") as stream:
            if self._take_in(stream):
                stream.truncate(self._num_known_bytes)
            yield stream

    def _take_in(self, stream: IO[bytes]) -> bool:
        """Bring the index up to date; return whether a half-written line follows."""
        if self._size() < self._num_known_bytes:  # removed by another process, and begun again
            self._known, self._num_known_bytes = KnownRecords(), 0
        stream.seek(self._num_known_bytes)
        unknown = stream.read()
        whole = unknown[: unknown.rfind(b"\n") + 1]
        for line in whole.splitlines(keepends=True):
            if (record := self._decode(line)) is not None:
                self._known.add(record)
        self._num_known_bytes += len(whole)
        return len(whole) < len(unknown)

    def _decode(self, line: bytes) -> Record | None:
        try:
            return decode_record(line)
        except ValueError as error:
            # A power cut may leave such a line. One lost record must not hold up the others.
            _logger.warning("%s: skipped a damaged line (%s)", self._records, error)
            return None


def delete_removed(root: Path, name: str = "") -> None:
    """Delete the files of removed spools.

    A file that a process still has open stays on NFS. The next command deletes it.

    Args:
        root: Folder of the spools.
        name: Beginning of the names to delete; empty for all.
    """
    for folder in (root / _REMOVED).glob(f"{name}*"):
        shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True)
class Batch:
    """One request: one record of any kind, or consecutive metrics, parameters and tags.

    Args:
        records: In the order of the spool; empty if all lines were damaged.
        end: Offset of the next batch, in bytes from the start of the spool.
    """

    records: tuple[Record, ...]
    end: int


def first_batch(lines: Iterable[tuple[Record | None, int]], start: int) -> Batch | None:
    """Return the records that fit one request, from the first on.

    Args:
        lines: Per line, its record (None for a damaged line) and its length in bytes.
        start: Offset of the first line, in bytes.

    Returns:
        The batch, or None if there are no lines.
    """
    records: list[Record] = []
    end = start
    num_parameters = num_tags = 0
    for record, num_bytes in lines:
        num_parameters += isinstance(record, Parameter)
        num_tags += isinstance(record, Tag)
        fits = (
            len(records) < MAX_RECORDS
            and end + num_bytes - start <= MAX_BYTES
            and num_parameters <= MAX_PARAMETERS
            and num_tags <= MAX_TAGS
        )
        if records and not (fits and _joins_batches(record) and _joins_batches(records[-1])):
            break
        end += num_bytes
        if record is not None:
            records.append(record)
    return Batch(tuple(records), end) if end > start else None


def _joins_batches(record: Record | None) -> bool:
    return record is None or isinstance(record, BatchedRecord)


@contextmanager
def exclusive_lock(path: Path, *, wait: bool = True) -> Iterator[bool]:
    """Hold an exclusive lock on a file, between threads and processes of one host.

    The system frees it when its holder dies, however it dies.

    Args:
        path: The lock file, which is made if it is missing.
        wait: False gives up at once if another thread or process holds the lock.

    Yields:
        Whether the lock is held.
    """
    try:
        stream = _locked(path, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        yield False
        return
    with stream:
        yield True


def _locked(path: Path, operation: int) -> IO[bytes]:
    """Open the lock file and take the lock, until the stream is closed or the process ends.

    On a file system without locks, use a file on this host instead. That suffices, since these locks only keep
    processes of one host apart.
    """
    while True:
        stream = path.open("ab")
        try:
            fcntl.flock(stream, operation)
        except OSError as error:
            stream.close()
            if error.errno not in _NO_LOCKS:
                raise
            folder = Path(tempfile.gettempdir()) / f"objectaware-locks-{os.getuid()}"
            folder.mkdir(exist_ok=True)
            path = folder / hashlib.sha256(str(path.resolve()).encode()).hexdigest()
            continue
        # If the file was removed while this process waited, its lock keeps no other process out.
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(stream.fileno()), path.stat()):
                return stream
        stream.close()
