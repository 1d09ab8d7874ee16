"""A lease on a stage's folder: only one command at a time computes it, and a command that lost it stops writing.

The lease is a series of numbered files in the folder `lease`, of which the highest number counts. A command changes the
lease by creating the file with the next number, exclusively. Any store with exclusive creation thus offers
compare-and-swap. A file is never rewritten. The last file of a released lease stays, so that the numbers do not restart
while another command still remembers an earlier one.

The clocks of two machines are never compared. A holder that has renewed its lease owns it for `_VALID_SECONDS` from the
moment when it began the renewal. Another command takes the lease over once it has seen the same number for
`_EXPIRY_SECONDS` by its own clock. A write that begins in time may therefore last for the difference.
"""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import socket
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from objectaware.data.storage import Storage
from objectaware.errors import ExplainedError, InputError
from objectaware.process import Background

LEASE_FOLDER = "lease"
SHARED_REMEDY = "Give a folder that all nodes share, such as s3://bucket/runs or an NFS mount."
LEASE_FILE = re.compile(r"(\d{8,})\.json")
_RENEWAL_SECONDS = 15.0
_VALID_SECONDS = 60.0
_EXPIRY_SECONDS = 90.0
_SECONDS_BETWEEN_LOOKS = 1.0

Holder = dict[str, Any]
"""The holder of a lease: `token`, `host`, `machine`, `pid`, `process_started`, `renewed` and `released`."""

_UNKNOWN: Holder = {"token": "", "host": "an unknown host", "machine": "", "pid": "unknown", "released": False}

_logger = logging.getLogger(__name__)


class LeaseHeldError(ExplainedError):
    """Another command is computing this stage right now."""


class LeaseLostError(ExplainedError):
    """Another command has taken over this stage."""


class Generations:
    """The numbered files of a lease. The highest number counts, and 0 means that nobody holds the lease.

    Args:
        folder: The folder that the lease is on.
    """

    def __init__(self, folder: Storage) -> None:
        self._folder = folder
        self._files = folder.child(LEASE_FOLDER)

    def newest(self) -> int:
        """Return the number that counts."""
        return max(self._numbers(), default=0)

    def read(self, number: int) -> Holder | None:
        """Return the holder with this number, or None if the file no longer exists."""
        try:
            return dict(self._files.read_json(_name(number)))
        except FileNotFoundError:
            return None
        except InputError:  # without hard links, a file is visible before its content
            return _UNKNOWN

    def current(self) -> tuple[int, Holder | None]:
        """Return the number that counts and its holder.

        The holder is None if nobody holds the lease. A holder that renews deletes its previous file, so the file that
        was the newest may be gone when it is read. The method then looks again.
        """
        number = self.newest()
        while (holder := self.read(number)) is None and number != (number := self.newest()):
            pass
        return number, holder

    def advance(self, number: int, holder: Holder) -> bool:
        """Write a holder under the number after `number`, which counted at the last look.

        After an `OSError`, call again with the same token: the method then finds the file that the earlier call may
        have created.

        Returns:
            Whether the holder has the following number and that number counts.
        """
        following = number + 1
        while not self._files.create_exclusive(_name(following), json.dumps(holder).encode()):
            found = self.read(following)
            if found is not None and found["token"] != holder["token"]:
                return False
            if found is not None:
                break
            # The file has gone since, or a store refused several simultaneous writers at once.
        numbers = self._numbers()
        if [0, *numbers][-2:] != [number, following]:
            # The number was taken and then outdated in the meantime. This file does not count.
            self._files.delete(_name(following))
            return False
        with suppress(OSError):  # an old file does no harm, and the next call deletes it
            self._files.delete_files(_name(old) for old in numbers if old < following)
        return True

    def delete(self) -> None:
        """Delete all numbers, and local folders that are then empty."""
        self._folder.delete_files(f"{LEASE_FOLDER}/{_name(number)}" for number in self._numbers())

    def _numbers(self) -> list[int]:
        names = self._files.list_names()
        return sorted(int(found[1]) for name in names if (found := LEASE_FILE.fullmatch(name)))


def _name(number: int) -> str:
    return f"{number:08d}.json"


