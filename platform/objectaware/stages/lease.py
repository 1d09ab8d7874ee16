"""A lease on a stage's folder: one command at a time computes it, and one that has lost it writes nothing more.

The lease is a row of numbered files in the folder `lease`, of which the one with the highest number counts. Whoever
wants to change it creates the next number, exclusively, which makes of any store with exclusive creation one that
swaps on comparison. A file is never written again. The last one of a lease that was given back stays, so that numbers
never begin again under somebody who looked before.

No clocks of two machines are compared. A holder that has renewed its lease counts it as its own for `_VALID_SECONDS`
from the moment in which it began to ask for that. Another command takes it over once it has seen one and the same
number for `_EXPIRY_SECONDS` by its own clock. A write that begins in time may take the difference.
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

from objectaware.background import Background
from objectaware.data.storage import Storage
from objectaware.errors import ExplainedError, InputError

LEASE_FOLDER = "lease"
LEASE_FILE = re.compile(r"(\d{8,})\.json")
_RENEWAL_SECONDS = 15.0
_VALID_SECONDS = 60.0
_EXPIRY_SECONDS = 90.0
_SECONDS_BETWEEN_LOOKS = 1.0

Holder = dict[str, Any]
"""Who holds a lease: `token`, `host`, `machine`, `pid`, `process_started`, `renewed` and `released`."""

_UNKNOWN: Holder = {"token": "", "host": "an unknown host", "machine": "", "pid": "unknown", "released": False}

_logger = logging.getLogger(__name__)


class LeaseHeldError(ExplainedError):
    """Another command is computing this stage right now."""


class LeaseLostError(ExplainedError):
    """Another command has taken the stage over."""


class Generations:
    """The numbered files of a lease. The highest number counts, and 0 is nobody's.

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
        """Read who holds a number; None where there is no such file any more."""
        try:
            return dict(self._files.read_json(_name(number)))
        except FileNotFoundError:
            return None
        except InputError:  # without hard links a file is there before its content is
            return _UNKNOWN

    def advance(self, number: int, holder: Holder) -> bool:
        """Put a holder after a number that counted when it was last looked at.

        Called again after an `OSError` with the same token, it finds what the call before may have done.

        Returns:
            Whether the holder has the following number, and that is the one that counts.
        """
        following = number + 1
        while not self._files.create_exclusive(_name(following), json.dumps(holder).encode()):
            found = self.read(following)
            if found is not None and found["token"] != holder["token"]:
                return False
            if found is not None:
                break
            # It has gone since; or a store refused all of several writers at once.
        numbers = self._numbers()
        if [0, *numbers][-2:] != [number, following]:
            # It was taken and left behind since. The file counts for nobody.
            self._files.delete(_name(following))
            return False
        with suppress(OSError):  # it is in nobody's way, and goes the next time
            self._files.delete_files(_name(old) for old in numbers if old < following)
        return True

    def delete(self) -> None:
        """Delete all numbers, and what is an empty local folder then."""
        self._folder.delete_files(f"{LEASE_FOLDER}/{_name(number)}" for number in self._numbers())

    def _numbers(self) -> list[int]:
        names = self._files.list_names()
        return sorted(int(found[1]) for name in names if (found := LEASE_FILE.fullmatch(name)))


def _name(number: int) -> str:
    return f"{number:08d}.json"


