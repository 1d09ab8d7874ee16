"""`objectaware reproduce` as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from objectaware.cli import run
from objectaware.data.scenes import build_scenes

ROOT = Path(__file__).parents[2]
TABLE = ["reproduce", "loc-saliency", "--scale", "smoke", "--recipes", str(ROOT / "jobs" / "recipes")]


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_smoke_table_runs_is_reused_and_its_plan_is_done(
    ray_session: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    def reproduce(*arguments: str) -> tuple[list[str], str]:
        assert run([*TABLE, *arguments, "--json", "out.json"]) == 0
        printed = capsys.readouterr()
        return printed.out.splitlines(), printed.err

    plan, _ = reproduce("--plan")
    assert "smoke on scenes | 0 done, 31 to do, 0 cannot run" in plan
    table, progress = reproduce()
    assert all(line.startswith("smoke on scenes | ") for line in table)
    told = [line for line in progress.splitlines() if ": done in " in line or line.endswith(" …")]
    assert told
    assert all(line.startswith("smoke on scenes: ") for line in told)
    first = json.loads((tmp_path / "out.json").read_text())
    assert first["scale"] == "smoke on scenes"
    assert len(first["cells"]) == 15
    assert all(0 <= cell["measured"] <= 100 for cell in first["cells"])
    plan, _ = reproduce("--plan")
    assert "smoke on scenes | 31 done, 0 to do, 0 cannot run" in plan
    _, progress = reproduce()
    assert progress.count("finished before, reused") == 31
    assert json.loads((tmp_path / "out.json").read_text()) == first


def test_a_plan_without_data_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    recipes = ["--recipes", str(ROOT / "jobs" / "recipes")]
    assert run(["reproduce", "bg-main", "--plan", *recipes, "--images-per-second", "1000", "250", "--json", "p"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "bg-main, paper protocol: 38 stages"
    assert "0 done, 0 to do, 38 cannot run" in lines
    assert any(line.startswith("  ImageNet-9 (train): missing: ") and "original/train" in line for line in lines)
    # 18 trainings of 45,405 images for 800 epochs, at 1000 images a second.
    hours = 18 * 45_405 * 800 / 1000 / 3600
    assert any(line.startswith(f"not done: about {hours:.0f} GPU hours at 1000 images/s") for line in lines)
    written = json.loads(Path("p").read_text())
    assert len(written["stages"]) == 38
    assert written["totals"]["gpu_hours"] == pytest.approx(hours, rel=0.01)


def test_a_plan_counts_the_images_that_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    build_scenes(Path("scenes"), variant="multi-object", num_train=36, num_val=9, image_size=32)
    Path("sets.yaml").write_text("COCO: scenes\n")
    place = ["--recipes", str(ROOT / "jobs" / "recipes"), "--datasets", "sets.yaml"]
    assert run(["reproduce", "figure:hard-loss", "--plan", *place, "--images-per-second", "1", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "  COCO (train): there, but 36 of 118,287 images of train" in lines
    assert "0 done, 4 to do, 0 cannot run" in lines
    assert "  to do       pretrain moco_resnet50_coco seed 0  8.0 GPU h" in lines
    assert not Path("runs").exists()


def test_what_is_no_table_or_figure_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["reproduce", "bg-mian", "--plan"]) == 2
    assert "table = bg-mian: is not a table of the paper" in capsys.readouterr().err
    assert run(["reproduce", "bg-main", "--plan", "--images-per-second", "0", "1"]) == 2
    assert "images-per-second = 0.0: is not a valid rate" in capsys.readouterr().err
    assert run(["reproduce", "figure:intor", "--plan"]) == 2
    assert "figure = intor: is not a figure of the paper" in capsys.readouterr().err
