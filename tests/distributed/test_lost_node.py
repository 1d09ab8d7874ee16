"""A node that goes during a localization takes no row with it; one that hangs keeps no stage from starting."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import silent_node
import three_nodes
from objectaware.data.folder import ImageFolder, Manifest
from objectaware.data.storage import Storage
from objectaware.stages import localize as stage
from stages_in_process import work_in_process


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.chaos(fault="a node of three lost while it localizes", holds="the same rows, to the byte")
def test_a_lost_node_loses_no_row(
    tiny_images: Path, tiny_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = tmp_path / "photos"
    images.mkdir()
    for file in tiny_images.iterdir():
        (images / file.name).write_bytes(file.read_bytes())
    (images / "broken.jpg").write_bytes(b"not a picture")

    command = [sys.executable, three_nodes.__file__, str(images), str(tiny_checkpoint), str(tmp_path / "cluster")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=800)
    assert done.returncode == 0, done.stderr[-5000:]
    # Among what Ray has to say of the node.
    (result,) = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]

    work_in_process(monkeypatch)
    config = three_nodes.config(str(images), str(tiny_checkpoint))
    manifest = Manifest.of(ImageFolder.scan(images))
    stage.localize_images(
        config, manifest=manifest, store=Storage.from_uri(tmp_path / "alone"), on_record=lambda _: None
    )
    alone = {path.name: path.read_bytes() for path in (tmp_path / "alone").glob("shard-*")}
    assert result["lost"], "the node that went had nothing to do"
    assert 0 < result["num_shards"] < len(alone) == 23
    assert {path.name: path.read_bytes() for path in (tmp_path / "cluster").glob("shard-*")} == alone


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_node_that_does_not_answer_keeps_no_stage_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")  # several machines do not share SQLite
    # On a slow machine Ray would take the node off its list before the second start.
    monkeypatch.setenv("RAY_health_check_failure_threshold", "1000")
    command = [sys.executable, silent_node.__file__, str(tmp_path / "runs")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=800)
    assert done.returncode == 0, done.stderr[-5000:]
    (result,) = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    whole, with_silent_node = result["seconds"]
    assert with_silent_node < whole + 10
    nodes, shared, _ = result["doctor"]
    assert nodes == "limited no answer within 5 s from 127.0.0.3"
    assert shared.startswith("ok")
