"""A demo small enough for a test."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

COMMAND = [sys.executable, "-m", "objectaware.cli", "demo", "--recipe", "tiny.yaml", "--json", "out.json"]

# 144 pictures are three groups of localization.
RECIPE = """\
num_train: 144
num_val: 45
num_localized: 30
image_size: 48
num_iterations: [1, 2]
pretrain:
  backbone: resnet10_narrow
  num_epochs: 2
  batch_size: 32
  method: {queue_size: 128}
  execution: {num_loader_threads: 1, num_compute_threads: 1, record_every_steps: 3}
"""


def run_demo(folder: Path) -> str:
    """Runs it in a folder that holds `tiny.yaml` and gives what it printed, in the order in which it did."""
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    done = subprocess.run(
        COMMAND, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
    return done.stdout
