from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from objectaware.data.storage import Storage
from objectaware.distributed.train import pretrain
from objectaware.training.no_progress import EXIT_STATUS
from tiny_training import tiny_training

HANGS_AFTER_SOME_STEPS = """
import threading
from objectaware.training.no_progress import NoProgressWatch

def wait_for_a_disk_that_is_away():
    threading.Event().wait()

with NoProgressWatch(3, lambda place: print(place, flush=True)) as watch:
    for step in range(16):
        threading.Event().wait(0.25)  # together longer than the limit
        watch.moved()
    print("all steps", flush=True)
    wait_for_a_disk_that_is_away()
"""

# Enough for the driver to swap the picture before training ends, on however slow a machine.
NUM_EPOCHS = 10

WAITS = """
import sys, threading, time, torch
from objectaware.training.no_progress import NoProgressWatch
began = time.monotonic()
with NoProgressWatch(0.5, lambda place: print(time.monotonic() - began, flush=True), seconds_for_others=3):
    torch.futures.Future().wait() if sys.argv[1] == "for others" else threading.Event().wait()
"""

ENDS_IN_TIME = """
from objectaware.training.no_progress import NoProgressWatch
with NoProgressWatch(0.2, print):
    pass
import threading
threading.Event().wait(0.6)
"""


def _run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def test_a_process_that_does_not_move_tells_where_it_stands_and_ends() -> None:
    done = _run(HANGS_AFTER_SOME_STEPS)
    assert done.returncode == EXIT_STATUS, done.stderr
    steps, place = done.stdout.split("\n", 1)
    assert steps == "all steps"
    assert "wait_for_a_disk_that_is_away" in place


def test_a_process_that_has_ended_its_work_is_left_alone() -> None:
    done = _run(ENDS_IN_TIME)
    assert (done.returncode, done.stdout) == (0, "")


def test_a_process_that_waits_for_others_leaves_it_to_them_to_tell_first() -> None:
    itself, for_others = (float(_run(WAITS, what).stdout) for what in ("for itself", "for others"))
    assert 0.5 <= itself < 3.5 <= for_others


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.chaos(fault="a training worker hangs in a read", holds="it ends itself, says where, and training goes on")
def test_a_worker_that_hangs_in_a_read_is_begun_again(ray_session: None, tiny_images: Path, tmp_path: Path) -> None:
    """A picture becomes a pipe that nobody writes to, whose reading never returns, until a worker has ended over it."""
    images = tmp_path / "images"
    shutil.copytree(tiny_images, images)
    picture = next(path for path in sorted(images.rglob("*")) if path.is_file())
    content = picture.read_bytes()
    stuck: list[dict[str, Any]] = []
    epochs: list[int] = []

    def swap(record: dict[str, Any]) -> None:
        if record["kind"] == "epoch":
            epochs.append(record["epoch"])
            if len(epochs) == 1:
                os.mkfifo(tmp_path / "pipe")
                (tmp_path / "pipe").replace(picture)
        if record["kind"] == "stuck":
            stuck.append(record)
            (tmp_path / "whole").write_bytes(content)
            (tmp_path / "whole").replace(picture)

    config = tiny_training(images, num_epochs=NUM_EPOCHS, num_workers=2, cache_mib=0, no_progress_minutes=1 / 3)
    checkpoint = pretrain(config, name="train", storage=Storage.from_uri(tmp_path / "runs"), on_record=swap)
    assert Path(checkpoint).name == f"epoch_{NUM_EPOCHS - 1:04d}"
    assert sorted(set(epochs)) == list(range(NUM_EPOCHS))
    # The one that reads, and not the one that waits for it in PyTorch.
    told = stuck[0]
    assert told["seconds"] == 20
    assert "in thread views" in told["place"]
    assert "pathlib.py" in told["place"]
