"""Locks between processes, on files; the system frees them when their holder dies, however it dies."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


@contextmanager
def exclusive_lock(path: Path, *, wait: bool = True) -> Iterator[bool]:
    """Holds an exclusive lock on a file, between threads and processes of one host.

    Args:
        path: The lock file; created if it is not there.
        wait: False gives up at once if somebody else holds the lock.

    Yields:
        Whether the lock is held.
    """
    with path.open("ab") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
        else:
            yield True


def shared_lock(path: Path) -> IO[bytes]:
    """Takes a shared lock on a file and keeps it until the returned stream is closed or the process ends."""
    stream = path.open("ab")
    fcntl.flock(stream, fcntl.LOCK_SH)
    return stream
