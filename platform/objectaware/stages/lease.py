"""A lease on a stage's folder: one command at a time computes it."""

from __future__ import annotations

import json
import os
import socket
import time
import uuid
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from objectaware.background import Background
from objectaware.data.storage import Storage
from objectaware.errors import ExplainedError

_NAME = "lease.json"
_RENEWAL_SECONDS = 10.0
_EXPIRY_SECONDS = 90.0
_SECONDS_BETWEEN_LOOKS = 1.0
# Arrow asks an object store how long an object is and reads so many bytes, then: one that was replaced by a longer one
# in between would be cut off, and one that was replaced by a shorter one would end in rubbish.
_NUM_BYTES = 512


class LeaseHeldError(ExplainedError):
    """Another command is computing this stage right now."""


class Lease(Background):
    """Holds a folder against other commands, as a context manager.

    The holder renews a time stamp; a lease whose stamp is old, or whose holder was a process of this host that
    lives no more, counts for nothing and is taken over, by one of those that would have it.

    Args:
        folder: The stage's folder.
        on_wait: Wait for whoever holds it, and call this once with a line that says who does; by default a folder
            that is held is refused.

    Raises:
        LeaseHeldError: On entering, where another command holds it and there is no waiting.
    """

    def __init__(self, folder: Storage, *, on_wait: Callable[[str], None] | None = None) -> None:
        super().__init__("lease")
        self._folder = folder
        self._on_wait = on_wait
        self._token = uuid.uuid4().hex

    def __enter__(self) -> Self:
        told = False
        while (holder := self._take()) is not None:
            who = f"another command (process {holder['pid']} on {holder['host']}) is computing {self._folder.uri}"
            if self._on_wait is None:
                raise LeaseHeldError(f"{who}. Wait for it, or stop it.")
            if not told:
                self._on_wait(f"waiting: {who}")
                told = True
            time.sleep(_SECONDS_BETWEEN_LOOKS)
        return super().__enter__()

    def _take(self) -> dict[str, Any] | None:
        """Takes the lease, or tells who has it."""
        while not self._folder.create_exclusive(_NAME, self._content()):
            holder = self._read(_NAME)
            if holder is None:
                continue  # given back in this moment
            if holder["token"] == self._token:
                return None
            if is_live(holder) or (holder := self._take_over(holder)) is not None:
                return holder
        return None

    def _take_over(self, dead: dict[str, Any]) -> dict[str, Any] | None:
        """Puts this holder in the place of a dead one, unless another that waits is at it; then tells which.

        A claim named by the dead holder lets one through. Whoever comes by it later finds that the lease has changed.
        """
        claim = f"lease-after-{dead['token']}.json"
        if not self._folder.create_exclusive(claim, self._content()):
            claimant = self._read(claim)
            if claimant is None or is_live(claimant):
                return claimant
            self._folder.delete(claim)
            return None
        current = self._read(_NAME)
        if current is not None and current["token"] == dead["token"]:
            self._folder.write_bytes(_NAME, self._content())
        self._folder.delete(claim)
        return None

    def _read(self, name: str) -> dict[str, Any] | None:
        """A holder; None where it has just gone."""
        try:
            return dict(self._folder.read_json(name))
        except FileNotFoundError:
            return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        holder = self._read(_NAME)
        if holder is not None and holder["token"] == self._token:
            self._folder.delete(_NAME)

    def _run(self) -> None:
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
        return json.dumps(holder).encode().ljust(_NUM_BYTES)


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
