"""The precision of a training: where it is refused, and that it is what the passes have."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from objectaware.cli import run
from objectaware.config import DetectionConfig, PretrainConfig
from objectaware.detection.fine_tuning import run_fine_tuning
from objectaware.errors import InputError
from objectaware.training.loop import autocast, require_precision
from objectaware.training.pretraining import run_pretraining
from objectaware.training.session import LocalSession

CPU = torch.device("cpu")


@pytest.fixture
def emulating(monkeypatch: pytest.MonkeyPatch) -> None:
    """A processor of plain AVX-512."""
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_f": True, "avx512_bf16": False, "l2": 524288})
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


@pytest.mark.parametrize("flag", ["avx512_bf16", "amx_bf16", "arm_bf16"])
def test_a_processor_with_bfloat16_instructions_is_taken(flag: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_f": True, flag: True})
    require_precision("bf16", CPU)


def test_a_processor_without_them_is_refused_and_takes_32_bits(emulating: None) -> None:
    require_precision("fp32", CPU)
    with pytest.raises(InputError, match=r"precision = bf16: this machine's CPU .*--precision fp32"):
        require_precision("bf16", CPU)


def test_a_gpu_is_asked_and_not_the_processor(emulating: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: including_emulation)
    with pytest.raises(InputError, match="this machine's GPU"):
        require_precision("bf16", torch.device("cuda"))
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: True)
    require_precision("bf16", torch.device("cuda"))


@pytest.mark.parametrize(("precision", "dtype"), [("fp32", torch.float32), ("bf16", torch.bfloat16)])
def test_passes_have_the_precision(precision: str, dtype: torch.dtype) -> None:
    with autocast(precision, CPU):
        assert torch.nn.Linear(2, 2)(torch.ones(1, 2)).dtype == dtype


def test_workers_look_at_their_own_processor(emulating: None, tmp_path: Path) -> None:
    """They may be on another machine than the command; they look before they open anything."""
    pretrain = PretrainConfig.model_validate({"data": {"root": "missing"}, "precision": "bf16"})
    coco = {"root": "missing", "layout": "coco", "split": "train"}
    detection = DetectionConfig.model_validate({"checkpoint": "c", "data": coco, "test": coco, "precision": "bf16"})
    session = LocalSession(tmp_path)
    with pytest.raises(InputError, match="precision = bf16"):
        run_pretraining(pretrain, session)
    with pytest.raises(InputError, match="precision = bf16"):
        run_fine_tuning(detection, session)


@pytest.fixture
def commands(tmp_path: Path) -> dict[str, list[str]]:
    """A command line of each kind that trains, in bfloat16."""
    (tmp_path / "photos").mkdir()
    texts = {
        "pretrain": f"data: {{root: {tmp_path / 'photos'}}}\nprecision: bf16\n",
        "detection": "checkpoint: c\ndata: {root: d, layout: coco, split: train}\n"
        "test: {root: d, layout: coco, split: val}\nprecision: bf16\n",
        "demo": "pretrain: {precision: bf16}\n",
        "sweep": "name: precisions\nmetric: network.loss\nparameters: {network.precision: [fp32, bf16]}\n"
        f"stages: {{network: {{stage: pretrain, fields: {{data: {{root: {tmp_path / 'photos'}}}}}}}}}\n",
    }
    for name, text in texts.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    return {
        "pretrain": ["pretrain", str(tmp_path / "pretrain.yaml")],
        "detection": ["evaluate", "detection", str(tmp_path / "detection.yaml")],
        "demo": ["demo", "--recipe", str(tmp_path / "demo.yaml")],
        "sweep": ["sweep", str(tmp_path / "sweep.yaml")],
    }


@pytest.mark.parametrize("name", ["pretrain", "detection", "demo", "sweep"])
def test_commands_are_refused_before_ray_starts(
    name: str,
    commands: dict[str, list[str]],
    emulating: None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def start(**_: object) -> None:
        pytest.fail("Ray was started")

    monkeypatch.setattr("objectaware.distributed.cluster.ray_cluster", start)
    assert run(commands[name]) == 2
    assert "precision = bf16" in capsys.readouterr().err
