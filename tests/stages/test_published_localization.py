"""`evaluate localizers` on published data sets: with masks, and with boxes alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from objectaware.cli import run
from objectaware.data.storage import Storage
from published_trees import KINDS, write_part


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("kind", ["cub", "wsolevaluation"])
def test_localizers_are_scored_by_what_the_data_set_has(
    ray_session: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    kind: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    data = write_part(tmp_path, kind)
    recipe = {
        "data": data.model_dump(exclude_none=True),
        "checkpoint": "none of these looks through one",
        "shared": {"image_size": 224, "execution": {"num_compute_threads": 1, "num_crf_actors": 1}},
        "localizers": {"middle": {"localizer": {"name": "center_box", "side_fraction": 0.6}, "crf": False}},
    }
    Path("recipe.yaml").write_text(yaml.safe_dump(recipe))
    assert run(["evaluate", "localizers", "recipe.yaml", "--json", "values.json"]) == 0
    values = json.loads(Path("values.json").read_text())
    has_masks, has_ignored, has_boxes = KINDS[kind]
    measures = {"mask_share", "num_images", "num_missing"}
    measures |= {"miou", "miou_1_255", "px_ap", "same_area_miou"} if has_masks else set()
    measures |= {"max_box_acc_v2", "corloc", "same_area_corloc"} if has_boxes else set()
    assert values["scores"]["middle"].keys() == measures
    assert ("best center box (oracle)" in values["scores"]) == (has_masks and not has_ignored)
    assert ("center map + CRF" in values["scores"]) == has_masks
    assert ("mIoU at 0.5" in capsys.readouterr().out) == has_masks
    gallery = Storage.from_uri(values["masks"]["middle"]).read_bytes("gallery.html").decode()
    assert ("data-miou=" in gallery) == has_masks
