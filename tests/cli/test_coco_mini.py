"""A folder of photos through `pretrain` and `localize`, as a user would, into files that pycocotools reads."""

from __future__ import annotations

import contextlib
import io
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from PIL import Image
from pycocotools.coco import COCO

from objectaware.cli import run
from objectaware.data.storage import Storage
from objectaware.localize.mask_store import read_rows

# A relative path, which means the folder that the command is started in.
PRETRAIN_RECIPE = """\
data: {root: photos/train2017}
backbone: resnet10_narrow
image_size: 64
num_epochs: 1
batch_size: 5
method: {queue_size: 20}
execution: {num_loader_threads: 1, num_compute_threads: 1}
"""
LOCALIZE_RECIPE = (
    "{image_size: 64, localizer: {num_iterations: 2}, execution: {num_compute_threads: 1, num_crf_actors: 1}}"
)


def _objectaware(*arguments: str) -> dict[str, Any]:
    """Run a command in the working directory; return its values."""
    assert run([*arguments, "--json", "out.json"]) == 0
    values: dict[str, Any] = json.loads(Path("out.json").read_text())
    return values


def _draw_photos(folder: Path, num_photos: int) -> None:
    """Discs on noise, each of another size, every third without colours."""
    folder.mkdir(parents=True)
    random = np.random.default_rng(num_photos)
    for number in range(num_photos):
        photo = random.integers(0, 90, (60 + number, 90 - number, 3), dtype=np.uint8)
        cv2.circle(photo, (40, 30), 18, (40, 200, 230), thickness=-1)
        content = cv2.cvtColor(photo, cv2.COLOR_BGR2GRAY) if number % 3 == 0 else photo
        cv2.imwrite(str(folder / f"{number}.jpg"), content)


@pytest.fixture
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with photos in `photos/train2017` and `photos/val2017`: real ones, or else drawn ones."""
    monkeypatch.chdir(tmp_path)
    data = Path(__file__).parents[3] / "shared" / "data" / "coco-mini"
    if data.is_dir():
        (tmp_path / "photos").symlink_to(data)
    else:
        _draw_photos(tmp_path / "photos" / "train2017", 10)
        _draw_photos(tmp_path / "photos" / "val2017", 6)
    return tmp_path


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_photos_become_masks_boxes_and_coco_json_and_a_second_run_computes_nothing(
    ray_session: None, photos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (photos / "pretrain.yaml").write_text(PRETRAIN_RECIPE)
    (photos / "localize.yaml").write_text(LOCALIZE_RECIPE)
    trained = _objectaware("pretrain", "pretrain.yaml")
    checkpoint = os.path.relpath(trained["checkpoint"], photos)
    found: dict[str, dict[str, Any]] = {}
    for split in ("train2017", "val2017"):
        found[split] = _objectaware(*_localize(split, checkpoint))
        _check_masks(photos / "photos" / split, photos / "masks" / split, found[split])
    before = _contents(photos / "masks")
    capsys.readouterr()
    assert _objectaware("pretrain", "pretrain.yaml") == trained
    assert capsys.readouterr().err.count("finished before, reused") == 1
    assert _objectaware(*_localize("val2017", checkpoint)) == found["val2017"]
    assert capsys.readouterr().err.count("finished before, reused") == 1
    assert _contents(photos / "masks") == before


def _localize(split: str, checkpoint: str) -> Sequence[str]:
    out = f"masks/{split}"
    return "localize", f"photos/{split}", "--checkpoint", checkpoint, "--out", out, "--recipe", "localize.yaml"


def _contents(folder: Path) -> dict[str, int]:
    """When each file below a folder was written."""
    return {str(path): path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


def _check_masks(images: Path, masks: Path, values: dict[str, Any]) -> None:
    """The store holds every image once, as large as it is on disk, and so does the COCO JSON."""
    sizes = {path.name: Image.open(path).size for path in images.glob("*.jpg")}
    rows = list(read_rows(Storage.from_uri(masks)))
    assert sorted(row.image_id for row in rows) == sorted(sizes)
    assert {row.status for row in rows} == {"ok"}
    assert (values["num_images"], values["num_ok"], values["num_failed"]) == (len(sizes), len(sizes), 0)
    for row in rows:
        assert (row.width, row.height) == sizes[row.image_id]
        assert row.mask is not None
        assert row.mask.shape == (row.height, row.width)
        assert ((row.boxes >= 0) & (row.boxes <= 1)).all()
        assert (row.boxes[:, :2] < row.boxes[:, 2:]).all()
    _check_annotations(Path(values["annotations"]), sizes, num_boxes=sum(len(row.boxes) for row in rows))


def _check_annotations(file: Path, sizes: dict[str, tuple[int, int]], *, num_boxes: int) -> None:
    with contextlib.redirect_stdout(io.StringIO()):
        coco = COCO(str(file))
    listed = {image["file_name"]: (image["width"], image["height"]) for image in coco.imgs.values()}
    assert len(coco.imgs) == len(sizes)
    assert listed == sizes
    assert len(coco.anns) == num_boxes > 0
    for annotation in coco.anns.values():
        width, height = listed[coco.imgs[annotation["image_id"]]["file_name"]]
        mask = coco.annToMask(annotation)
        assert mask.shape == (height, width)
        assert mask.sum() == annotation["area"]
        left, top, box_width, box_height = annotation["bbox"]
        assert min(left, top) >= 0
        assert min(box_width, box_height) > 0
        assert left + box_width <= width + 1e-3
        assert top + box_height <= height + 1e-3
