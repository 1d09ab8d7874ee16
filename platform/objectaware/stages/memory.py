"""Peak memory of this process and its descendants, including Ray's processes."""

from __future__ import annotations

import os
from pathlib import Path

from objectaware.process import Background

_SECONDS_BETWEEN_SAMPLES = 2.0


class PeakMemory(Background):
    """A watch on the memory of a process tree while the context is open.

    Pages that several processes share (above all the object store) count once: each process is charged its
    proportional share (PSS), as reported by Linux.
    """

    def __init__(self) -> None:
        super().__init__("memory")
        self.peak_mib = 0.0

    def _run(self) -> None:
        while True:
            self.peak_mib = max(self.peak_mib, tree_memory_mib(os.getpid()))
            if self._stop.wait(_SECONDS_BETWEEN_SAMPLES):
                return


def tree_memory_mib(pid: int) -> float:
    """Return the proportional memory of a process and its descendants, in MiB."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            parent = _parent(entry)
            if parent is not None:
                children.setdefault(parent, []).append(int(entry.name))
    total, waiting = 0.0, [pid]
    while waiting:
        current = waiting.pop()
        total += _memory_kib(current)
        waiting += children.get(current, [])
    return total / 1024


def _parent(entry: Path) -> int | None:
    try:
        return int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:  # the process has ended meanwhile
        return None


def _memory_kib(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:  # the process has ended meanwhile
        return 0.0
    return next((float(line.split()[1]) for line in lines if line.startswith("Pss:")), 0.0)
