"""A disk that is full while a command writes."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from inputs import write_pictures
from objectaware.cli import run
from objectaware.data.storage import Storage
from ray_training import pretrain
from tiny_training import tiny_training


@pytest.fixture
def small_disk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A file system of as many kB as its parameter says."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={request.param}k", "tmpfs", str(folder)]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"no right to mount a small file system: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize("small_disk", [400], indirect=True)
@pytest.mark.chaos(fault="a disk that fills up", holds="one line that says so; with room again the same command ends")
def test_a_pack_waits_for_room(small_disk: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    photos, pack = tmp_path / "photos", small_disk / "pack"
    write_pictures(photos, 40, 96)
    filler = small_disk / "filler"
    filler.write_bytes(os.urandom(300_000))
    command = ["data", "pack", str(photos), "--out", str(pack), "--image-size", "32"]
    assert run(command) == 1
    *_, line = capsys.readouterr().err.strip().splitlines()
    assert "No space left on device" in line
    assert "Make room" in line
    assert not list(pack.glob("shard-*")), "no half shard"
    filler.unlink()
    assert run(command) == 0
    assert (pack / "pack.json").exists()


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("small_disk", [64_000], indirect=True)
@pytest.mark.chaos(
    fault="a disk that fills up while training", holds="an error that says so; with room again no epoch is lost"
)
def test_training_goes_on_once_there_is_room(
    ray_session: None, tiny_images: Path, small_disk: Path, tmp_path: Path
) -> None:
    # An epoch takes a twentieth of a second. Ten were over before the driver of a busy machine had filled the disk.
    config = tiny_training(tiny_images, num_epochs=20)
    fillers: list[Path] = []
    recorded: dict[int, dict[str, Any]] = {}

    def fill(record: dict[str, Any]) -> None:
        if record["kind"] != "epoch":
            return
        assert recorded.setdefault(record["epoch"], record) == record
        if not fillers:
            fillers.append(small_disk / "filler")
            _fill(fillers[0])

    with pytest.raises(OSError, match="No space left on device") as full:
        pretrain(config, Storage.from_uri(small_disk), fill)
    assert full.value.errno == errno.ENOSPC  # what the command line turns into a line
    assert len(recorded) < 20
    fillers[0].unlink()
    checkpoint = pretrain(config, Storage.from_uri(small_disk), fill)
    assert Path(checkpoint).name == "epoch_0019"
    assert sorted(recorded) == list(range(20))


def _fill(file: Path) -> None:
    """Leaves no room on the disk that a file is on."""
    with file.open("ab", buffering=0) as stream:
        while free := os.statvfs(file).f_bavail:
            stream.write(bytes(free * os.statvfs(file).f_frsize))
