"""The whole pipeline through the command line, on a tiny configuration."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tiny_demo import RECIPE


def _demo(folder: Path) -> tuple[str, dict[str, object]]:
    command = [sys.executable, "-m", "objectaware.cli", "demo", "--recipe", "tiny.yaml", "--json", "out.json"]
    done = subprocess.run(command, cwd=folder, env=dict(os.environ), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr, json.loads((folder / "out.json").read_text())


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_demo_runs_and_its_second_run_computes_nothing(tmp_path: Path) -> None:
    (tmp_path / "tiny.yaml").write_text(RECIPE)
    _, first = _demo(tmp_path)
    assert first["localization"].keys() == {  # type: ignore[attr-defined]
        "contracam_crf",
        "contracam",
        "without_negative_signal_removal",
        "center_box",
        "full_image",
    }
    background = first["background"]
    assert isinstance(background, dict)
    assert list(background) == ["baseline", "background_mixup"]
    assert {"original", "mixed_same", "mixed_rand", "only_fg", "bg_gap"} <= background["baseline"].keys()
    assert (tmp_path / "runs" / "demo-single-object.md").exists()
    output, second = _demo(tmp_path)
    assert output.count("finished before, reused") == 8
    assert (second["localization"], second["background"]) == (first["localization"], first["background"])
