"""An end to waiting: a worker that has not moved for too long tells where it stands and ends itself."""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from collections.abc import Callable

from objectaware.background import Background
from objectaware.errors import ExplainedError

EXIT_STATUS = 75
"""Of a process that ended itself; sysexits.h's "temporary failure"."""

_NUM_FRAMES = 3


class NoProgressError(ExplainedError):
    """Training made no step for as long as it may take, and starting it again did not help."""


class NoProgressWatch(Background):
    """Ends this process where the thread that enters it has not `moved` for too long, as a context manager.

    A thread that hangs in a read of a file system that is away, or in a library, cannot be given an exception. What
    watches over the process (Ray Train) sees that it died, and begins again from the newest checkpoint.

    Args:
        seconds: The limit.
        tell: Called at the limit, before the end, with the innermost calls of the thread that does not move.
    """

    def __init__(self, seconds: float, tell: Callable[[str], None]) -> None:
        super().__init__("no progress")
        self._seconds = seconds
        self._tell = tell
        self._watched = threading.get_ident()
        self._moved_at = time.monotonic()

    def moved(self) -> None:
        """Says that the thread is alive: the limit counts from here."""
        self._moved_at = time.monotonic()

    def _run(self) -> None:
        while (left := self._moved_at + self._seconds - time.monotonic()) > 0:
            if self._stop.wait(left):
                return
        try:
            self._tell(self._place())
        finally:
            os._exit(EXIT_STATUS)

    def _place(self) -> str:
        frame = sys._current_frames()[self._watched]
        return "".join(traceback.format_stack(frame)[-_NUM_FRAMES:])
