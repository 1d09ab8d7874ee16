"""Records that a command could not send, left in the storage of its results for the next command to send.

The folder of a spool may vanish with the job or the machine that recorded; the storage stays.

Each spool becomes one file. A command that takes it first creates a claim beside it, so that no two commands send the
same records at once. Claims are numbered: one whose command died is not deleted but followed by the next number, which
again only one command can create.
"""

from __future__ import annotations

import io
import json
import logging
import re
import shutil
import tarfile
import time
import uuid
from collections.abc import Iterable
from pathlib import Path

from objectaware.data.storage import Storage
from objectaware.tracking.spool import Spool, delete_removed

_SUFFIX = ".tar"
_CLAIM = re.compile(r"\.claim-(\d{4,})")
# Taking a spool is a matter of seconds. Of a command that has not done it by then nothing more is expected.
_CLAIM_SECONDS = 600.0

_logger = logging.getLogger(__name__)


def hand_over(spools: Iterable[Spool], folder: Storage) -> None:
    """Move spools into the storage, except those that are sent already or whose run is alive.

    If the storage refuses one, it and all later ones stay where they are, with a warning.

    Args:
        spools: Spools of this host and user.
        folder: Where to.
    """
    for spool in spools:
        if spool.is_settled() or not spool.close_if_abandoned():
            continue
        with spool.closed() as is_closed:
            if not is_closed:
                continue
            try:
                folder.write_bytes(f"{spool.folder.name}{_SUFFIX}", _packed(spool.folder))
            except OSError as error:
                _logger.warning("%s could not be left in %s (%s); it stays here", spool.folder, folder.uri, error)
                return
            # Where a sender is still at it, it stays here as well: records that arrive twice change nothing.
            spool.remove()
        delete_removed(spool.folder.parent, spool.folder.name)


def take_over(folder: Storage, root: Path) -> None:
    """Take the spools that ended commands left, each by one command alone.

    Args:
        folder: Where they were left.
        root: Local folder of this host's and user's spools.
    """
    names = folder.list_names()
    for name in names:
        if not name.endswith(_SUFFIX):
            continue
        try:
            if _claim(folder, name, names):
                _take(folder, name, root)
        except PermissionError as error:
            _logger.info("%s is for other users to send (%s)", name, error)
        except OSError as error:
            _logger.warning("%s could not be taken from %s (%s)", name, folder.uri, error)


def _claim(folder: Storage, name: str, names: Iterable[str]) -> bool:
    """Claim a file for this command; return False where another command has a claim that is not too old."""
    newest = max(_claims(name, names), default=0)
    if newest and time.time() - _claimed(folder, name, newest) < _CLAIM_SECONDS:
        return False
    return folder.create_exclusive(_claim_name(name, newest + 1), json.dumps({"claimed": time.time()}).encode())


def _claimed(folder: Storage, name: str, number: int) -> float:
    try:
        return float(folder.read_json(_claim_name(name, number))["claimed"])
    except FileNotFoundError:
        return time.time()  # the file was taken in this moment


def _claims(name: str, names: Iterable[str]) -> list[int]:
    found = (_CLAIM.fullmatch(each.removeprefix(name)) for each in names if each.startswith(name))
    return [int(match[1]) for match in found if match]


def _claim_name(name: str, number: int) -> str:
    return f"{name}.claim-{number:04d}"


def _take(folder: Storage, name: str, root: Path) -> None:
    try:
        packed = folder.read_bytes(name)
    except FileNotFoundError:
        packed = None  # another command took it between the listing and the claim
    target = root / name.removesuffix(_SUFFIX)
    if packed is not None and not target.exists():
        _unpack(packed, target)
    folder.delete(name)  # before its claims: a file without a claim would be taken again
    for number in _claims(name, folder.list_names(name)):
        folder.delete(_claim_name(name, number))


def _packed(folder: Path) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for path in ("records.jsonl", "progress.json", "files"):
            if (folder / path).exists():
                archive.add(folder / path, path)
    return content.getvalue()


def _unpack(packed: bytes, target: Path) -> None:
    """Unpack a spool, which is there whole or not at all."""
    unpacked = target.with_name(f"taking-{uuid.uuid4().hex}")
    unpacked.mkdir(parents=True)
    try:
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            archive.extractall(unpacked, filter="data")
        unpacked.rename(target)
    finally:
        shutil.rmtree(unpacked, ignore_errors=True)