class Tenancy:
    """One command's part in a lease: takes it, renews it, knows for how long it is sure of it, and gives it back.

    Args:
        folder: The folder that the lease is on.
        now: A clock, in seconds, that goes on while the machine sleeps.

    Attributes:
        token: Tells this tenancy from all others.
        is_lost: Whether another command has taken the lease over.
    """

    def __init__(self, folder: Storage, now: Callable[[], float] | None = None) -> None:
        self.token = uuid.uuid4().hex
        self.is_lost = False
        self._uri = folder.uri
        self._generations = Generations(folder)
        self._now = now or _seconds_since_boot
        self._lock = threading.Lock()
        self._number = 0
        # When the first attempt at the next number was made, while it is not known how it ended.
        self._attempted: float | None = None
        self._valid_until = 0.0
        self._seen, self._seen_since = 0, 0.0

    def take(self) -> Holder | None:
        """Take the lease; or return who has it.

        Raises:
            OSError: The store did not answer. The lease may have been taken: try again.
        """
        while True:
            if self._attempted is None:
                number = self._generations.newest()
                holder = self._generations.read(number) if number else None
                if number and holder is None:
                    continue  # renewed or given back in this moment
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
        """Return if this command may write now; otherwise the stage has to end.

        Raises:
            LeaseLostError: Another command has taken the lease over.
            OSError: The lease has run out, and cannot be renewed since the store does not answer.
        """
        self._require_kept()
        while self._now() > self._valid_until:
            self.renew()

    def release(self, *, for_good: bool = False) -> None:
        """Give the lease back, if it is still this command's.

        Args:
            for_good: Leave nothing behind, since nobody wants the folder any more.
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
            raise lost(self._uri)

    def _advance(self, *, released: bool) -> bool:
        """Try for the next number; an attempt whose end is not known goes on as the same one."""
        if self._attempted is None:
            self._attempted = self._now()
        won = self._generations.advance(self._number, {**_self(), "token": self.token, "released": released})
        if won:
            self._number += 1
            # Others may have seen the number since the attempt began.
            self._valid_until = self._attempted + _VALID_SECONDS
        self._attempted = None
        return won

    def _is_free(self, number: int, holder: Holder) -> bool:
        now = self._now()  # after the looks: what was seen was written before
        if number != self._seen:
            self._seen, self._seen_since = number, now
        if now - self._seen_since > _EXPIRY_SECONDS:
            return True
        return bool(holder["released"]) or _is_gone(holder)


class Lease(Background):
    """Holds a folder against other commands, as a context manager.

    A thread renews it. Where that finds the lease lost, it interrupts the `with` block, if that runs in the main
    thread, which then ends with `LeaseLostError`; `check` raises the same in any thread.

    Args:
        folder: The stage's folder.
        waits: Wait for the holder; by default a folder that is held is refused.
        notify: Called with a line that says what is waited for.
        for_good: Leave nothing of the lease behind: the folder is deleted under it.

    Raises:
        LeaseHeldError: On entering, where another command holds it and there is no waiting.
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
        self._for_good = for_good
        self._tenancy = Tenancy(folder)
        self._interrupts = False

    def __enter__(self) -> Self:
        self._interrupts = threading.current_thread() is threading.main_thread()
        told = False
        first: Holder | None = None
        while (holder := self._look(is_first=first is None)) is not None:
            first = first or holder
            if not self._waits and (is_live(holder) or holder != first):
                raise LeaseHeldError(f"{self._who(holder)}. Wait for it, or stop it.")
            if not told:
                seen = "" if is_live(holder) else f"; if it shows no life within {_EXPIRY_SECONDS:.0f} s, this one does"
                self._notify(f"waiting: {self._who(holder)}{seen}")
                told = True
            time.sleep(_SECONDS_BETWEEN_LOOKS)
        return super().__enter__()

    @property
    def claim(self) -> Claim:
        """What the processes that work for this command write by."""
        return Claim(self._folder, self._tenancy)

    def _look(self, *, is_first: bool) -> Holder | None:
        """Take the lease or return who has it; a store that does not answer for a while is asked again."""
        since = time.monotonic()
        while True:
            try:
                return self._tenancy.take()
            except OSError as error:
                if is_first or time.monotonic() - since > _EXPIRY_SECONDS:
                    raise
                _logger.warning("it cannot be seen whether %s is free (%s)", self._folder.uri, error)
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
            self._tenancy.release(for_good=self._for_good)
        except OSError as failure:  # what was computed is there
            _logger.warning("the lease on %s runs out by itself (%s)", self._folder.uri, failure)

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
    """The right to write that a lease gives: a `Storage`'s guard, in the holder's process and in those that it starts.

    The holder knows how long it is sure of its lease. Any other process looks into the folder each time.

    Args:
        folder: The folder that the lease is on.
        tenancy: The holder, in its process.
        token: The holder's, in any other.
    """

    def __init__(self, folder: Storage, tenancy: Tenancy | None = None, token: str = "") -> None:
        self._folder = folder
        self._tenancy = tenancy
        self._token = tenancy.token if tenancy is not None else token
        self._generations = Generations(folder)
        self._seen = 0

    def __call__(self) -> None:
        """Return if the holder's processes may write now.

        Raises:
            LeaseLostError: Another command has taken the lease over.
            OSError: The store does not answer.
        """
        if self._tenancy is not None:
            self._tenancy.check()
            return
        number = self._generations.newest()
        if number == self._seen:
            return
        holder = self._generations.read(number)
        # A holder that renews deletes the file under the one who looks.
        while holder is None and number != (number := self._generations.newest()):
            holder = self._generations.read(number)
        if holder is None or holder["token"] != self._token or holder["released"]:
            raise lost(self._folder.uri)
        self._seen = number

    def __reduce__(self) -> tuple[type[Claim], tuple[Storage, None, str]]:
        return Claim, (self._folder, None, self._token)


def lost(uri: str) -> LeaseLostError:
    """Make the error of a command whose stage another one has taken over."""
    return LeaseLostError(
        f"another command has taken over {uri}, since this one had not renewed its lease for "
        f"{_EXPIRY_SECONDS:.0f} s. This one has stopped and wrote nothing more; the other one goes on from there."
    )


def current_holder(folder: Storage) -> Holder | None:
    """Return who holds a folder, as far as one look can say (see `is_live`); None where nobody seems to."""
    generations = Generations(folder)
    holder = generations.read(generations.newest())
    return holder if holder is not None and not holder["released"] and is_live(holder) else None


def is_live(holder: Holder) -> bool:
    """Whether the holder of a lease seems to work: its stamp is fresh and, on this machine, its process lives.

    The stamp is by the holder's clock. Nothing is taken over for an old one.
    """
    return "renewed" in holder and time.time() - float(holder["renewed"]) <= _EXPIRY_SECONDS and not _is_gone(holder)


def _is_gone(holder: Holder) -> bool:
    """Whether the holder was a process of this machine that lives no more."""
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
    except PermissionError:  # another user's, which is not shown to this one
        return False
    return True  # it has ended, and its parent has not asked how


def _self() -> Holder:
    return {
        "host": socket.gethostname(),
        "machine": _machine(),
        "pid": os.getpid(),
        "process_started": _process_start(os.getpid()),
        "renewed": time.time(),
    }


def _machine() -> str:
    """Return what two processes have in common that see each other: a kernel since its start, and a name space."""
    with open("/proc/sys/kernel/random/boot_id") as boot:  # noqa: PTH123 - a file of the kernel, not of the project
        return f"{boot.read().strip()} {os.readlink('/proc/self/ns/pid')}"  # noqa: PTH115 - not a path but a name


def _process_start(pid: int) -> str | None:
    """Return when a process of this machine started, in the kernel's ticks; None where it lives no more.

    Told apart by its start, a new process that was given the number of a dead one is not taken for it.
    """
    try:
        with open(f"/proc/{pid}/stat") as stat:  # noqa: PTH123 - a file of the kernel, not of the project
            fields = stat.read().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in "ZX" else fields[19]


def _seconds_since_boot() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)  # unlike `time.monotonic`, it goes on while the machine sleeps
