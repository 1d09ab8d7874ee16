"""Locks between processes of one host, on files; the system frees them when their holder dies, however it dies."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

# NFSv3 without lockd, Lustre mounted without -o flock.
_NO_LOCKS = {errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP}


@contextmanager
def exclusive_lock(path: Path, *, wait: bool = True) -> Iterator[bool]:
    """Holds an exclusive lock on a file, between threads and processes of one host.

    Args:
        path: The lock file; created if it is not there.
        wait: False gives up at once if somebody else holds the lock.

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


def shared_lock(path: Path) -> IO[bytes]:
    """Takes a shared lock on a file and keeps it until the returned stream is closed or the process ends."""
    return _locked(path, fcntl.LOCK_SH)


def _locked(path: Path, operation: int) -> IO[bytes]:
    """Opens the lock file with the lock held.

    On a file system that has no locks, a file of this host stands in for it: only processes of one host are kept apart
    here, so that it does as well.
    """
    while True:
        stream = path.open("ab")
        try:
            fcntl.flock(stream, operation)
        except OSError as error:
            stream.close()
            if error.errno not in _NO_LOCKS:
                raise
            path = _stand_in(path)
            continue
        # The lock of a file that was removed while this process waited for it keeps nobody out.
        if _is_still_there(stream, path):
            return stream
        stream.close()


def _stand_in(path: Path) -> Path:
    folder = Path(tempfile.gettempdir()) / f"objectaware-locks-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    return folder / hashlib.sha256(str(path.resolve()).encode()).hexdigest()


def _is_still_there(stream: IO[bytes], path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(stream.fileno()), path.stat())
    except FileNotFoundError:
        return False
