"""Progress on the terminal: one line that moves, or a line now and then where output goes to a file."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import Any, TextIO

_SECONDS_BETWEEN_LINES = 20.0


class Progress:
    """Says what is going on.

    Args:
        stream: Where to; a terminal gets one line that is written over.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._started = 0.0
        self._shown = 0.0
        self._open_width = 0

    def line(self, text: str) -> None:
        """Writes a line that stays."""
        self._clear()
        print(text, file=self._stream, flush=True)

    def start(self, title: str) -> None:
        """Says that a stage starts."""
        self._started = time.monotonic()
        self._shown = self._started
        self.line(f"{title} …")

    def update(self, text: str) -> None:
        """Shows where the stage stands; on a terminal at once, in a file every 20 seconds."""
        if self._stream.isatty():
            self._clear()
            self._stream.write(text)
            self._stream.flush()
            self._open_width = len(text)
        elif time.monotonic() - self._shown >= _SECONDS_BETWEEN_LINES:
            self._shown = time.monotonic()
            self.line(f"  {text}")

    def finish(self, title: str) -> None:
        """Says that a stage is done and how long it took."""
        self.line(f"{title}: done in {format_seconds(time.monotonic() - self._started)}")

    def _clear(self) -> None:
        if self._open_width:
            self._stream.write("\r" + " " * self._open_width + "\r")
            self._open_width = 0


def worker_notice(record: Mapping[str, Any]) -> str | None:
    """What there is to say at once of a record of training's workers (`train_on_ray`), or None."""
    match record["kind"]:
        case "stopping":
            return "saving where training stands; once more to end without that"
        case "stuck":
            waited = format_seconds(record["seconds"])
            return f"worker {record['rank']} made no step for {waited} and is ended; it was at\n{record['place']}"
    return None


def format_seconds(seconds: float) -> str:
    """A duration as people say it: `42 s`, `3 min 05 s`, `2 h 10 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
