"""Hold the facts about a run: one immutable record per fact, and one line of JSON per record in the spool.

A record carries its final timestamp from the moment it is made. MLflow ignores a metric that it already holds with the
same step, value and timestamp. So a record may be sent again after a crash; with a new timestamp it would be doubled.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, field
from typing import get_args

SYSTEM_PREFIX = "system/"
"""Prefix of metrics that MLflow's UI shows on a separate page."""


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
        user: Number of the user there.
        parent_spool: The parent's spool; None for a parent.
        parent_identity: The parent's identity, if another spool may have created the parent.
        adopt: Whether to continue a run of this identity, storage and user that another spool began.
        leased: Whether this process alone may compute this identity in this storage, so that no other writer is alive.
        is_study: Whether the run has child runs, and is continued even after it finished.
        is_link: Whether this run only points at another study's run of the same identity.
        source_run_id: The run that a link points at; None lets the sender look it up by identity.
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


@dataclass(frozen=True)
class MetricPoint:
    """One value of a metric; NaN and infinity are allowed."""

    key: str
    value: float
    step: int
    timestamp: int


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
    """A checkpoint that a run made: in MLflow, a logged model that points at the checkpoint's address."""

    name: str
    uri: str


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
Record = RunOpened | RunFinished | RunDropped | Artifact | ModelMade | DatasetUsed | BatchedRecord

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
    models: set[ModelMade | DatasetUsed] = field(default_factory=set)
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
            case ModelMade() | DatasetUsed():
                self.models.add(record)
            case RunOpened():
                self.opening, self.status = self.opening or record, None
            case RunDropped():
                self.is_dropped = True
            case RunFinished():
                self.status = record.status
