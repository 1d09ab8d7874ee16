from __future__ import annotations

import io

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from objectaware.report.gallery import (
    CAPTION,
    CELL,
    GAP,
    localization_panel,
    localization_strip,
    panel_width,
)

SIZES = [(96, 96), (40, 200), (300, 150)]


def panel(masked: bool = True) -> NDArray[np.uint8]:
    photos = [np.full((height, width, 3), 200, np.uint8) for height, width in SIZES]
    cams = [[np.linspace(0, 1, 48 * 48, dtype=np.float32).reshape(48, 48)] for _ in SIZES]
    masks = [np.full((24, 24), masked) for _ in SIZES]
    boxes = [np.zeros((0, 4), np.float32), np.array([[0.25, 0.25, 0.75, 0.75]], np.float32)]
    boxes.append(np.array([[0, 0, 1, 1], [0.1, 0.1, 0.2, 0.2]], np.float32))
    png = localization_panel(photos, cams, masks, boxes, ["a.jpg", "größe.jpg", "folder/" * 40 + "c.jpg"])
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
    assert panel_width() == width


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


def test_each_map_of_an_image_has_a_column() -> None:
    photo, mask = np.full((50, 50, 3), 200, np.uint8), np.ones((5, 5), bool)
    cold, hot = np.zeros((5, 5), np.float32), np.ones((5, 5), np.float32)
    no_boxes = np.zeros((0, 4), np.float32)
    titles = ("CAM 1", "CAM 2", "CAM")
    png = localization_panel([photo], [[cold, hot, hot]], [mask], [no_boxes], ["a"], cam_titles=titles)
    image = np.asarray(Image.open(io.BytesIO(png)))
    assert image.shape[1::-1] == (panel_width(3), CAPTION + CAPTION + CELL + GAP)
    red = [int(cell(image, 0, column)[..., 0].mean()) for column in range(6)]
    assert red[1] < red[2] == red[3]
    assert red[0] == red[4] == red[5] == 200


def test_a_strip_is_as_high_as_its_photo() -> None:
    photo, cam = np.full((50, 100, 3), 200, np.uint8), np.zeros((5, 5), np.float32)
    jpeg = localization_strip(photo, cam, cam > 0, np.array([[0, 0, 1, 1]], np.float32))
    picture = Image.open(io.BytesIO(jpeg))
    assert picture.format == "JPEG"
    assert picture.size == (panel_width(), CELL // 2)
    assert len(jpeg) < 30_000
