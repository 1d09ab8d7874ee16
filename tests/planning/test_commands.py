"""`objectaware plan show` and `objectaware reproduce … --plan --rates` as a user runs them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from objectaware.cli import run
from objectaware.planning.model import NetworkRates, write_rates
from planned import rates

ROOT = Path(__file__).parents[2]
SHOW = ["plan", "show", "--rates", "rates.json", "--images", "118287"]
PLAN = ["reproduce", "multi-main", "--plan", "--recipes", str(ROOT / "jobs" / "recipes")]


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with rates of both networks and both methods."""
    monkeypatch.chdir(tmp_path)
    known = rates()
    (small,) = known.networks
    both = {"moco": small.training["moco"], "byol": small.training["moco"]}
    small = small.model_copy(update={"training": both})
    large = NetworkRates.model_validate({**small.model_dump(), "backbone": "resnet50", "num_features": 2048})
    write_rates(tmp_path / "rates.json", known.model_copy(update={"networks": (small, large)}))
    return tmp_path


def test_a_table_has_a_line_a_stage_with_cost_and_bottleneck(capsys: pytest.CaptureFixture[str]) -> None:
    prices = ["--gpu-hour-price", "2", "--cpu-hour-price", "0.05"]
    assert run([*SHOW, "--gpus", "8", "--cpus", "20", "--iterations", "20", *prices, "--json", "out.json"]) == 0
    head, titles, *lines = capsys.readouterr().out.splitlines()
    assert head == "118,287 images on 8 GPUs and 20 cores, made up"
    assert titles.split() == ["stage", "time", "GPU", "hours", "core", "hours", "cost", "waits", "for"]
    assert [line.split()[0] for line in lines] == ["pretrain", "localize", "linear", "all"]
    written = json.loads(Path("out.json").read_text())
    assert written["machine"] == {"num_gpus": 8, "num_cores": 20}
    pretrain, localize, _ = written["stages"]
    assert pretrain["bottleneck"] == "CPU cores"
    assert localize["bottleneck"] == "GPU"
    for stage in written["stages"]:
        assert stage["cost"] == pytest.approx(2 * stage["gpu_hours"] + 0.05 * stage["core_hours"])
        assert stage["gpu_hours"] == pytest.approx(8 * stage["seconds"] / 3600)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--backbone", "resnet10_narrow"], "backbone = resnet10_narrow: is not among the rates"),
        (["--gpus", "0"], "gpus = 0: does not fit rates of the device cuda"),
        (["--epochs", "0"], "epochs = 0: is too few"),
        (["--cpu-hour-price", "-1"], "cpu-hour-price = -1.0: is not a valid price"),
        (["--rates", "none.json"], "rates = none.json: is not a file"),
    ],
)
def test_what_cannot_be_planned_is_refused(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*SHOW, *words]) == 2
    assert message in capsys.readouterr().err


def test_a_paper_s_plan_tells_elapsed_time_by_measured_rates(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*PLAN, "--rates", "rates.json", "--gpus", "8", "--cpus", "20", "--json", "plan.json"]) == 0
    lines = capsys.readouterr().out.splitlines()
    (total,) = (line for line in lines if "GPU hours" in line)
    assert total.startswith("not done: about ")
    assert "GPU hours made up" in total
    assert any(line.endswith("on 8 GPUs and 20 cores, one stage after the other") for line in lines)
    assert any("waits for CPU cores" in line for line in lines)
    written = json.loads(Path("plan.json").read_text())
    assert written["machine"] == {"num_gpus": 8, "num_cores": 20}
    known = [stage["cost"]["hours"] for stage in written["stages"]]
    assert written["totals"]["hours"] == pytest.approx(sum(known))


def test_without_rates_it_says_that_they_are_the_paper_s(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(PLAN) == 0
    out = capsys.readouterr().out
    assert "at 183 images/s (ResNet-18) and 46 (ResNet-50) per GPU (a GeForce RTX 2080 Ti by the paper's days)" in out
    assert "waits for" not in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--gpus", "8"], "gpus = 8: needs measured rates"),
        (["--rates", "rates.json", "--images-per-second", "1", "1"], "says what --rates says, too"),
        (["--rates", "rates.json", "--scale", "smoke"], "are of the paper's networks"),
    ],
)
def test_options_that_contradict_each_other_are_refused(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*PLAN, *words]) == 2
    assert message in capsys.readouterr().err
