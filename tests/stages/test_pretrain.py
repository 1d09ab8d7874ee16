from types import SimpleNamespace
from typing import Any, cast

from objectaware.config import PretrainConfig
from objectaware.stages.pretrain import _Recorder


def test_progress_shows_the_loss_beside_its_chance_level() -> None:
    lines: list[str] = []
    run = SimpleNamespace(progress=SimpleNamespace(update=lines.append))
    recorder = _Recorder(cast(Any, run), PretrainConfig.model_validate({"data": {"root": "photos"}}))
    record = {"kind": "progress", "epoch": 0, "step": 1, "num_steps": 10, "loss": 9.5, "images_per_second": 100.0}
    recorder({**record, "chance_loss": 11.0904})
    assert lines[0].startswith("epoch 1/800 · loss 9.500 (chance 11.090) · 100 images/s")
