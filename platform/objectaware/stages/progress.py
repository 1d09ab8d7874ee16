"""Progress on the terminal: one line that is rewritten, or occasional lines if the output goes to a file."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TextIO

from objectaware.process import Background

if TYPE_CHECKING:
    from objectaware.stages.runner import StageRun

_SECONDS_BETWEEN_LINES = 10.0
_SECONDS_BETWEEN_LOOKS = 1.0
_AT_WORK = "… still at work"


class Progress:
    """The display of progress.

    Args:
        stream: Stream to write to. On a terminal, one line is overwritten.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._started = 0.0
        self._shown = 0.0
        self._open_width = 0
        self._latest = _AT_WORK  # the newest progress that no line has shown
        self._lock = threading.RLock()

    def __reduce__(self) -> tuple[type[Progress], tuple[()]]:
        """Pickle without the stream, which belongs to this process. Another one writes to its own stderr."""
        return Progress, ()

    def line(self, text: str) -> None:
        """Write a line that stays."""
        with self._lock:
            self._clear()
            print(text, file=self._stream, flush=True)
            self._shown, self._latest = time.monotonic(), _AT_WORK

    def start(self, title: str) -> None:
        """Report that a stage starts."""
        self._started = time.monotonic()
        self.line(f"{title} …")

    def update(self, text: str) -> None:
        """Show the progress of a stage: at once on a terminal, every 10 seconds in a file."""
        with self._lock:
            if self._stream.isatty():
                self._clear()
                self._stream.write(text)
                self._stream.flush()
                self._open_width = len(text)
                self._shown = time.monotonic()
                return
            self._latest = text
            self.remind()

    def remind(self) -> None:
        """Show the newest progress, or else that work goes on, if nothing has been shown for 10 seconds.

        A terminal that shows progress is left as it is.
        """
        with self._lock:
            if self._is_silent() and not self._open_width:
                self.line(f"  {self._latest}")

    def _is_silent(self) -> bool:
        return time.monotonic() - self._shown >= _SECONDS_BETWEEN_LINES

    def finish(self, title: str) -> None:
        """Report that a stage is done, and how long it took."""
        self.line(f"{title}: done in {format_seconds(time.monotonic() - self._started)}")

    def _clear(self) -> None:
        if self._open_width:
            self._stream.write("\r" + " " * self._open_width + "\r")
            self._open_width = 0


class Reminder(Background):
    """Report while a `with` block runs that work goes on, whenever nothing else has been shown for 10 seconds.

    Args:
        progress: The display of progress.
    """

    def __init__(self, progress: Progress) -> None:
        super().__init__("reminder")
        self._progress = progress

    def _run(self) -> None:
        while not self._stop.wait(_SECONDS_BETWEEN_LOOKS):
            self._progress.remind()


class TrainingRecorder:
    """The sink of the records of a training's workers (`train_on_ray`): it shows progress and logs metrics.

    Args:
        run: The stage.
        describe: Function from a record of progress and the last metrics to the text to show.

    Attributes:
        last_metrics: Metrics of the last epoch or, of a fine-tuning, the last log interval.
    """

    def __init__(self, run: StageRun, describe: Callable[[Mapping[str, Any], Mapping[str, float]], str]) -> None:
        self._run = run
        self._describe = describe
        self.last_metrics: dict[str, float] = {}

    def __call__(self, record: Mapping[str, Any]) -> None:
        """Take a record."""
        match record["kind"]:
            case "epoch":
                places = ("kind", "epoch", "iteration")
                self.last_metrics = {name: float(value) for name, value in record.items() if name not in places}
                self._run.tracker.log_metrics(self.last_metrics, step=int(record.get("iteration", record["epoch"])))
                if self._run.on_epoch is not None:
                    self._run.on_epoch(int(record["epoch"]), self.last_metrics)
            case "steps":
                values = {name: float(value) for name, value in record.items() if name not in ("kind", "step")}
                self._run.tracker.log_step_metrics(values, int(record["step"]))
            case "device":
                self._run.tracker.set_tags({"device": record["name"]})
            case "progress":
                self._run.progress.update(self._describe(record, self.last_metrics))
            case "waiting":
                self._run.progress.line(record["text"])
            case "stopping":
                self._run.progress.line("saving the state of the training; interrupt again to stop without saving")
            case "stuck":
                waited = format_seconds(record["seconds"])
                stuck = f"worker {record['rank']} made no step for {waited} and is stopped; it was at"
                self._run.progress.line(f"{stuck}\n{record['place']}")


def format_seconds(seconds: float) -> str:
    """Return a duration in a readable form: `42 s`, `3 min 05 s`, `2 h 10 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
