"""Processes that outlive, or should not outlive, the one that started them."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from pathlib import Path


def printed_by(program: str) -> str:
    """Returns what a Python program prints in a process of its own, which ends well."""
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.strip()


def processes_using(folder: Path) -> dict[int, str]:
    """Command lines of processes that Ray runs in a folder (its RAY_TMPDIR), by number."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            environment, command = (entry / "environ").read_bytes(), (entry / "cmdline").read_bytes()
        except OSError:  # it has ended, or is not ours
            continue
        if f"RAY_TMPDIR={folder}\0".encode() in environment:
            found[int(entry.name)] = command.replace(b"\0", b" ").decode()
    return found


def wait_for_end(process_id: int, *, seconds: float) -> None:
    """Waits until any process has ended, at most so long."""
    try:
        handle = os.pidfd_open(process_id)
    except ProcessLookupError:
        return
    try:
        select.select([handle], [], [], seconds)
    finally:
        os.close(handle)
