"""A headless browser: what a page holds, and what it looks like, once its scripts have run."""

from __future__ import annotations

import subprocess
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from programs import program


def chromium() -> str:
    """Path of the browser."""
    return program("chromium", "chromium-browser", "google-chrome", package="chromium")


def dumped(url: str, folder: Path) -> str:
    """A page's HTML, frames aside.

    Args:
        url: Of the page.
        folder: For the browser's profile.
    """
    return _run(["--dump-dom", url], folder)


def screenshot(url: str, folder: Path) -> NDArray[np.uint8]:
    """A page's picture (900, 1500, 3), blue, green and red from 0 to 255.

    Args:
        url: Of the page.
        folder: For the browser's profile, and the picture.
    """
    path = folder / "screenshot.png"
    _run([f"--screenshot={path}", "--window-size=1500,900", url], folder)
    return np.asarray(cv2.imread(str(path)), dtype=np.uint8)


def _run(arguments: list[str], folder: Path) -> str:
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}/profile"]
    # By the page's own clock, which does not pass while it waits for its server. A frame in a process of its own, as
    # sandboxed ones are otherwise, has another clock, and would still be empty.
    options += ["--virtual-time-budget=30000", "--disable-features=IsolateSandboxedIframes"]
    done = subprocess.run([chromium(), *options, *arguments], capture_output=True, text=True, timeout=200, check=True)
    return done.stdout
