"""What a spool already holds, so that a restarted stage records nothing twice."""

from __future__ import annotations

from dataclasses import dataclass, field

from objectaware.tracking.records import (
    Artifact,
    DatasetUsed,
    MetricPoint,
    ModelMade,
    Parameter,
    Record,
    RunDropped,
    RunFinished,
    RunOpened,
    Tag,
)


@dataclass
class KnownRecords:
    """An index of records.

    Args:
        opening: How the run was first opened; None in an empty spool.
        points: (key, step) of every metric value.
        parameters: The first value of every parameter.
        tags: The last value of every tag.
        digests: The last digest of every artifact path.
        models: Every model, and every data set.
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
        """Whether the run was opened, and has neither ended since nor been dropped."""
        return self.opening is not None and self.status is None and not self.is_dropped

    def has(self, record: Record) -> bool:
        """Whether the record says nothing new.

        A metric's step and a parameter are known from their first value on, even if the value differs; a tag
        or an artifact is known only while its last value is the same.
        """
        match record:
            case MetricPoint(key=key, step=step):
                return (key, step) in self.points
            case Parameter(key=key):
                return key in self.parameters
            case Tag(key=key, value=value):
                return self.tags.get(key) == value
            case Artifact(path=path, digest=digest):
                return self.digests.get(path) == digest
            case ModelMade() | DatasetUsed():
                return record in self.models
            case _:
                return False

    def add(self, record: Record) -> None:
        """Takes in one record, in the order of the spool."""
        match record:
            case MetricPoint(key=key, step=step, timestamp=timestamp):
                self.points.add((key, step))
                self.last_timestamp = max(self.last_timestamp, timestamp)
            case Parameter(key=key, value=value):
                self.parameters.setdefault(key, value)
            case Tag(key=key, value=value):
                self.tags[key] = value
            case Artifact(path=path, digest=digest):
                self.digests[path] = digest
            case ModelMade() | DatasetUsed():
                self.models.add(record)
            case RunOpened(timestamp=timestamp):
                self.opening = self.opening or record
                self.status = None
                self.last_timestamp = max(self.last_timestamp, timestamp)
            case RunDropped():
                self.is_dropped = True
            case RunFinished(status=status, timestamp=timestamp):
                self.status = status
                self.last_timestamp = max(self.last_timestamp, timestamp)