class Tenancy:
    """One command's part in a lease: it takes, renews and releases it, and knows until when it surely holds it.

    It is the right to write that guards a `Storage` in the holder's process. Processes to which it is sent receive a
    `Claim` in its place.

    Args:
        folder: The folder that the lease is on.
        now: A clock in seconds that keeps running while the machine sleeps.

    Attributes:
        token: Unique name of this tenancy.
        is_lost: Whether another command has taken the lease over.
    """

    def __init__(self, folder: Storage, now: Callable[[], float] | None = None) -> None:
        self.token = uuid.uuid4().hex
        self.is_lost = False
        self._folder = folder
        self._generations = Generations(folder)
        self._now = now or _seconds_since_boot
        self._lock = threading.Lock()
        self._number = 0
        # When the first attempt at the next number began; None if the outcome of every attempt is known.
        self._attempted: float | None = None
        self._valid_until = 0.0
        self._seen, self._seen_since = 0, 0.0

    def take(self) -> Holder | None:
        """Take the lease, or return its holder.

        Raises:
            OSError: The store did not answer. The lease may have been taken: try again.
        """
        while True:
            if self._attempted is None:
                number, holder = self._generations.current()
                if number and holder is None:
                    continue  # released at this moment
                if holder is not None and not self._is_free(number, holder):
                    return holder
                self._number = number
            if self._advance(released=False):
                return None

    def renew(self) -> None:
        """Renew the lease.

        Raises:
            LeaseLostError: Another command has taken it over.
            OSError: The store did not answer; try again.
        """
        with self._lock:
            if not self.is_lost and not self._advance(released=False):
                self.is_lost = True
            self._require_kept()

    def check(self) -> None:
        """Return if this command may write now. If it raises, the stage must end.

        Raises:
            LeaseLostError: Another command has taken the lease over.
            OSError: The lease has expired and cannot be renewed, because the store does not answer.
        """
        self._require_kept()
        while self._now() > self._valid_until:
            self.renew()

    __call__ = check

    def __reduce__(self) -> tuple[type[Claim], tuple[Storage, str]]:
        return Claim, (self._folder, self.token)

    def release(self, *, for_good: bool = False) -> None:
        """Release the lease, if this command still holds it.

        Args:
            for_good: Leave no files behind, since nobody needs the folder any more.
        """
        with self._lock:
            if self.is_lost or not (self._attempted is None or self._advance(released=False)):
                return
            if for_good:
                self._generations.delete()
            else:
                self._advance(released=True)

    def _require_kept(self) -> None:
        if self.is_lost:
            raise lost(self._folder.uri)

    def _advance(self, *, released: bool) -> bool:
        """Try to take the next number. An attempt with an unknown outcome counts from its first try."""
        if self._attempted is None:
            self._attempted = self._now()
        won = self._generations.advance(self._number, {**_self(), "token": self.token, "released": released})
        if won:
            self._number += 1
            # Other commands may have seen the number at any time since the attempt began.
            self._valid_until = self._attempted + _VALID_SECONDS
        self._attempted = None
        return won

    def _is_free(self, number: int, holder: Holder) -> bool:
        now = self._now()  # read after looking, so that the file was written before this time
        if number != self._seen:
            self._seen, self._seen_since = number, now
        if now - self._seen_since > _EXPIRY_SECONDS:
            return True
        return bool(holder["released"]) or _is_gone(holder)


class Lease(Background):
    """A context manager that keeps other commands out of a folder.

    A thread renews the lease. If the thread finds the lease lost and the `with` block runs in the main thread, it
    interrupts the block, which then ends with `LeaseLostError`. `check` raises the same error in any thread.

    Args:
        folder: The stage's folder.
        waits: Whether to wait for the holder. By default a folder that is held is refused.
        notify: Called with a line of text that says what the command waits for.
        for_good: Leave no files of the lease behind, because the `with` block deletes the folder. The block may still
            change the attribute of the same name.

    Raises:
        LeaseHeldError: On entering, if another command holds the lease and `waits` is false.
    """

    def __init__(
        self,
        folder: Storage,
        *,
        waits: bool = False,
        notify: Callable[[str], None] = lambda line: None,
        for_good: bool = False,
    ) -> None:
        super().__init__("lease")
        self._folder = folder
        self._waits = waits
        self._notify = notify
        self.for_good = for_good
        self._tenancy = Tenancy(folder)
        self._interrupts = False

    def __enter__(self) -> Self:
        self._interrupts = threading.current_thread() is threading.main_thread()
        is_announced = False
        first: Holder | None = None
        while (holder := self._look(is_first=first is None)) is not None:
            first = first or holder
            if not self._waits and (is_live(holder) or holder != first):
                raise LeaseHeldError(f"{self._who(holder)}. Wait for it, or stop it.")
            if not is_announced:
                taking_over = f"; this one takes over unless it shows life within {_EXPIRY_SECONDS:.0f} s"
                self._notify(f"waiting: {self._who(holder)}{'' if is_live(holder) else taking_over}")
                is_announced = True
            time.sleep(_SECONDS_BETWEEN_LOOKS)
        return super().__enter__()

    @property
    def claim(self) -> Tenancy:
        """Return the right to write, for the processes that work for this command."""
        return self._tenancy

    def _look(self, *, is_first: bool) -> Holder | None:
        """Take the lease or return its holder. After the first look, retry for a while if the store does not answer."""
        since = time.monotonic()
        while True:
            try:
                return self._tenancy.take()
            except OSError as error:
                if is_first or time.monotonic() - since > _EXPIRY_SECONDS:
                    raise
                _logger.warning("cannot check whether %s is free (%s)", self._folder.uri, error)
                time.sleep(_SECONDS_BETWEEN_LOOKS)

    def _who(self, holder: Holder) -> str:
        return f"another command (process {holder['pid']} on {holder['host']}) is computing {self._folder.uri}"

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            super().__exit__(kind, error, trace)
        except KeyboardInterrupt as interrupt:
            if not self._tenancy.is_lost:
                raise
            error = error or interrupt
        if self._tenancy.is_lost:
            if isinstance(error, KeyboardInterrupt):
                raise lost(self._folder.uri) from None
            return
        try:
            self._tenancy.release(for_good=self.for_good)
        except OSError as failure:  # the results are complete, so this is not an error
            _logger.warning("could not release the lease on %s, which will expire (%s)", self._folder.uri, failure)

    def _run(self) -> None:
        pause = _RENEWAL_SECONDS
        while not self._stop.wait(pause):
            try:
                self._tenancy.renew()
                pause = _RENEWAL_SECONDS
            except LeaseLostError:
                self._interrupt()
                return
            except OSError as error:
                _logger.warning("the lease on %s could not be renewed yet (%s)", self._folder.uri, error)
                pause = _SECONDS_BETWEEN_LOOKS

    def _interrupt(self) -> None:
        main = threading.main_thread().ident
        if self._interrupts and main is not None and callable(signal.getsignal(signal.SIGINT)):
            signal.pthread_kill(main, signal.SIGINT)


