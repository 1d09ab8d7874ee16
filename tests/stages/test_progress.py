import io
import pickle
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from objectaware.stages.progress import Progress, TrainingRecorder, format_seconds


@pytest.mark.parametrize(("seconds", "text"), [(0.4, "0 s"), (59, "59 s"), (185, "3 min 05 s"), (7860, "2 h 11 min")])
def test_durations_read_as_people_say_them(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


def test_a_file_gets_whole_lines() -> None:
    stream = io.StringIO()
    progress = Progress(stream)
    progress.start("stage")
    progress.update("half")  # too soon after the start for a file
    progress.finish("stage")
    assert stream.getvalue().splitlines()[0] == "stage …"
    assert "half" not in stream.getvalue()
    assert "done in" in stream.getvalue()


def test_a_terminal_gets_one_line_written_over() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    progress = Progress(stream)
    progress.update("a long line")
    progress.update("short")
    progress.line("stays")
    assert stream.getvalue() == "a long line\r" + " " * 11 + "\rshort\r" + " " * 5 + "\rstays\n"


def test_silence_of_ten_seconds_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    stream = io.StringIO()
    progress = Progress(stream)
    progress.start("stage")
    for seconds, num_lines in ((9.9, 1), (0.2, 2), (9.9, 2), (0.2, 3)):
        clock[0] += seconds
        progress.remind()
        assert len(stream.getvalue().splitlines()) == num_lines
    progress.update("half")  # too soon after the last line
    assert "half" not in stream.getvalue()
    clock[0] += 10
    progress.remind()
    assert stream.getvalue().splitlines()[-1] == "  half"
    clock[0] += 10
    progress.remind()
    assert stream.getvalue().splitlines()[-1] == "  … still at work"


def test_workers_that_are_stuck_or_stop_are_told_of_and_others_are_not() -> None:
    lines: list[str] = []
    recorder = TrainingRecorder(cast(Any, SimpleNamespace(progress=SimpleNamespace(line=lines.append))), lambda *_: "")
    recorder({"kind": "stuck", "rank": 1, "seconds": 3600.0, "place": "in read"})
    recorder({"kind": "stopping"})
    recorder({"kind": "stopped"})
    assert lines[0] == "worker 1 made no step for 1 h 00 min and is stopped; it was at\nin read"
    assert "saving" in lines[1]
    assert len(lines) == 2


def test_the_device_reaches_the_run() -> None:
    logged: list[object] = []
    recorder = TrainingRecorder(
        cast(Any, SimpleNamespace(tracker=SimpleNamespace(set_tags=logged.append))), lambda *_: ""
    )
    recorder({"kind": "device", "name": "NVIDIA H100"})
    assert logged == [{"device": "NVIDIA H100"}]


def test_metrics_by_step_reach_the_run_and_are_not_those_of_an_epoch() -> None:
    logged: list[object] = []
    tracker = SimpleNamespace(log_step_metrics=lambda metrics, step: logged.append((metrics, step)))
    recorder = TrainingRecorder(cast(Any, SimpleNamespace(tracker=tracker)), lambda *_: "")
    recorder({"kind": "steps", "step": 300, "loss": 2})
    assert logged == [({"loss": 2.0}, 300)]
    assert recorder.last_metrics == {}


def test_it_is_sent_to_another_process_without_its_stream(tmp_path: Path) -> None:
    with (tmp_path / "terminal").open("w") as stream:
        progress = pickle.loads(pickle.dumps(Progress(stream)))
    progress.line("written by the other process")
    assert (tmp_path / "terminal").read_text() == ""
