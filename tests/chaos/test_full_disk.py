"""A disk that is full while a command writes."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from inputs import write_pictures
from objectaware.cli import run


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 400 kB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(folder)], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"no right to mount a small file system: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


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