class Claim:
    """The right to write that a lease gives to the processes that the holder starts. It guards a `Storage`.

    Only the holder knows until when it surely has its lease. Any other process looks into the folder each time. On a
    machine that does not share the storage it never finds a lease there. A lease that was there and is gone has been
    deleted with the stage's files by a command that took it over.

    Args:
        folder: The folder that the lease is on.
        token: The holder's token.
    """

    def __init__(self, folder: Storage, token: str) -> None:
        self._folder = folder
        self._token = token
        self._generations = Generations(folder)
        self._seen = 0

    def __call__(self) -> None:
        """Return if the holder's processes may write now.

        Raises:
            InputError: This machine does not see the folder in which the holder has its lease.
            LeaseLostError: Another command has taken the lease over.
            OSError: The store does not answer.
        """
        number = self._generations.newest()
        if number and number == self._seen:
            return
        # Looks again: while the holder renews, a list may have neither its old nor its new file.
        number, holder = self._generations.current()
        if not number and not self._seen:
            problem = f"is not shared by the cluster: {socket.gethostname()} does not see the driver's files there"
            raise InputError("storage", self._folder.uri, problem, SHARED_REMEDY)
        if holder is None or holder["token"] != self._token or holder["released"]:
            raise lost(self._folder.uri)
        self._seen = number


def lost(uri: str) -> LeaseLostError:
    """Return the error for a command whose stage another command has taken over."""
    return LeaseLostError(
        f"another command has taken over {uri}, since this one had not renewed its lease for "
        f"{_EXPIRY_SECONDS:.0f} s. This one has stopped and wrote nothing more; the other one resumes from there."
    )


def current_holder(folder: Storage) -> Holder | None:
    """Return the holder of a folder as far as one look can show (see `is_live`), or None if nobody seems to hold it."""
    _, holder = Generations(folder).current()
    return holder if holder is not None and not holder["released"] and is_live(holder) else None


def is_live(holder: Holder) -> bool:
    """Return whether a lease's holder seems to work: its stamp is fresh and, on this machine, its process is alive.

    The stamp comes from the holder's clock, so an old stamp is not enough to take a lease over.
    """
    return "renewed" in holder and time.time() - float(holder["renewed"]) <= _EXPIRY_SECONDS and not _is_gone(holder)


def _is_gone(holder: Holder) -> bool:
    """Return whether the holder was a process of this machine that has ended."""
    if holder["machine"] != _machine():
        return False
    pid = int(holder["pid"])
    started = _process_start(pid)
    if started is not None:
        return started != holder["process_started"]
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:  # a process of another user, whose start time is hidden
        return False
    return True  # a zombie: it has ended, but its parent has not waited for it


def _self() -> Holder:
    return {
        "host": socket.gethostname(),
        "machine": _machine(),
        "pid": os.getpid(),
        "process_started": _process_start(os.getpid()),
        "renewed": time.time(),
    }


def _machine() -> str:
    """Return the kernel's boot id and the PID namespace, which are equal if two processes can see each other."""
    with open("/proc/sys/kernel/random/boot_id") as boot:  # noqa: PTH123 - a file of the kernel, not of the project
        return f"{boot.read().strip()} {os.readlink('/proc/self/ns/pid')}"  # noqa: PTH115 - not a path but a name


def _process_start(pid: int) -> str | None:
    """Return the start time of a process of this machine in the kernel's ticks, or None if it has ended.

    The start time distinguishes a process from a later one with the same number.
    """
    try:
        with open(f"/proc/{pid}/stat") as stat:  # noqa: PTH123 - a file of the kernel, not of the project
            fields = stat.read().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in "ZX" else fields[19]


def _seconds_since_boot() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)  # unlike `time.monotonic`, it runs while the machine sleeps
