"""A lease on a stage's folder: one command at a time computes it."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
import uuid
from types import TracebackType
from typing import Any

from objectaware.data.storage import Storage

_NAME = "lease.json"
_RENEWAL_SECONDS = 10.0
_EXPIRY_SECONDS = 90.0


class LeaseHeldError(RuntimeError):
    """Another command is computing this stage right now."""


class Lease:
    """Holds a folder against other commands, as a context manager.

    The holder renews a time stamp; a lease whose stamp is old, or whose holder was a process of this host that
    lives no more, counts for nothing and is taken over.

    Args:
        folder: The stage's folder.

    Raises:
        LeaseHeldError: On entering, where another command holds it.
    """

    def __init__(self, folder: Storage) -> None:
        self._folder = folder
        self._token = uuid.uuid4().hex
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="lease", daemon=True)

    def __enter__(self) -> Lease:
        if not self._folder.create_exclusive(_NAME, self._content()):
            holder = self._folder.read_json(_NAME)
            if is_live(holder):
                raise LeaseHeldError(
                    f"another command (process {holder['pid']} on {holder['host']}) is computing {self._folder.uri}. "
                    "Wait for it, or stop it."
                )
            self._folder.write_bytes(_NAME, self._content())
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        if self._folder.exists(_NAME) and self._folder.read_json(_NAME)["token"] == self._token:
            self._folder.delete(_NAME)

    def _renew(self) -> None:
        while not self._stop.wait(_RENEWAL_SECONDS):
            self._folder.write_bytes(_NAME, self._content())

    def _content(self) -> bytes:
        holder = {
            "token": self._token,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "process_started": _process_start(os.getpid()),
            "renewed": time.time(),
        }
        return json.dumps(holder).encode()


def is_live(holder: dict[str, Any]) -> bool:
    """Whether the holder of a lease still works: its stamp is fresh and, on this host, its process lives."""
    if time.time() - float(holder["renewed"]) > _EXPIRY_SECONDS:
        return False
    if holder["host"] != socket.gethostname():
        return True
    return _process_start(int(holder["pid"])) == holder["process_started"]


def _process_start(pid: int) -> str | None:
    """When a process of this host started, in the kernel's ticks; None where it lives no more.

    Told apart by its start, a new process that was given the number of a dead one is not taken for it.
    """
    try:
        with open(f"/proc/{pid}/stat") as stat:  # noqa: PTH123 - a file of the kernel, not of the project
            return stat.read().rpartition(")")[2].split()[19]
    except FileNotFoundError:
        return None
