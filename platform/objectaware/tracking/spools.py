"""Find the spools of this host and user, and hand unsent ones over to the next command.

Each host and user has their own spools, beside the storage of the runs' results. The folder of a spool may vanish with
the job or the machine that recorded, but the storage stays. So a command leaves its unsent spools there at its end, one
file per spool.

The next command creates a claim beside a file before it takes it, so that no two commands send the same records at
once. Claims are numbered. If a command died, its claim is not deleted but followed by the next number, which again only
one command can create.
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
import os
import socket
import tarfile
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

from objectaware.data.storage import Storage
from objectaware.errors import InputError
from objectaware.process import submitter, system_user
from objectaware.tracking.spool import Spool, delete_removed

FOLDER = "mlflow_spool"
_STORAGE_ID = "storage_id"
_SUFFIX = ".tar"
_CLAIM = ".claim-"
# Taking a spool takes seconds. A command that has not done it by then has probably died.
_CLAIM_SECONDS = 600.0

_logger = logging.getLogger(__name__)


def this_host() -> str:
    """Return the name of this host, as runs and spools carry it."""
    return socket.gethostname()


def this_user() -> str:
    """Return the number of this user, as runs and spools carry it: names differ between containers.

    In a Ray job that somebody else submitted, the submitter's name follows it: jobs of all users run as one of them.
    """
    name = submitter()
    return str(os.getuid()) if name in (None, system_user()) else f"{os.getuid()}-{quote(str(name), safe='')}"


def storage_id(storage: Storage) -> str:
    """Return the id of a storage, which differs even from that of a storage at the same path of another host.

    The first command that records makes the id. It stays with the storage when the storage is moved.

    Raises:
        InputError: The storage has no id yet, and this user may not write into it.
    """
    folder = storage.child(FOLDER)
    try:
        if not folder.exists(_STORAGE_ID):
            folder.create_exclusive(_STORAGE_ID, uuid.uuid4().hex.encode())
        return folder.read_bytes(_STORAGE_ID).decode()
    except PermissionError as error:
        problem = f"does not let user {this_user()} write {error.filename or storage.uri}"
        remedy = (
            "Set another --storage or OBJECTAWARE_STORAGE, or have its owner run `chmod -R g+rwX` and set the group."
        )
        raise InputError("storage", storage.uri, problem, remedy) from error


class Spools:
    """The spools of this host and user for one experiment on one server.

    Spools of other hosts and users are never touched: locks work within a host, and access rights may forbid it.

    Args:
        root: Absolute folder of the spools.
        left: Folder in the storage, in which commands leave the spools that they could not send.
    """

    def __init__(self, root: Path, left: Storage) -> None:
        self.root = root
        self._left = left

    @classmethod
    def of(cls, storage: Storage, experiment: str) -> Spools:
        """Find the folder: in the storage if it is local and this user may write there, else in the user's own files.

        Args:
            storage: Storage of the results.
            experiment: Name for the server and the experiment, since each server lacks different records.

        Raises:
            InputError: This user may not write to either.
        """
        owner = f"{this_host()}-{this_user()}"
        state = _state_folder()
        digest = hashlib.sha256(storage.uri.encode()).hexdigest()[:16]
        own = state / "objectaware" / FOLDER / digest / owner
        for folder in (storage.local_path(f"{FOLDER}/{owner}"), own):
            if folder is not None and _may_be_written(folder):
                return cls(folder / experiment, storage.child(f"{FOLDER}/unsent/{experiment}"))
        problem = "cannot be written to, and records wait there for MLflow"
        raise InputError("XDG_STATE_HOME", state, problem, "Set it to a folder that you may write to.")

    def leftovers(self) -> list[Spool]:
        """Return all spools that are not removed yet, in the order in which they were opened.

        So parents come before children, and sources before links.
        """
        return self.named("*")

    def is_recorded_elsewhere(self, name: str, spool: Spool) -> bool:
        """Return whether a process records in another spool of that name, even in one that it has just made."""
        return any(other.is_held() for other in self._others(name, spool))

    def is_unsent_elsewhere(self, name: str, spool: Spool) -> bool:
        """Return whether another spool of that name has records that the server lacks."""
        return any(other.has_unsent() for other in self._others(name, spool))

    def _others(self, name: str, spool: Spool) -> Iterator[Spool]:
        folders = [folder for folder in self.root.glob(f"{name}~*") if folder != spool.folder]
        return (Spool(folder, is_leftover=True) for folder in folders)

    def is_alive(self, name: str, number: str) -> bool:
        """Return whether a process records in the spool of that name and number."""
        spools = ((spool, spool.known().opening) for spool in self.named(name))
        return any(opening is not None and opening.spool == number and spool.is_held() for spool, opening in spools)

    def begin(self, name: str, *, fresh: bool) -> Spool:
        """Return the spool to record in: the newest of that name if its run may be continued, else a new one.

        A spool that a live process holds is never returned, even if that process has lost its lease.

        Args:
            name: Name by which the run is found; letters, digits and `._+-`.
            fresh: Begin a new spool in any case.
        """
        found = [] if fresh else self.named(name)
        if found and not found[-1].is_held() and not (known := found[-1].known()).is_dropped:
            assert known.opening is not None
            is_own = known.opening.user == this_user()  # another user may have left it in the storage
            if is_own and (known.status != "FINISHED" or known.opening.is_study):
                return Spool(found[-1].folder)
        # Never under a name used before: a sender may still be sending the earlier spool.
        return Spool(self.root / f"{name}~{uuid.uuid4().hex}")

    def named(self, name: str) -> list[Spool]:
        """Return the spools of a name, in the order in which they were opened."""
        spools = [Spool(records.parent, is_leftover=True) for records in self.root.glob(f"{name}~*/records.jsonl")]
        begun = [(opening.timestamp, spool) for spool in spools if (opening := spool.known().opening) is not None]
        return [spool for _, spool in sorted(begun, key=lambda pair: pair[0])]

    def hand_over(self) -> None:
        """Leave all spools in the storage, unless they are settled or their run is alive.

        If the storage refuses a spool, it and all later ones stay on this host, with a warning.
        """
        for spool in self.leftovers():
            if spool.is_settled() or not spool.close_if_abandoned():
                continue
            with spool.closed() as is_closed:
                if not is_closed:
                    continue
                try:
                    self._left.write_bytes(f"{spool.folder.name}{_SUFFIX}", _packed(spool.folder))
                except OSError as error:
                    _logger.warning("%s cannot be left in %s (%s); it stays here", spool.folder, self._left.uri, error)
                    return
                # If a sender is sending it, it also stays here: records that arrive twice change nothing.
                spool.remove()
            delete_removed(self.root, spool.folder.name)

    def take_over(self) -> None:
        """Take the spools that ended commands left; only one command takes each spool."""
        names = self._left.list_names()
        for name in (each for each in names if each.endswith(_SUFFIX)):
            try:
                if _claim(self._left, name, names):
                    _take(self._left, name, self.root)
            except PermissionError as error:
                _logger.info("%s is left to other users, since this user may not take it (%s)", name, error)
            except OSError as error:
                _logger.warning("%s could not be taken from %s (%s)", name, self._left.uri, error)


def _state_folder() -> Path:
    given = os.environ.get("XDG_STATE_HOME")
    if given:
        return Path(given).absolute()
    home = os.environ.get("HOME")  # a container's user may have none
    return Path(home, ".local", "state") if home else Path(tempfile.gettempdir(), f"objectaware-{this_user()}")


def _may_be_written(folder: Path) -> bool:
    existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
    return existing.is_dir() and os.access(existing, os.W_OK | os.X_OK)


def _claim(folder: Storage, name: str, names: Sequence[str]) -> bool:
    """Claim a file for this command; return False if another command has a recent claim.

    Args:
        folder: Folder in the storage.
        name: The file's name.
        names: All names in the folder, sorted, so that the newest claim comes last.
    """
    claims = [each for each in names if each.startswith(f"{name}{_CLAIM}")]
    if claims:
        try:
            claimed = float(folder.read_json(claims[-1])["claimed"])
        except FileNotFoundError:
            return False  # another command has just taken the file and deleted its claims
        if time.time() - claimed < _CLAIM_SECONDS:
            return False
    number = int(claims[-1].rpartition("-")[2]) + 1 if claims else 1
    return folder.create_exclusive(f"{name}{_CLAIM}{number:04d}", json.dumps({"claimed": time.time()}).encode())


def _take(folder: Storage, name: str, root: Path) -> None:
    target = root / name.removesuffix(_SUFFIX)
    if not target.exists():
        with suppress(FileNotFoundError):  # another command took it after the listing
            _unpack(folder.read_bytes(name), target)
    folder.delete(name)  # before its claims: another command would take a file without a claim
    for claim in folder.list_names(f"{name}{_CLAIM}"):
        folder.delete(claim)


def _packed(folder: Path) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for path in ("records.jsonl", "progress.json", "files"):
            if (folder / path).exists():
                archive.add(folder / path, path)
    return content.getvalue()


def _unpack(packed: bytes, target: Path) -> None:
    """Unpack a spool whole or not at all."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix="taking-") as folder:
        unpacked = Path(folder, target.name)
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            archive.extractall(unpacked, filter="data")
        unpacked.rename(target)
