from __future__ import annotations

import io

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from objectaware.localize.mask_store import MaskRow
from objectaware.report.gallery import (
    CAPTION,
    CELL,
    GAP,
    PANEL_WIDTH,
    row_strip,
    rows_panel,
)

SIZES = [(96, 96), (40, 200), (300, 150)]


def panel(masked: bool = True) -> NDArray[np.uint8]:
    photos = [np.full((height, width, 3), 200, np.uint8) for height, width in SIZES]
    cam, mask = np.linspace(0, 1, 48 * 48, dtype=np.float32).reshape(48, 48), np.full((24, 24), masked)
    boxes = [np.zeros((0, 4), np.float32), np.array([[0.25, 0.25, 0.75, 0.75]], np.float32)]
    boxes.append(np.array([[0, 0, 1, 1], [0.1, 0.1, 0.2, 0.2]], np.float32))
    names = ["a.jpg", "größe.jpg", "folder/" * 40 + "c.jpg"]
    rows = [MaskRow(name, 24, 24, cam=cam, mask=mask, boxes=found) for name, found in zip(names, boxes, strict=True)]
    png = rows_panel(rows, photos)
    return np.asarray(Image.open(io.BytesIO(png)).convert("RGB"))


def cell(image: NDArray[np.uint8], row: int, column: int) -> NDArray[np.uint8]:
    heights = [row_height(size) for size in SIZES]
    top = CAPTION + sum(CAPTION + height + GAP for height in heights[:row]) + CAPTION
    left = GAP + column * (CELL + GAP)
    return image[top : top + heights[row], left : left + CELL]


def row_height(size: tuple[int, int]) -> int:
    height, width = size
    return round(height * CELL / max(height, width))


def num_red(pixels: NDArray[np.uint8]) -> int:
    return int(((pixels[..., 0] > 200) & (pixels[..., 1:] < 80).all(-1)).sum())


def test_the_grid_has_a_row_per_image_as_high_as_its_photo_and_four_columns() -> None:
    heights = [row_height(size) for size in SIZES]
    assert min(heights) == CELL // 5
    height, width = CAPTION + sum(CAPTION + height + GAP for height in heights), 4 * (CELL + GAP) + GAP
    assert panel().shape == (height, width, 3)
    assert width == PANEL_WIDTH


def test_the_first_column_is_the_photo_in_its_own_proportions() -> None:
    image = panel()
    for row, (height, width) in enumerate(SIZES):
        is_photo = (cell(image, row, 0) == 200).all(-1)
        scale = CELL / max(height, width)
        assert is_photo.any(1).sum() == round(height * scale)
        assert is_photo.any(0).sum() == round(width * scale)


def test_the_cam_is_hot_where_it_is_high() -> None:
    heat = cell(panel(), 0, 1).astype(int)
    assert heat[-10:, :, 0].mean() > heat[:10, :, 0].mean() + 50
    assert heat[:10, :, 2].mean() > heat[-10:, :, 2].mean() + 50


def test_the_mask_shows_what_it_covers() -> None:
    assert (cell(panel(masked=True), 0, 2) == 200).all()
    assert (cell(panel(masked=False), 0, 2) == 128).all()


def test_boxes_are_drawn_where_they_are() -> None:
    image = panel()
    assert num_red(cell(image, 0, 3)) == 0
    boxed = cell(image, 1, 3)
    assert num_red(boxed) > 100
    assert num_red(boxed[:, : CELL // 4 - 2]) == 0
    assert num_red(boxed[:, CELL * 3 // 4 + 2 :]) == 0


def test_a_strip_is_as_high_as_its_photo() -> None:
    photo, cam = np.full((50, 100, 3), 200, np.uint8), np.zeros((5, 5), np.float32)
    jpeg = row_strip(MaskRow("a", 100, 50, cam=cam, mask=cam > 0, boxes=np.array([[0, 0, 1, 1]], np.float32)), photo)
    picture = Image.open(io.BytesIO(jpeg))
    assert picture.format == "JPEG"
    assert picture.size == (PANEL_WIDTH, CELL // 2)
    assert len(jpeg) < 30_000
