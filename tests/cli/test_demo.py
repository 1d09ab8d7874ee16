"""The whole pipeline through the command line, on a tiny configuration."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tiny_demo import run_demo


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_demo_runs_and_its_second_run_computes_nothing(finished_demo: Path) -> None:
    first = json.loads((finished_demo / "out.json").read_text())
    assert first["localization"].keys() == {
        "contracam_crf",
        "contracam",
        "without_negative_signal_removal",
        "center_box",
        "full_image",
    }
    background = first["background"]
    assert list(background) == ["baseline", "background_mixup"]
    assert {"original", "mixed_same", "mixed_rand", "only_fg", "bg_gap"} <= background["baseline"].keys()
    assert (finished_demo / "runs" / "demo-single-object.md").exists()
    output = run_demo(finished_demo, os.environ)
    assert output.count("finished before, reused") == 8
    second = json.loads((finished_demo / "out.json").read_text())
    assert (second["localization"], second["background"]) == (first["localization"], first["background"])
