"""A file of annotations is opened once in a process, however many stages and mask stores ask for what it says."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from objectaware.config import DataConfig, LocalizeConfig
from objectaware.data.coco_json import forget_instances
from objectaware.data.scenes import build_scenes
from objectaware.stages.localization import LocalizationConfig, localization
from objectaware.stages.localize import localize
from objectaware.stages.runner import Context
from stages_in_process import work_in_process


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each file's bytes were read, by name."""
    counts: Counter[str] = Counter()
    read_bytes = Path.read_bytes

    def counted(path: Path) -> bytes:
        counts[path.name] += 1
        return read_bytes(path)

    monkeypatch.setattr(Path, "read_bytes", counted)
    return counts


def test_localizing_and_scoring_parse_the_annotations_once(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opened: Counter[str]
) -> None:
    work_in_process(monkeypatch)
    forget_instances()
    build_scenes(tmp_path / "scenes", variant="multi-object", num_train=9, num_val=9, image_size=48)
    data = DataConfig(root=str(tmp_path / "scenes"), layout="coco", split="val")
    sides = {"small": 0.4, "middle": 0.6, "large": 0.8}
    shared = {"data": data, "image_size": 48, "crf": False}
    configs = {
        name: LocalizeConfig.model_validate({**shared, "localizer": {"name": "center_box", "side_fraction": side}})
        for name, side in sides.items()
    }
    masks = {name: localize(context, config).values["masks"] for name, config in configs.items()}
    scores = localization(context, LocalizationConfig(data=data, masks=masks)).values["scores"]
    assert sides.keys() <= scores.keys()
    assert opened["instances_val2017.json"] == 1


def test_annotations_that_change_are_read_again(tmp_path: Path, opened: Counter[str]) -> None:
    build_scenes(tmp_path, variant="multi-object", num_train=9, num_val=9, image_size=48)
    data = DataConfig(root=str(tmp_path), layout="coco", split="val")
    file = tmp_path / "annotations" / "instances_val2017.json"
    for number in range(3):
        assert len(data.open()) == 9
        assert opened[file.name] == 1 + number
        assert len(data.open()) == 9
        file.write_text(file.read_text() + " ")
