"""A node that goes during a localization takes no row with it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

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
