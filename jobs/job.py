"""What each script of this folder does: one command of the package that lies in the same clone."""

from __future__ import annotations

import sys
from pathlib import Path

# First, so that an edited clone is what runs where its image has the package installed as well. Ray's workers
# are told of it when the command connects to Ray.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "platform"))

from objectaware.cli import run


def run_command(name: str) -> None:
    """Runs `objectaware NAME` with this script's arguments, and exits with its status."""
    sys.exit(run([name, *sys.argv[1:]]))
