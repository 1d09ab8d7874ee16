from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from objectaware.data.folder import ImageFolder
from objectaware.errors import InputError
from objectaware.localize.mask_store import MaskRow
from objectaware.report import gallery
from objectaware.report.gallery import CAPTION, CELL, GAP, PANEL_WIDTH, Look

SIDE = 16


@pytest.fixture
def images(tmp_path: Path) -> ImageFolder:
    for number in range(30):
        Image.new("RGB", (SIDE, SIDE), (number, 0, 0)).save(tmp_path / f"{number:02d}.png")
    return ImageFolder.scan(tmp_path)


def left_half() -> NDArray[np.bool_]:
    mask = np.zeros((SIDE, SIDE), dtype=bool)
    mask[:, : SIDE // 2] = True
    return mask


def row(image_id: str, num_boxes: int = 1) -> MaskRow:
    boxes = np.tile(np.array([0, 0, 0.5, 1], dtype=np.float32), (num_boxes, 1))
    return MaskRow(image_id, SIDE, SIDE, cam=left_half().astype(np.float32), mask=left_half(), boxes=boxes)


def broken(image_id: str) -> MaskRow:
    return MaskRow(image_id, 0, 0, status="failed", error="the file is empty")


def test_rows_pass_unchanged_and_are_counted(images: ImageFolder) -> None:
    rows = [row(images.image_ids[0], 2), broken("gone.png"), row(images.image_ids[1], 0)]
    watcher = Look(images, None)
    assert list(watcher.watch(rows)) == rows
    assert watcher.box_counts == {2: 1, 0: 1}
    assert "2 of 2 localized images and 1 of 1 that failed" in watcher.gallery("photos")


def test_the_sample_is_bounded(images: ImageFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gallery, "NUM_GALLERY_IMAGES", 5)
    monkeypatch.setattr(gallery, "NUM_GALLERY_FAILURES", 2)
    monkeypatch.setattr(gallery, "NUM_PANEL_IMAGES", 3)
    watcher = Look(images, None)
    list(watcher.watch([row(image_id) for image_id in images.image_ids] + [broken(f"{n}.png") for n in range(9)]))
    page = watcher.gallery("photos")
    assert page.count("<figure ") == 7
    assert "5 of 30 localized images and 2 of 9 that failed" in page
    panel = watcher.panel()
    assert panel is not None
    assert Image.open(io.BytesIO(panel)).size == (PANEL_WIDTH, CAPTION + 3 * (CAPTION + CELL + GAP))


def test_each_image_is_scored_against_its_true_mask(images: ImageFolder) -> None:
    def truth(image_id: str) -> tuple[NDArray[np.bool_], None]:
        if image_id == images.image_ids[2]:
            raise InputError("fg_mask", image_id, "does not exist", "Restore it.")
        return {0: left_half(), 1: ~left_half()}[images.image_ids.index(image_id)], None

    watcher = Look(images, truth)
    list(watcher.watch([row(image_id) for image_id in images.image_ids[:3]]))
    page = watcher.gallery("photos")
    assert page.count("data-miou=") == 2
    assert page.index('data-miou="1.0000"') < page.index('data-miou="0.0000"')
    assert "no true mask: fg_mask = 02.png: does not exist" in page


def test_ignored_pixels_do_not_count(images: ImageFolder) -> None:
    """The mask of `row` is the left half; the truth is the upper half, and only the upper left counts besides."""
    upper = left_half().T
    counted = left_half() & upper
    watcher = Look(images, lambda image_id: (upper, ~counted))
    list(watcher.watch([row(images.image_ids[0])]))
    assert 'data-miou="1.0000"' in watcher.gallery("photos")


def test_a_picture_that_is_gone_is_said_and_not_fatal(images: ImageFolder) -> None:
    images.path(0).unlink()
    watcher = Look(images, None)
    list(watcher.watch([row(images.image_ids[0])]))
    assert "no picture: the file cannot be opened" in watcher.gallery("photos")
    assert watcher.panel() is None
