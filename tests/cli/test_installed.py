"""The package as its wheel installs it, away from the clone."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from email.parser import HeaderParser
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = ("pyproject.toml", "README.md", "LICENSE", "platform", "jobs", "sweeps")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds what the wheel does; built of a copy, since building leaves files behind."""
    source, built, folder = (tmp_path_factory.mktemp(name) for name in ("source", "built", "installed"))
    for name in SOURCES:
        if (ROOT / name).is_file():
            shutil.copyfile(ROOT / name, source / name)
        else:  # links stay links: how the wheel gets the recipes is part of the test
            ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
            shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=ignored)
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index", "--quiet"]
    subprocess.run([*command, "--wheel-dir", str(built), str(source)], check=True)
    (wheel,) = built.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(folder)
    return folder


RUN = "import sys; from objectaware.cli import run; sys.exit(run())"


def _run(installed: Path, cwd: Path, *words: str, code: str = RUN) -> str:
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    command = [sys.executable, "-c", code, *words]
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_wheel_holds_every_recipe_and_sweep(installed: Path) -> None:
    shipped = installed / "objectaware" / "shipped"
    for folder in ("jobs/recipes", "sweeps"):
        ours = {path.relative_to(ROOT): path.read_bytes() for path in (ROOT / folder).rglob("*.yaml")}
        assert {path.relative_to(shipped): path.read_bytes() for path in (shipped / folder).rglob("*")
                if path.is_file()} == ours  # fmt: skip


def test_the_wheel_holds_the_licence(installed: Path) -> None:
    (about,) = installed.glob("objectaware-*.dist-info")
    metadata = HeaderParser().parsestr((about / "METADATA").read_text())
    assert (metadata["License-Expression"], metadata["License-File"]) == ("Apache-2.0", "LICENSE")
    assert (about / "licenses" / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


def test_a_table_is_planned_without_ray_and_mlflow(installed: Path, tmp_path: Path) -> None:
    plan = _run(installed, tmp_path, code="""
import sys, objectaware
from objectaware.cli import run
assert run(["reproduce", "bg-main", "--plan"]) == 0
assert not {"ray", "mlflow"} & sys.modules.keys()
print(objectaware.__file__)
""")  # fmt: skip
    first, *_, origin = plan.splitlines()
    assert first == "bg-main, paper protocol: 38 stages"
    assert Path(origin).is_relative_to(installed)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ("reproduce list", "bg-main"),
        ("data list", "class-folders"),
        ("pretrain --help", "  data.root: path or URI (required)"),
        ("sweep --help", "  parameters.NAME.grid: "),
    ],
)
def test_a_command_answers_from_any_folder(words: str, shown: str, installed: Path, tmp_path: Path) -> None:
    assert shown in _run(installed, tmp_path, *words.split())


def test_every_trial_of_a_sweep_that_comes_with_the_package_is_valid(installed: Path, tmp_path: Path) -> None:
    code = """
from pathlib import Path
from objectaware.commands.stages import read_sweep
from objectaware.studies.sweep_config import SweepConfig
from objectaware.studies.sweep_config import check_sweep
print(len(check_sweep(SweepConfig.model_validate(read_sweep(Path("sweeps/p_mix.yaml"), [])))))
"""
    assert _run(installed, tmp_path, code=code) == "10\n"
