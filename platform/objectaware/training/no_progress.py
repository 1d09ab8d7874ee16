"""An end to waiting: a worker that has not moved for too long tells where it stands and ends itself."""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import objectaware
from objectaware.errors import ExplainedError
from objectaware.process import Background

EXIT_STATUS = 75
"""Of a process that ended itself; sysexits.h's "temporary failure"."""

_NUM_FRAMES = 3
_SECONDS_FOR_OTHERS = 30.0
_LIBRARIES_THAT_WAIT = ("/torch/", "/ray/")
_OURS = f"{Path(objectaware.__file__).parent}{os.sep}"


class NoProgressError(ExplainedError):
    """Training made no step for as long as it may take, and starting it again did not help."""


class NoProgressWatch(Background):
    """Ends this process where the thread that enters it has not `moved` for too long, as a context manager.

    A thread that hangs in a read of a file system that is away, or in a library, cannot be given an exception. What
    watches over the process (Ray Train) sees that it died, and begins again from the newest checkpoint.

    All workers of a training stand still when one hangs. Those that wait in PyTorch or Ray for the others are given a
    little longer, so that the one that hangs is the one that tells.

    Args:
        seconds: The limit.
        tell: Called at the limit, before the end, with the innermost calls of the thread that does not move, and of
            those that work for it.
        seconds_for_others: How much longer a process has that waits for others.

    Attributes:
        seconds: The limit.
    """

    def __init__(
        self, seconds: float, tell: Callable[[str], None], *, seconds_for_others: float = _SECONDS_FOR_OTHERS
    ) -> None:
        super().__init__("no progress")
        self.seconds = seconds
        self._seconds_for_others = seconds_for_others
        self._tell = tell
        self._watched = threading.get_ident()
        self._moved_at = time.monotonic()

    def moved(self) -> None:
        """Says that the thread is alive: the limit counts from here."""
        self._moved_at = time.monotonic()

    def _run(self) -> None:
        while (left := self._moved_at + self._limit() - time.monotonic()) > 0:
            if self._stop.wait(left):
                return
        try:
            self._tell(self._place())
        finally:
            os._exit(EXIT_STATUS)

    def _limit(self) -> float:
        """Of now: longer once the first limit is over, where the thread waits for others."""
        if time.monotonic() - self._moved_at < self.seconds:
            return self.seconds
        *_, innermost = traceback.extract_stack(sys._current_frames()[self._watched])
        waits = any(name in innermost.filename for name in _LIBRARIES_THAT_WAIT)
        return self.seconds + (self._seconds_for_others if waits else 0)

    def _place(self) -> str:
        frames = sys._current_frames()
        places = [_innermost(traceback.extract_stack(frames.pop(self._watched)))]
        frames.pop(threading.get_ident())
        for number, frame in frames.items():
            stack = traceback.extract_stack(frame)
            # Idle threads of a pool are in none of our functions.
            if any(call.filename.startswith(_OURS) for call in stack):
                name = next((thread.name for thread in threading.enumerate() if thread.ident == number), "another")
                places.append(f"and in thread {name}\n{_innermost(stack)}")
        return "".join(places)


def _innermost(stack: traceback.StackSummary) -> str:
    return "".join(traceback.StackSummary.from_list(stack[-_NUM_FRAMES:]).format())
