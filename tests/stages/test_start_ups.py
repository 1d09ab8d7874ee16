"""What stages take to start: each is really run, twice, and nothing of the first is reused by the second."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from contexts import make_context, with_progress
from objectaware.stages import start_ups
from objectaware.stages.progress import Progress
from stages_in_process import work_in_process


@pytest.mark.timeout(120)
def test_every_stage_is_run_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work_in_process(monkeypatch)
    progress = io.StringIO()
    context = with_progress(make_context(tmp_path / "runs"), Progress(progress))
    taken = start_ups.measure_start_ups(context, tmp_path / "scenes", use_gpu=False)
    assert set(taken) == {"pretrain", "localize", "linear"}
    assert all(seconds > 0 for seconds in taken.values())
    assert progress.getvalue().count(": done in ") == 6
    assert "reused" not in progress.getvalue()
