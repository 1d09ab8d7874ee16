"""Programs that are no Python packages, and that some tests need."""

from __future__ import annotations

import os
import shutil

import pytest


def program(*names: str, package: str, places: str = "") -> str:
    """Path of a program; where it is missing CI fails, and elsewhere the test is skipped.

    Args:
        names: What it may be called.
        package: Debian's package that has it.
        places: Folders to look in beside the PATH, as in PATH.
    """
    for name in names:
        path = shutil.which(name) or shutil.which(name, path=places)
        if path is not None:
            return path
    if os.environ.get("CI"):
        pytest.fail(f"CI needs {names[0]}: .ci/run installs Debian's {package}")
    pytest.skip(f"no {names[0]} on this machine")
