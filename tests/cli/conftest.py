"""A demo on the command line that nobody disturbs, for all tests that ask something of one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tiny_demo import RECIPE, run_demo


@pytest.fixture(scope="session")
def finished_demo(clean_environment: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that it ran in; its results are in `out.json`."""
    folder = tmp_path_factory.mktemp("demo")
    (folder / "tiny.yaml").write_text(RECIPE)
    run_demo(folder)
    return folder
