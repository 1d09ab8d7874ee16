"""Consecutive records cut into requests that MLflow takes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from objectaware.tracking.records import MetricPoint, Parameter, Record, Tag

MAX_RECORDS = 1000
MAX_PARAMETERS = 100
MAX_TAGS = 100
MAX_BYTES = 500_000  # MLflow refuses a request above 1,000,000 characters; its JSON is at most twice as long as ours


@dataclass(frozen=True)
class Batch:
    """One request: one record of any kind, or consecutive metrics, parameters and tags.

    Args:
        records: In the order of the spool; empty if there was nothing but damaged lines.
        end: Where the next batch begins, in bytes from the start of the spool.
    """

    records: tuple[Record, ...]
    end: int


def first_batch(lines: Iterable[tuple[Record | None, int]], start: int) -> Batch | None:
    """Takes records while they fit one request.

    Args:
        lines: Every line's record, or None for a damaged line, and its length in bytes.
        start: Where the first line begins.

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
        if records and not (fits and _is_joinable(records[-1]) and _is_joinable(record)):
            break
        end += num_bytes
        if record is not None:
            records.append(record)
    return Batch(tuple(records), end) if end > start else None


def _is_joinable(record: Record | None) -> bool:
    return record is None or isinstance(record, MetricPoint | Parameter | Tag)
