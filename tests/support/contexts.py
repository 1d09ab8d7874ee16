"""Contexts of stages for tests: on a folder, and of a later command."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

from objectaware.data.storage import Storage
from objectaware.stages.progress import Progress
from objectaware.stages.runner import Context, EpochWatch, Mode, Services
from objectaware.tracking import TrackingStore


def make_context(folder: Path, tracking: TrackingStore | None = None, watch: EpochWatch | None = None) -> Context:
    """Return the context of a command whose storage is a folder; by default its MLflow store lies there, too."""
    services = Services(Storage.from_uri(folder), tracking or TrackingStore.open(folder), Progress(io.StringIO()))
    return Context(services, watch=watch or EpochWatch())


def next_command(context: Context, **mode: bool) -> Context:
    """Return the context of another command on the same services; `mode` gives the fields of its `Mode`."""
    return Context(context.services, Mode(**mode))


def with_progress(context: Context, progress: Progress) -> Context:
    """Return the same context with its progress shown elsewhere."""
    return replace(context, services=replace(context.services, progress=progress))
