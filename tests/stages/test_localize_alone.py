"""A data set of one image; true masks that are there, that are not, and that cannot be used."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from contexts import with_progress
from objectaware.config import DataConfig, LocalizeConfig
from objectaware.data.dataset import Dataset
from objectaware.data.scenes import build_scenes
from objectaware.errors import InputError
from objectaware.stages.localize import localize, truth_of
from objectaware.stages.progress import Progress
from objectaware.stages.runner import Context
from stages_in_process import work_in_process


@pytest.mark.parametrize("localizer", ["contracam", "integrated_gradients", "smoothgrad"])
def test_one_image_is_refused_where_images_are_compared(localizer: str, context: Context, tmp_path: Path) -> None:
    fields = {**_one_image(tmp_path), "localizer": localizer, "checkpoint": str(tmp_path / "weights")}
    (tmp_path / "weights").touch()
    with pytest.raises(InputError, match=f"holds one image, and {localizer} finds what sets an image apart"):
        localize(context, LocalizeConfig.model_validate(fields))


def test_one_image_is_localized_where_none_are(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work_in_process(monkeypatch)
    fields = {**_one_image(tmp_path), "localizer": {"name": "center_box", "side_fraction": 0.5}, "crf": False}
    values = localize(context, LocalizeConfig.model_validate(fields)).values
    assert (values["num_ok"], values["num_failed"]) == (1, 0)


@pytest.mark.parametrize("content", [{}, {"annotations": [{"image_id": 1}]}])
def test_true_masks_that_cannot_be_used_do_not_stop_a_localization(
    content: dict[str, object], context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They only decorate the gallery."""
    work_in_process(monkeypatch)
    (tmp_path / "val2017").mkdir()
    Image.new("RGB", (48, 48)).save(tmp_path / "val2017" / "a.png")
    (tmp_path / "annotations").mkdir()
    content = {"images": [{"id": 1, "file_name": "a.png"}], **content}
    (tmp_path / "annotations" / "instances_val2017.json").write_text(json.dumps(content))
    data = {"root": str(tmp_path), "layout": "coco", "split": "val"}
    fields = {"data": data, "image_size": 32, "localizer": {"name": "center_box", "side_fraction": 0.5}, "crf": False}
    terminal = io.StringIO()
    shown = with_progress(context, Progress(terminal))
    assert localize(shown, LocalizeConfig.model_validate(fields)).values["num_ok"] == 1
    assert "the true masks and boxes are not used: coco = " in terminal.getvalue()


def _one_image(folder: Path) -> dict[str, object]:
    (folder / "photos").mkdir()
    Image.fromarray(np.zeros((48, 48, 3), dtype=np.uint8)).save(folder / "photos" / "a.png")
    return {"data": {"root": str(folder / "photos")}, "image_size": 32}


def test_true_masks_are_found_where_the_layout_has_them(tmp_path: Path) -> None:
    build_scenes(tmp_path, variant="single-object", num_train=18, num_val=9, image_size=48)

    def opened(**fields: str) -> Dataset:
        fields = {"root": str(tmp_path), "layout": "backgrounds-challenge", **fields}
        return Dataset.of(DataConfig.model_validate(fields))

    data = opened(split="val", variant="original")
    truth, notice = truth_of(data)
    assert truth is not None
    assert not notice
    mask, ignored = truth(data.image_ids[0])
    assert 0.05 < mask.mean() < 0.6
    assert ignored is None
    assert truth_of(opened(split="val", variant="mixed_rand")) == (None, "")
    assert truth_of(Dataset.of(DataConfig(root=str(tmp_path)))) == (None, "")
