"""A data set of one image."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from objectaware.config import LocalizeConfig
from objectaware.errors import InputError
from objectaware.stages.localize import run_localize
from objectaware.stages.runner import Context
from stages_in_process import work_in_process


@pytest.mark.parametrize("localizer", ["contracam", "integrated_gradients", "smoothgrad"])
def test_one_image_is_refused_where_images_are_compared(localizer: str, context: Context, tmp_path: Path) -> None:
    fields = {**_one_image(tmp_path), "localizer": localizer, "checkpoint": str(tmp_path / "weights")}
    (tmp_path / "weights").touch()
    with pytest.raises(InputError, match=f"holds one image, and {localizer} finds what sets an image apart"):
        run_localize(context, LocalizeConfig.model_validate(fields))


def test_one_image_is_localized_where_none_are(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work_in_process(monkeypatch)
    fields = {**_one_image(tmp_path), "localizer": "center_box", "side_fraction": 0.5, "crf": False}
    values = run_localize(context, LocalizeConfig.model_validate(fields)).values
    assert (values["num_ok"], values["num_failed"]) == (1, 0)


def _one_image(folder: Path) -> dict[str, object]:
    (folder / "photos").mkdir()
    Image.fromarray(np.zeros((48, 48, 3), dtype=np.uint8)).save(folder / "photos" / "a.png")
    return {"data": {"root": str(folder / "photos")}, "image_size": 32}
