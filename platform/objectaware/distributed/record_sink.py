"""The actor that holds a training's records. Its process imports this module alone, and no PyTorch."""

from __future__ import annotations

from typing import Any

Record = dict[str, Any]
"""Plain values. `train_on_ray` lists the values of `kind`. `stopped` is between the workers and the pump alone."""


class RecordSink:
    """Hold the workers' records until the driver fetches them. Runs as an actor."""

    def __init__(self) -> None:
        self._records: list[Record] = []
        self._stops = False
        self._stuck: Record | None = None

    def push(self, record: Record) -> bool:
        """Add a record and return whether the driver wants the workers to end."""
        self._records.append(record)
        self._stuck = record if record["kind"] == "stuck" else None
        return self._stops

    def begin(self) -> bool:
        """Start a new attempt: forget the last attempt's `stuck` record. Return whether the driver wants an end."""
        self._stuck = None
        return self._stops

    def stuck(self) -> Record | None:
        """Return the last `stuck` record, or None if another record has come since."""
        return self._stuck

    def stop(self) -> None:
        """Make `push` and `begin` return that the workers should end."""
        self._stops = True

    def drain(self) -> list[Record]:
        """Return all records in order and forget them."""
        records, self._records = self._records, []
        return records
