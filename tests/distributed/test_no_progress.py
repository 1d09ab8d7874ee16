from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from objectaware.config import DataConfig, PretrainConfig, PretrainExecution
from objectaware.distributed.no_progress import EXIT_STATUS
from objectaware.distributed.pretrain import pretrain

HANGS_AFTER_SOME_STEPS = """
import threading
from objectaware.distributed.no_progress import NoProgressWatch

def wait_for_a_disk_that_is_away():
    threading.Event().wait()

with NoProgressWatch(0.5, lambda place: print(place, flush=True)) as watch:
    for step in range(8):
        threading.Event().wait(0.2)  # together longer than the limit
        watch.moved()
    print("eight steps", flush=True)
    wait_for_a_disk_that_is_away()
"""

ENDS_IN_TIME = """
from objectaware.distributed.no_progress import NoProgressWatch
with NoProgressWatch(0.2, print):
    pass
import threading
threading.Event().wait(0.6)
"""


def _run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)


def test_a_process_that_does_not_move_tells_where_it_stands_and_ends() -> None:
    done = _run(HANGS_AFTER_SOME_STEPS)
    assert done.returncode == EXIT_STATUS, done.stderr
    steps, place = done.stdout.split("\n", 1)
    assert steps == "eight steps"
    assert "wait_for_a_disk_that_is_away" in place


def test_a_process_that_has_ended_its_work_is_left_alone() -> None:
    done = _run(ENDS_IN_TIME)
    assert (done.returncode, done.stdout) == (0, "")


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
                picture.unlink()
                os.mkfifo(picture)
        if record["kind"] == "stuck":
            stuck.append(record)
            picture.unlink(missing_ok=True)
            picture.write_bytes(content)

    execution = PretrainExecution(num_loader_threads=1, num_compute_threads=1, cache_mib=0, no_progress_minutes=1 / 3)
    config = PretrainConfig(
        data=DataConfig(root=str(images)),
        backbone="resnet10_narrow",
        image_size=32,
        num_epochs=4,
        batch_size=16,
        queue_size=64,
        execution=execution,
    )
    checkpoint = pretrain(config, name="train", storage=str(tmp_path / "runs"), on_record=swap)
    assert Path(checkpoint).name == "epoch_0003"
    assert sorted(set(epochs)) == [0, 1, 2, 3]
    (told,) = stuck
    assert (told["rank"], told["seconds"]) == (0, 20)
    assert "File " in told["place"]
