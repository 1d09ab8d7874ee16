from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from objectaware.cli import run
from objectaware.commands import registry
from objectaware.config import DetectionConfig, PretrainConfig
from objectaware.errors import InputError
from objectaware.recipes import override, read_recipe
from objectaware.stages.class_distance import ClassDistanceConfig
from objectaware.stages.few_shot import FewShotConfig
from objectaware.stages.knn import KnnConfig
from objectaware.stages.lease import LeaseHeldError
from objectaware.stages.linear import LinearConfig
from objectaware.stages.localization import LocalizationConfig
from objectaware.stages.localizers import LocalizersConfig

RECIPES = Path(__file__).parents[2] / "jobs" / "recipes"


def test_help_lists_the_commands_within_a_second() -> None:
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", "from objectaware.cli import run; run(['--help'])"], capture_output=True, check=True
    )
    assert b"objectaware demo" in done.stdout
    # The import of torch alone would take longer; a loaded machine gets some slack.
    assert time.perf_counter() - started < 3


@pytest.mark.parametrize("words", [["--help"], ["data", "list"]])
def test_a_reader_that_has_seen_enough_ends_a_command_quietly(words: list[str]) -> None:
    """Such as `head`. The pipe's reading end is closed before the command prints."""
    command = [sys.executable, "-m", "objectaware.cli", *words]
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.parametrize(
    "command",
    [
        *("demo", "pretrain", "localize", "evaluate linear", "data build scenes", "export backbone", "ui"),
        "data build challenge",
        *(f"evaluate {name}" for name in ("knn", "shift", "few-shot", "class-distance", "losses", "detection")),
    ],
)
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_status:
        run([*command.split(), "--help"])
    assert exit_status.value.code == 0
    assert "usage: objectaware" in capsys.readouterr().out


def test_what_explains_itself_is_told_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def held(program: str, arguments: list[str]) -> None:
        raise LeaseHeldError("another command (process 7 on here) is computing it. Wait for it, or stop it.")

    monkeypatch.setitem(registry._SUBCOMMANDS, "pretrain", registry.Subcommand(held, "", ""))
    assert run(["pretrain"]) == 1
    assert capsys.readouterr().err == (
        "objectaware: another command (process 7 on here) is computing it. Wait for it, or stop it.\n"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["paint"], "command = paint"),
        (["evaluate"], "evaluate linear"),
        (["pretrain", "missing.yaml"], "recipe = missing.yaml"),
        (["pretrain", str(RECIPES / "moco_resnet18_folder.yaml"), "--num_epochs", "0"], "num_epochs = 0"),
        (["pretrain", str(RECIPES / "moco_resnet18_folder.yaml"), "--epochs", "3"], "epochs = 3"),
        (
            ["pretrain", str(RECIPES / "moco_resnet18_folder.yaml"), "--method", "byol", "--temperature", "1"],
            "temperature = 1: is named method.temperature: write",
        ),
        (
            [
                "evaluate",
                "localizers",
                str(RECIPES / "localizers_coco.yaml"),
                "--localizers.contracam.localizer.num_iterations",
                "0",
            ],
            "localizers.contracam.localizer.num_iterations: input should be",
        ),
        (["localize", "photos", "--localizer", "center_box"], "localizer.side_fraction"),
        (
            ["study", "photos", "--data", "photos", "--num_iterations", "10"],
            "num_iterations = 10: must be a list, such as [10]",
        ),
        (["evaluate", "shift", str(RECIPES / "shift_in9.yaml"), "--checkpoints"], "--checkpoints"),
        (["evaluate", "shift", str(RECIPES / "shift_in9.yaml"), "--sets", "ImageNet-X"], "data set = ImageNet-X"),
        (["evaluate", "few-shot", str(RECIPES / "few_shot_coco.yaml"), "--seeds", "[]"], "seeds"),
        (["evaluate", "losses", "--runs", "runs/pretrain/1"], "runs = runs/pretrain/1"),
        (["demo", "--photos", "photos", "--seeds", "1", "2"], "seeds = (1, 2): has no meaning for photos"),
        (["demo", "--num_epochs", "3"], "num_epochs = 3: has no meaning without photos"),
        (["data", "build", "scenes", "--out", "x", "--correlation", "2"], "correlation"),
        (["export", "backbone", "missing.pth", "--out", "x"], "checkpoint = missing.pth"),
    ],
)
def test_refused_input_is_one_line_and_exit_2(
    arguments: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_overrides_reach_into_nested_fields() -> None:
    recipe = override(
        read_recipe(RECIPES / "moco_resnet18_folder.yaml"), ["--data.root", "x", "--execution.num-workers", "2"]
    )
    config = PretrainConfig.model_validate(recipe)
    assert Path(config.data.root).name == "x"
    assert config.execution.num_workers == 2


@pytest.mark.parametrize("arguments", [["--seed"], ["seed", "1"], ["--seed.value", "1"]])
def test_overrides_that_are_none_are_refused(arguments: list[str]) -> None:
    with pytest.raises(InputError):
        override({"seed": 0}, arguments)


# The paper's trainings, which have a base, are checked by tests/jobs.
_OTHERS = [path for path in sorted(RECIPES.glob("*.yaml")) if "base:" not in path.read_text()]


@pytest.mark.parametrize("path", _OTHERS, ids=lambda path: path.stem)
def test_every_recipe_is_valid(path: Path) -> None:
    models = {
        "class": ClassDistanceConfig,
        "detection": DetectionConfig,
        "few": FewShotConfig,
        "knn": KnnConfig,
        "linear": LinearConfig,
        "shift": LinearConfig,
        "localization": LocalizationConfig,
        "localizers": LocalizersConfig,
    }
    models.get(path.stem.split("_")[0], PretrainConfig).model_validate(read_recipe(path))


def test_a_yaml_file_that_would_run_code_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "evil.yaml"
    path.write_text("!!python/object/apply:os.system ['touch ran']")
    with pytest.raises(InputError, match="not YAML"):
        read_recipe(path)
